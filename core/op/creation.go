package op

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// TensorOptions say what a new tensor is like. The zero value means the context's default dtype and device and no
// gradient; for functions that end in Like, the dtype and device of their argument.
type TensorOptions struct {
	DType        *core.DType
	Device       core.Device
	RequiresGrad bool
}

// like is for an op that makes a tensor on the options' device, or t's, or the default one.
func (op opContext) like(t *core.Tensor, o TensorOptions) opContext {
	dev := o.Device
	if t != nil {
		if op.err = t.Usable(op.name); op.err != nil {
			return op
		}
		if t.IsNumber() {
			op.failf(core.TypeError, "got a number, want a tensor")
		}
		if dev == nil {
			dev = t.Device()
		}
	}
	return op.on(dev)
}

// dtype returns the options' dtype, or d.
func (o TensorOptions) dtype(d core.DType) core.DType {
	if o.DType != nil {
		return *o.DType
	}
	return d
}

// finish makes the new tensor what the options say.
func (op *opContext) finish(t *core.Tensor, o TensorOptions) *core.Tensor {
	if op.err != nil {
		return op.fail()
	}
	op.end()
	if o.RequiresGrad {
		return t.SetRequiresGrad(true)
	}
	return t
}

// filled makes a tensor whose elements are all the number value.
func filled(name string, like *core.Tensor, shape []int, d core.DType, value *core.Tensor, o TensorOptions) *core.Tensor {
	op := begin(name).like(like, o)
	op.check(holds(name, d, value))
	if op.err == nil && value.DType().IsComplex() && !d.IsComplex() {
		op.failf(core.DTypeError, "a tensor of %v cannot hold a complex number", d)
	}
	t := op.out(d, shape)
	if op.err == nil {
		op.fill(t, value)
	}
	return op.finish(t, o)
}

// fill launches the kernel that sets the elements of t, a new tensor, to a number.
func (op *opContext) fill(t, value *core.Tensor) {
	if t.DType().IsComplex() {
		re, im := numberParts(value)
		op.setParts(t, re, im)
		return
	}
	op.launch(op.call(contract.Fill).Out(t).In(value))
}

// The numbers that tensors are filled with most often.
var zero, one = core.IntNum(0), core.IntNum(1)

// Zeros returns zeros of the default dtype.
func Zeros(shape ...int) *core.Tensor { return ZerosWith(shape, TensorOptions{}) }

// ZerosWith is [Zeros] with options.
func ZerosWith(shape []int, o TensorOptions) *core.Tensor {
	if parts := recording(); parts != nil {
		return handOn(parts, "zeros", shape, o)
	}
	return filled("zeros", nil, shape, o.dtype(core.CurrentContext().DefaultDType()), zero, o)
}

// Ones returns ones of the default dtype.
func Ones(shape ...int) *core.Tensor { return OnesWith(shape, TensorOptions{}) }

// OnesWith is [Ones] with options.
func OnesWith(shape []int, o TensorOptions) *core.Tensor {
	if parts := recording(); parts != nil {
		return handOn(parts, "ones", shape, o)
	}
	return filled("ones", nil, shape, o.dtype(core.CurrentContext().DefaultDType()), one, o)
}

// Full returns a tensor whose elements are all value, a number. The dtype, if not given, is bool, int64 or the default
// floating-point dtype, as the number is.
func Full(shape []int, value *core.Tensor, o TensorOptions) *core.Tensor {
	if parts := recording(); parts != nil {
		return handOn(parts, "full", shape, value, o)
	}
	if err := wantNumber("full", value); err != nil {
		return core.ErrorTensor(err)
	}
	return filled("full", nil, shape, o.dtype(value.DType()), value, o)
}

// Empty returns a tensor of the default dtype whose elements are undefined until they are written.
func Empty(shape ...int) *core.Tensor { return EmptyWith(shape, TensorOptions{}) }

// EmptyWith is [Empty] with options.
func EmptyWith(shape []int, o TensorOptions) *core.Tensor {
	if parts := recording(); parts != nil {
		return handOn(parts, "empty", shape, o)
	}
	return Buffer(shape, o)
}

// Buffer is [EmptyWith] for elements that do not come from an operation: what is recorded as a graph takes it for a constant.
func Buffer(shape []int, o TensorOptions) *core.Tensor {
	op := begin("empty").like(nil, o)
	return op.finish(op.out(o.dtype(core.CurrentContext().DefaultDType()), shape), o)
}

// ZerosLike returns zeros of t's shape.
func ZerosLike(t *core.Tensor, o TensorOptions) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "zeros_like", t, o)
	}
	return filledLike("zeros_like", t, zero, o)
}

// OnesLike returns ones of t's shape.
func OnesLike(t *core.Tensor, o TensorOptions) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "ones_like", t, o)
	}
	return filledLike("ones_like", t, one, o)
}

// FullLike returns a tensor of t's shape whose elements are all value, a number.
func FullLike(t, value *core.Tensor, o TensorOptions) *core.Tensor {
	if parts := distributed(t, value); parts != nil {
		return handOn(parts, "full_like", t, value, o)
	}
	return filledLike("full_like", t, value, o)
}

func filledLike(name string, t, value *core.Tensor, o TensorOptions) *core.Tensor {
	if err := t.Usable(name); err != nil {
		return core.ErrorTensor(err)
	}
	if err := wantNumber(name, value); err != nil {
		return core.ErrorTensor(err)
	}
	return filled(name, t, t.Shape(), o.dtype(t.DType()), value, o)
}

// EmptyLike returns a tensor of t's shape whose elements are undefined until they are written.
func EmptyLike(t *core.Tensor, o TensorOptions) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "empty_like", t, o)
	}
	op := begin("empty_like").like(t, o)
	op.given(t)
	if op.err != nil {
		return op.fail()
	}
	return op.finish(op.out(o.dtype(t.DType()), t.Shape()), o)
}

func wantNumber(name string, value *core.Tensor) error {
	if err := value.Usable(name); err != nil {
		return err
	}
	if !value.IsNumber() {
		return core.Errorf(core.TypeError, name, "the value must be a number, got %v", value)
	}
	return nil
}

// Eye returns a matrix with n rows and m columns, or n if m is negative, with ones on the diagonal and zeros elsewhere.
func Eye(n, m int, o TensorOptions) *core.Tensor {
	if parts := recording(); parts != nil {
		return handOn(parts, "eye", n, m, o)
	}
	if m < 0 {
		m = n
	}
	op := begin("eye").like(nil, o)
	t := op.out(o.dtype(core.CurrentContext().DefaultDType()), []int{n, m})
	if op.err != nil {
		return op.fail()
	}
	op.launch(op.call(contract.Fill).Out(t).In(core.IntNum(0)))
	diagonal := core.WrapTensor(op.mode, t.Storage(), t.DType(), []int{min(n, m)}, []int{m + 1}, 0)
	if t.DType().IsComplex() {
		all := diagonal
		diagonal = half(op.mode, all, 0)
		all.Release()
	}
	c := op.call(contract.Fill).Out(diagonal).In(core.IntNum(1))
	c.InPlace = true
	op.launch(c)
	diagonal.Release()
	return op.finish(t, o)
}

// Arange returns the numbers from start on, step apart, that lie before end. Start, end and step are numbers; absent ones
// are 0, required and 1. The dtype, if not given, is int64 if all are integers, otherwise the default one.
func Arange(start, end, step *core.Tensor, o TensorOptions) *core.Tensor {
	if parts := recording(); parts != nil {
		return handOn(parts, "arange", start, end, step, o)
	}
	if start == nil {
		start = core.IntNum(0)
	}
	if step == nil {
		step = core.IntNum(1)
	}
	d := core.Int64
	for _, v := range []*core.Tensor{start, end, step} {
		if err := wantNumber("arange", v); err != nil {
			return core.ErrorTensor(err)
		}
		if v.DType().IsComplex() {
			return core.ErrorTensor(core.Errorf(core.DTypeError, "arange", "got the complex %v, want a real one", v))
		}
		if v.DType().IsFloat() {
			d = core.CurrentContext().DefaultDType()
		}
	}
	integers := d == core.Int64
	d = o.dtype(d)
	s, e, by := start.Number(), end.Number(), step.Number()
	op := begin("arange").like(nil, o)
	length := math.Ceil((e.Float - s.Float) / by.Float)
	switch {
	case d == core.Bool:
		op.failf(core.DTypeError, "bool has no ranges")
	case by.Float == 0 || by.Float != by.Float:
		op.failf(core.ValueError, "the step must not be zero")
	case math.IsNaN(length) || math.IsInf(length, 0) || math.IsInf(s.Float, 0):
		op.failf(core.ValueError, "got start %v, end %v and step %v, want finite numbers", s.Float, e.Float, by.Float)
	case length < 0:
		op.failf(core.ValueError, "a step of %v does not lead from %v to %v", by.Float, s.Float, e.Float)
	case length >= 1<<62:
		op.failf(core.MemoryError, "%v elements are larger than the address space", length)
	}
	if op.err != nil {
		return op.fail()
	}
	n := int(length)
	if integers { // exactly, also past 2^53
		span, width := uint64(e.Int)-uint64(s.Int), uint64(by.Int)
		if by.Int < 0 {
			span, width = -span, -width
		}
		n = int((span + width - 1) / width)
	}
	t := op.out(d, []int{n})
	if op.err == nil {
		op.launch(contract.ArangeAttrs{Start: s.Int, Step: by.Int, FloatStart: s.Float, FloatStep: by.Float}.AddTo(op.call(contract.Arange).Out(t)))
	}
	return op.finish(t, o)
}

// Linspace returns the given number of evenly spaced numbers from start to end, both included.
func Linspace(start, end float64, steps int, o TensorOptions) *core.Tensor {
	if parts := recording(); parts != nil {
		return handOn(parts, "linspace", start, end, steps, o)
	}
	op := begin("linspace").like(nil, o)
	op.steps(steps)
	d := o.dtype(core.CurrentContext().DefaultDType())
	t := op.out(d, []int{steps})
	if op.err == nil && d.IsComplex() {
		op.launch(contract.SpaceAttrs{Start: start, End: end}.AddTo(op.call(contract.Linspace).Out(op.own(half(op.mode, t, 0)))))
		op.launch(op.call(contract.Fill).Out(op.own(half(op.mode, t, 1))).In(core.IntNum(0)))
		return op.finish(t, o)
	}
	op.check(holds("linspace", d, core.Num(start)))
	op.check(holds("linspace", d, core.Num(end)))
	start, end = endsIn(d, start, end)
	if op.err == nil {
		op.launch(contract.SpaceAttrs{Start: start, End: end}.AddTo(op.call(contract.Linspace).Out(t)))
	}
	return op.finish(t, o)
}

// Logspace returns base to the powers of the given number of evenly spaced numbers from start to end, both included.
func Logspace(start, end float64, steps int, base float64, o TensorOptions) *core.Tensor {
	if parts := recording(); parts != nil {
		return handOn(parts, "logspace", start, end, steps, base, o)
	}
	d := o.dtype(core.CurrentContext().DefaultDType())
	if d.IsComplex() {
		t := compose("logspace", func() *core.Tensor {
			return Pow(core.ComplexNum(complex(base, 0)), Linspace(start, end, steps, TensorOptions{DType: &d, Device: o.Device}))
		})
		if o.RequiresGrad && t.Err() == nil {
			t.SetRequiresGrad(true)
		}
		return t
	}
	op := begin("logspace").like(nil, o)
	op.steps(steps)
	t := op.out(d, []int{steps})
	start, end = endsIn(d, start, end)
	if op.err == nil {
		op.launch(contract.SpaceAttrs{Start: start, End: end, Base: base}.AddTo(op.call(contract.Logspace).Out(t)))
	}
	return op.finish(t, o)
}

// endsIn returns the ends of a range as numbers of dtype d: without fractions for integers.
func endsIn(d core.DType, start, end float64) (float64, float64) {
	if d.IsFloat() {
		return start, end
	}
	return math.Trunc(start), math.Trunc(end)
}

func (op *opContext) steps(n int) {
	if n < 0 {
		op.failf(core.ValueError, "the number of steps must not be negative, got %d", n)
	}
}

// zerosFrom returns zeros that follow from t, all elements of which a view or a repetition has left out or has none of: a rank whose part of a
// distributed tensor is empty takes part in further derivatives as the others do.
func zerosFrom(t *core.Tensor, shape []int) *core.Tensor {
	zeros := zerosFor(t, t.DType(), shape)
	if !core.CurrentMode().GradEnabled() || !derived(t) {
		return zeros
	}
	return Add(zeros, Sum(t, nil, false))
}

// zerosFor returns zeros on the device of t.
func zerosFor(t *core.Tensor, d core.DType, shape []int) *core.Tensor {
	op := begin("zeros").with(behind(t))
	op.grad = false
	out := op.out(d, shape)
	if op.err != nil {
		return op.fail()
	}
	op.launch(op.call(contract.Fill).Out(out).In(core.IntNum(0)))
	return op.done(out)
}
