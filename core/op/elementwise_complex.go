package op

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// A complexForm is what an elementwise operation does with complex numbers. Its kernel takes the real and imaginary parts of the inputs,
// and writes those of the result.
type complexForm struct {
	kernel   *expr.Kernel
	ids      [3]core.KernelID
	partwise bool // whether it does with each part what the operation does with a real number
	grads    []*gradient
	widens   bool // whether derivatives take real inputs as complex numbers
	uses     []variant
	deriv    func(grad, x *core.Tensor) *core.Tensor // replaces the derivative of grads, for a function that is not holomorphic
}

// overComplex adds what the operation does with complex numbers. The body is a program over the parts of the inputs: those of x are xr and
// xi. It has two results, which are the parts of the operation's, or one, a real number or a truth value. Of an operation with a complex
// result, the derivatives over real numbers are those over complex ones too, since a function that has them is holomorphic; grads replaces
// them where it is given, and takes real inputs as complex numbers. It returns e.
func (e *Elementwise) overComplex(body string, grads ...string) *Elementwise {
	var in []string
	for _, p := range e.kernel.In {
		if p.Kind == expr.Logic {
			in = append(in, p.Name+" logic")
		} else {
			in = append(in, p.Name+"r", p.Name+"i")
		}
	}
	k, err := expr.NewKernel(e.Name+".complex", strings.Join(in, ", ")+"; "+strings.Join(e.kernel.Attrs, ", "), body)
	if n := len(k.Program.Results); err == nil && n > 1 && n%2 != 0 {
		err = fmt.Errorf("%s has %d results over complex numbers", e.Name, n)
	}
	if err != nil {
		panic(err)
	}
	k.Domain, k.Pairs = expr.Floats, true
	f := &complexForm{kernel: k, ids: kernelIDs(k), grads: e.grads, uses: e.uses}
	if len(grads) > 0 {
		f.grads = make([]*gradient, len(e.kernel.In))
		for i, src := range grads {
			if src == "" {
				continue
			}
			if f.grads[i], err = newGradient(e.kernel, e.kernel.In[i].Name, src); err != nil {
				panic(err)
			}
			f.grads[i].kernel = nil // which would be one of real numbers
		}
		f.uses, f.widens = e.variants(f.grads), true
	}
	for _, id := range f.ids {
		elementwiseKernels[id] = true
	}
	e.complex, takesComplex[e.Name] = f, true
	return e
}

// overParts is overComplex for an operation that does with each part what it does with a real number.
func (e *Elementwise) overParts(body string) *Elementwise {
	e.overComplex(body).complex.partwise = true
	core.DeclarePairs(core.Linear, e.ids[:]...)
	return e
}

// derivedBy sets the derivative over complex numbers of an operation on one tensor that is not holomorphic.
func (e *Elementwise) derivedBy(deriv func(grad, x *core.Tensor) *core.Tensor) {
	f := e.complex
	f.deriv, f.grads = deriv, []*gradient{{}}
	f.uses = []variant{{op: e}, {op: e, saves: []int{0}}}
}

// isComplex reports whether one of the tensors, of which some may be nil, is complex.
func isComplex(tensors ...*core.Tensor) bool {
	return slices.ContainsFunc(tensors, func(t *core.Tensor) bool { return t != nil && t.DType().IsComplex() })
}

// runComplex is run for inputs of which one is complex.
func (e *Elementwise) runComplex(op *opContext, attrs []float64, in []*core.Tensor) *core.Tensor {
	f := e.complex
	d := e.promoted(in)
	if op.err == nil && f == nil {
		op.failf(core.DTypeError, "not defined for %v", d)
	}
	if op.err == nil && !d.Valid() {
		op.common(d, in...)
	}
	shape := op.commonShape(in)
	if op.err != nil {
		return op.fail()
	}
	result := d
	if len(f.kernel.Program.Results) == 1 {
		if result = d.Part(); f.kernel.Program.Results[0].Kind() == expr.Logic {
			result = core.Bool
		}
	}
	out := op.outOfEach(e.outName, result, shape, in)
	if op.err != nil {
		return op.fail()
	}
	// Where an operand is broadcast, a number of two parts is worth a loop over numbers.
	differs := func(x *core.Tensor) bool { return x.IsNumber() || x.DType() != d || !slices.Equal(x.Shape(), shape) }
	if f.partwise && !slices.ContainsFunc(in, differs) && len(shape) < core.MaxDims {
		c := op.call(e.ids[computeType(d.Part())]).Out(out)
		for _, x := range in {
			c.In(x)
		}
		op.launch(c.Float(attrs...))
		return e.doneComplex(op, attrs, in, out)
	}
	e.launchComplex(op, attrs, in, out, false)
	return e.doneComplex(op, attrs, in, out)
}

// launchComplex launches the kernel, which writes to out. With change, out is the first input.
func (e *Elementwise) launchComplex(op *opContext, attrs []float64, in []*core.Tensor, out *core.Tensor, change bool) {
	c := op.call(e.complex.ids[computeType(e.promoted(in).Part())])
	c.InPlace = change
	if out.DType().IsComplex() {
		c.OutParts(out)
	} else {
		c.Out(out)
	}
	for i, x := range in {
		switch {
		case e.kernel.In[i].Kind == expr.Logic:
			c.In(x)
		case x.IsNumber():
			re, im := numberParts(x)
			c.In(re).In(im)
		case x.DType().IsComplex():
			c.InParts(x)
		default:
			c.In(x).In(core.IntNum(0))
		}
	}
	c.Float(attrs...)
	op.launch(c)
}

// staysComplex reports whether the operation, on inputs of which one is complex, has a result of the dtype of the first.
func (e *Elementwise) staysComplex(in []*core.Tensor) bool {
	if e.complex == nil || len(e.complex.kernel.Program.Results) < 2 || slices.ContainsFunc(in, func(x *core.Tensor) bool { return x.Err() != nil }) {
		return false
	}
	return !in[0].IsNumber() && in[0].DType() == e.promoted(in)
}

// runComplexInPlace is the rest of applyInPlace for inputs of which one is complex, and a result of the dtype of the first.
func (e *Elementwise) runComplexInPlace(op *opContext, attrs []float64, in []*core.Tensor) *core.Tensor {
	t, f := in[0], e.complex
	op.inPlace(t)
	if op.err == nil {
		in = e.truths(op, in)
	}
	op.holds(t, op.commonShape(in))
	if op.err != nil {
		return op.fail()
	}
	values := op.aside(in, f.grads, f.uses)
	if op.err != nil {
		return op.fail()
	}
	e.launchComplex(op, attrs, in, t, true)
	op.changed(t)
	if op.grad {
		if n := e.recordAs(op, f.grads, f.uses, elementwiseComplexDeriv, attrs, in, values, t); n != nil {
			op.rebase(n, t)
		}
	}
	return op.done(t)
}

// doneComplex returns the result of operands of which one is complex, and records how it came about.
func (e *Elementwise) doneComplex(op *opContext, attrs []float64, in []*core.Tensor, out *core.Tensor) *core.Tensor {
	if op.grad {
		if n := e.recordAs(op, e.complex.grads, e.complex.uses, elementwiseComplexDeriv, attrs, in, in, out); n != nil {
			op.attach(n, out)
		}
	}
	return op.done(out)
}

// truths returns the inputs with the complex ones that are taken as truth values as such.
func (e *Elementwise) truths(op *opContext, in []*core.Tensor) []*core.Tensor {
	out := slices.Clone(in)
	for i, x := range in {
		if e.kernel.In[i].Kind == expr.Logic && x.DType().IsComplex() {
			out[i] = op.own(castTo(x, core.Bool))
		}
	}
	return out
}

// promoted returns the dtype to which the inputs that are numbers promote.
func (e *Elementwise) promoted(in []*core.Tensor) core.DType {
	var list []*core.Tensor
	for i, x := range in {
		if e.kernel.In[i].Kind == expr.Number {
			list = append(list, x)
		}
	}
	return core.ResultType(list...)
}

// numberParts returns the parts of a number, which may be real, as numbers.
func numberParts(n *core.Tensor) (re, im *core.Tensor) {
	if !n.DType().IsComplex() {
		return n, core.IntNum(0)
	}
	return core.Num(n.Number().Float), core.Num(n.Number().Imag)
}

// half returns a tensor over the real parts of z, or for i = 1 over the imaginary ones, that has no place in the graph.
func half(m core.Mode, z *core.Tensor, i int) *core.Tensor {
	return core.WrapTensor(m, z.Storage(), z.DType().Part(), z.Shape(), partStrides(z), 2*z.Offset()+i)
}

// partStrides returns the strides of the real parts of z, in real numbers.
func partStrides(z *core.Tensor) []int {
	strides := make([]int, z.Dim(), z.Dim()+1)
	for d, s := range z.Strides() {
		strides[d] = 2 * s
	}
	return strides
}

// elementwiseComplexDeriv is elementwiseDeriv for operations over complex numbers. The gradient of a real function, with respect to a
// complex number, is its derivative by the real part plus i times that by the imaginary part, as in PyTorch. So the gradient of an input of
// a holomorphic function is the product of the result's and the conjugate of the derivative.
// Reference: https://docs.pytorch.org/docs/stable/notes/autograd.html#autograd-for-complex-numbers.
func elementwiseComplexDeriv(ctx *core.BackwardContext) {
	v := ctx.Node.Any.(*variant)
	var slots [9]*core.Tensor
	values, err := v.values(ctx, slots[:])
	if err != nil {
		return
	}
	for _, i := range v.saves {
		if x := values[i]; x.IsNumber() && (x.DType().IsComplex() || v.op.complex.widens) { // with which programs do not compute
			values[i] = numberAs(x, ctx.Grad())
		} else if v.op.complex.widens {
			values[i] = castTo(x, ctx.OutputDType(0))
		}
	}
	if f := v.op.complex; f.deriv != nil {
		ctx.Set(0, f.deriv(ctx.Grad(), values[0]))
		return
	}
	for i, g := range v.op.complex.grads {
		if g != nil && ctx.Needs(i) {
			ctx.Set(i, castTo(sumTo(v.op.complexGradient(ctx, g, values), ctx.InputShape(i)), ctx.InputDType(i)))
		}
	}
}

func (e *Elementwise) complexGradient(ctx *core.BackwardContext, g *gradient, values []*core.Tensor) *core.Tensor {
	if c, isConst := g.program.Results[0].(*expr.Const); isConst && c.Value == 0 {
		return zerosFor(ctx.Grad(), ctx.InputDType(g.input), ctx.InputShape(g.input))
	}
	if ctx.OutputDType(0).IsComplex() && len(g.reads) > 0 {
		return Conj(e.interpretWith(ctx, g, Conj(ctx.Grad()), values))
	}
	return e.interpretWith(ctx, g, ctx.Grad(), values)
}
