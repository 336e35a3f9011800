package op

import (
	"fmt"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// A gradient is the derivative of an elementwise operation with respect to one input.
type gradient struct {
	input   int
	program *expr.Program
	kernel  *expr.Kernel // nil for a gradient that is "grad" itself or a constant
	ids     [3]core.KernelID
	reads   []int // the operands after grad, as variant.saves counts them
}

// newGradient parses the derivative of k with respect to the named input.
func newGradient(k *expr.Kernel, input, src string) (*gradient, error) {
	scope := map[string]expr.Kind{"grad": expr.Number, "out": k.Program.Results[0].Kind()}
	for _, p := range k.In {
		scope[p.Name] = p.Kind
	}
	for _, name := range k.Attrs {
		scope[name] = expr.Number
	}
	p, err := expr.Parse(src, scope)
	if err != nil {
		return nil, fmt.Errorf("%s with respect to %s: %w", k.Name, input, err)
	}
	g := &gradient{program: p}
	g.input = slices.IndexFunc(k.In, func(p expr.Param) bool { return p.Name == input })
	if len(p.Results) != 1 {
		return nil, fmt.Errorf("%s with respect to %s: got %d results, want 1", k.Name, input, len(p.Results))
	}
	if _, isCall := p.Results[0].(*expr.Call); !isCall {
		return g, nil
	}
	g.kernel = &expr.Kernel{Name: k.Name + ".grad." + input, In: []expr.Param{{Name: "grad"}}, Attrs: k.Attrs, Program: p, Domain: expr.Floats}
	for i, in := range append(slices.Clone(k.In), expr.Param{Name: "out", Kind: scope["out"]}) {
		if p.Uses(in.Name) {
			g.kernel.In = append(g.kernel.In, in)
			g.reads = append(g.reads, i)
		}
	}
	g.ids = kernelIDs(g.kernel)
	return g, nil
}

// elementwiseDeriv is the derivative of every elementwise operation.
func elementwiseDeriv(ctx *core.BackwardContext) {
	v := ctx.Node.Any.(*variant)
	var slots [9]*core.Tensor
	values, err := v.values(ctx, slots[:])
	if err != nil {
		return // d has failed
	}
	var places [8]*core.Tensor
	v.op.together(ctx, values, places[:len(v.op.grads)])
	for i, g := range v.op.grads {
		if g == nil || !ctx.Needs(i) {
			continue
		}
		ctx.Set(i, v.op.gradientOf(ctx, g, values, places[i]))
	}
}

// together allocates in places, by input, gradients of inputs that were split off one tensor, lying as the inputs do.
func (e *Elementwise) together(ctx *core.BackwardContext, values, places []*core.Tensor) {
	if len(places) < 2 || ctx.CreateGraph() {
		return
	}
	var parts [8]*core.Tensor
	count := 0
	for i, g := range e.grads {
		if t := values[i]; g != nil && g.kernel != nil && t != nil && ctx.Needs(i) && t.DType() == ctx.InputDType(i) &&
			slices.Equal(t.Shape(), ctx.OutputShape(0)) && dividedBy(ctx, i) != nil {
			parts[i] = t
			count++
		}
	}
	if count < 2 {
		return
	}
	op := begin(e.Name).with(ctx.Grad())
	op.gradsOfParts(ctx, parts[:len(places)], places)
	if op.err != nil {
		ctx.Fail(op.err)
	}
}

// gradientOf returns the gradient of an input, which may have its place already.
func (e *Elementwise) gradientOf(ctx *core.BackwardContext, g *gradient, values []*core.Tensor, place *core.Tensor) *core.Tensor {
	shape, dtype := ctx.InputShape(g.input), ctx.InputDType(g.input)
	var r *core.Tensor
	switch {
	case g.kernel == nil:
		c, isConst := g.program.Results[0].(*expr.Const)
		if isConst {
			return fullLike(ctx.Grad(), c.Value, dtype, shape)
		}
		if r = ctx.Grad(); !slices.Equal(r.Shape(), shape) {
			r = castTo(r, ctx.OutputDType(0)) // which is summed in its own dtype
		}
	case ctx.CreateGraph():
		r = e.interpret(ctx, g, values)
	default:
		result := ctx.OutputDType(0)
		if slices.Equal(ctx.OutputShape(0), shape) {
			result = dtype // nothing is left to do but this conversion
		}
		r = e.fused(ctx, g, ctx.Grad(), values, result, place)
	}
	return castTo(sumTo(r, shape), dtype)
}

// fused computes the gradient, of the given dtype, in one kernel, which writes it to its place if that is not nil.
func (e *Elementwise) fused(ctx *core.BackwardContext, g *gradient, grad *core.Tensor, values []*core.Tensor, result core.DType, place *core.Tensor) *core.Tensor {
	op := begin(e.Name).with(grad)
	r := place
	if r == nil {
		r = op.out(result, ctx.OutputShape(0))
	}
	if op.err != nil {
		return op.fail()
	}
	c := op.call(g.ids[computeType(ctx.OutputDType(0))]).Out(r).In(grad)
	for _, i := range g.reads {
		op.check(values[i].Usable(e.Name)) // its memory may have been freed since, as a gathered parameter's
		c.In(values[i])
	}
	fillAttrs(c, ctx.OutputDType(0), ctx.Node.Floats)
	op.launch(c)
	return op.done(r)
}

// interpret computes the gradient by operations that record their own derivatives.
func (e *Elementwise) interpret(ctx *core.BackwardContext, g *gradient, values []*core.Tensor) *core.Tensor {
	return e.interpretWith(ctx, g, ctx.Grad(), values)
}

// interpretWith is interpret for another gradient of the result.
func (e *Elementwise) interpretWith(ctx *core.BackwardContext, g *gradient, grad *core.Tensor, values []*core.Tensor) *core.Tensor {
	env := map[string]*core.Tensor{"grad": grad, "out": values[len(e.kernel.In)]}
	for i, p := range e.kernel.In {
		env[p.Name] = values[i]
	}
	for i, name := range e.kernel.Attrs {
		env[name] = core.Num(ctx.Node.Floats[i])
	}
	r, err := expr.Interpret(g.program, env, tensorAlgebra{like: grad})
	if err != nil {
		return core.ErrorTensor(err)
	}
	return r[0]
}

// tensorAlgebra interprets programs over tensors and numbers. Where a condition chooses among numbers, the result is float64 if like is: the
// default dtype would round them.
type tensorAlgebra struct{ like *core.Tensor }

// Const returns the number.
func (tensorAlgebra) Const(c *expr.Const) (*core.Tensor, error) { return core.Num(c.Value), nil }

// Apply applies the operation that f stands for; numbers alone give a number.
func (a tensorAlgebra) Apply(f *expr.Func, args []*core.Tensor) (*core.Tensor, error) {
	if !slices.ContainsFunc(args, func(t *core.Tensor) bool { return !t.IsNumber() }) {
		values := make([]float64, len(args))
		for i, t := range args {
			values[i] = t.Number().Float
		}
		v := f.Float(values...)
		if f.Result() == expr.Logic {
			return core.BoolNum(v != 0), nil
		}
		return core.Num(v), nil
	}
	if f.Op == "where" && args[1].IsNumber() && args[2].IsNumber() && a.like.DType() == core.Float64 {
		args = []*core.Tensor{args[0], numberAs(args[1], a.like), args[2]}
	}
	t := elementwiseOps[f.Op].apply(nil, args...)
	return t, t.Err()
}

// fullLike returns a tensor of the number v on the device of t.
func fullLike(t *core.Tensor, v float64, d core.DType, shape []int) *core.Tensor {
	op := begin("full").with(behind(t))
	op.grad = false
	r := op.out(d, shape)
	if op.err != nil {
		return op.fail()
	}
	op.fill(r, core.Num(v))
	return op.done(r)
}
