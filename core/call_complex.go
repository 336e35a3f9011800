package core

// Kernels know real numbers only. They see a complex tensor as the real tensor of its parts, which has one more dimension of size 2 at the
// end. Some compute the right thing for it: a copy, a sum, a concatenation. They say so by [DeclarePairs]; [Launch] refuses complex operands
// of others. Operations on complex numbers that are not linear work on their real and imaginary parts: see core/op.

// Pairs says what a kernel makes of complex operands.
type Pairs uint8

const (
	// NoPairs is for kernels that do not take them.
	NoPairs Pairs = iota
	// Linear is for kernels that treat the parts alike. All operands must be complex, or the number 0. Dimensions in attributes count from
	// the front.
	Linear
	// Shared is for kernels that do, and take operands of other dtypes of the same number of dimensions, whose elements count for both
	// parts: a mask, indices along a dimension.
	Shared
	// Leading is for kernels that do, and take operands of other dtypes as they are: indices of leading dimensions, other parameters.
	Leading
)

var pairKernels = map[KernelID]Pairs{}

// DeclarePairs says what a kernel makes of complex operands. Packages call it when they are loaded.
func DeclarePairs(p Pairs, kernels ...KernelID) {
	for _, k := range kernels {
		pairKernels[k] = p
	}
}

// Complex reports whether the operand is a complex tensor, as the real tensor of its parts.
func (o *Operand) Complex() bool { return o.pair }

// OutParts adds two outputs: the real and the imaginary parts of a complex tensor.
func (c *Call) OutParts(t *Tensor) *Call { return c.parts(&c.Outs, t) }

// InParts adds two inputs: the real and the imaginary parts of a complex tensor.
func (c *Call) InParts(t *Tensor) *Call { return c.parts(&c.Ins, t) }

func (c *Call) parts(list *[]Operand, t *Tensor) *Call {
	strides := make([]int, len(t.strides))
	for d, s := range t.strides {
		strides[d] = 2 * s
	}
	for i := range 2 {
		o := addOperand(list)
		c.fill(o, t)
		o.DType, o.Offset, o.Strides = t.dtype.Part(), 2*t.offset+i, strides
	}
	return c
}

// split makes the operand of a complex tensor one of its parts.
func (o *Operand) split() {
	n := len(o.Shape)
	both := make([]int, 2*(n+1))
	shape, strides := both[:n+1:n+1], both[n+1:]
	copy(shape, o.Shape)
	for i, s := range o.Strides {
		strides[i] = 2 * s
	}
	shape[n], strides[n] = 2, 1
	o.DType, o.Offset, o.Shape, o.Strides, o.pair = o.DType.Part(), 2*o.Offset, shape, strides, true
}

// fitPairs makes the real operands of a call that has complex ones fit them, or returns an error if its kernel does not take them.
func (c *Call) fitPairs() error {
	rule := pairKernels[c.Kernel]
	for _, list := range [][]Operand{c.Outs, c.Ins} {
		for i := range list {
			o := &list[i]
			switch {
			case o.pair && o.IsNumber:
				return Errorf(DTypeError, c.Op, "got the complex number %v, want a real one", complex(o.Number.Float, o.Number.Imag))
			case rule == NoPairs && o.pair:
				return Errorf(DTypeError, c.Op, "not defined for %v", o.DType.Complex())
			case rule == NoPairs || rule == Leading || o.pair || !o.Present() || o.IsNumber && o.Number.Float == 0:
			case rule == Linear || o.IsNumber:
				return Errorf(DTypeError, c.Op, "got %v among complex operands", o.DType)
			default:
				n := len(o.Shape)
				o.Shape, o.Strides = append(o.Shape[:n:n], 2), append(o.Strides[:n:n], 0)
			}
		}
	}
	return nil
}
