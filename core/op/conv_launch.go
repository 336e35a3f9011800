package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// A convolution is the map y = x * w over some spatial dimensions, bilinear in x of shape [N, C, in...] and w of shape
// [O, C/groups, kernel...]. It and its two transposes, which give the gradients of x and w, are each other's derivatives.
type convolution struct {
	stride, padding, dilation []int // padding in front; what is behind follows from the sizes
	groups                    int
}

func (p *convolution) launch(op *opContext, k core.KernelID, out *core.Tensor, ins ...*core.Tensor) {
	var dense [3]*core.Tensor
	for i, t := range ins {
		dense[i] = op.dense(t)
	}
	if op.err != nil {
		return
	}
	c := op.call(k).Out(out)
	for i := range ins {
		c.In(dense[i])
	}
	contract.SetConv(c, p.stride, p.padding, p.dilation, p.groups, core.ReducedConvolutions(ins[0].DType()))
	c.Work = max(c.Work, productWork(out.DType(), p.work(k, out, ins)))
	op.launch(c)
}

// work returns the number of products.
func (p *convolution) work(k core.KernelID, out *core.Tensor, ins []*core.Tensor) int {
	y, w := out, ins[1]
	switch k {
	case contract.ConvInputGrad:
		y = ins[0]
	case contract.ConvWeightGrad:
		y, w = ins[1], out
	}
	return y.Numel() * (w.Numel() / max(1, w.Size(0)))
}

// forward returns x * w + b with spatial sizes out.
func (p *convolution) forward(name string, x, w, b *core.Tensor, out []int) *core.Tensor {
	op := begin(name).with(x, w, b)
	if op.err != nil {
		return op.fail()
	}
	y := op.out(x.DType(), append([]int{x.Size(0), w.Size(0)}, out...))
	if op.err != nil {
		return op.fail()
	}
	p.launch(&op, contract.ConvForward, y, x, w, b)
	if op.grad {
		n := op.node(convForwardDeriv, x, w, b)
		n.Any = p
		op.attach(n.Save(keptIf(w, x), keptIf(x, w)), y)
	}
	return op.done(y)
}

// keptIf returns t, if the gradient of the tensor for which it is needed is wanted.
func keptIf(needs, t *core.Tensor) *core.Tensor {
	if derived(needs) {
		return t
	}
	return nil
}

func convForwardDeriv(ctx *core.BackwardContext) {
	p, g := ctx.Node.Any.(*convolution), ctx.Grad()
	if ctx.Needs(0) {
		ctx.Set(0, p.inputGrad("conv_input_grad", g, ctx.Saved(1), nil, ctx.InputShape(0)[2:]))
	}
	if ctx.Needs(1) {
		ctx.SetMixed(1, p.weightGrad(ctx.Saved(0), g, parameterDType(ctx, 1, g), ctx.InputShape(1)[2:]))
	}
	if ctx.Needs(2) {
		ctx.Set(2, channelSum(g))
	}
}

// channelSum sums over all dimensions but the channels.
func channelSum(g *core.Tensor) *core.Tensor {
	dims := []int{0}
	for i := 2; i < g.Dim(); i++ {
		dims = append(dims, i)
	}
	return Sum(g, dims, false)
}

// inputGrad returns the gradient of x, of spatial sizes in, for the gradient dy of y; plus b, which makes it the
// transposed convolution.
func (p *convolution) inputGrad(name string, dy, w, b *core.Tensor, in []int) *core.Tensor {
	op := begin(name).with(dy, w, b)
	if op.err != nil {
		return op.fail()
	}
	dx := op.out(dy.DType(), append([]int{dy.Size(0), w.Size(1) * p.groups}, in...))
	if op.err != nil {
		return op.fail()
	}
	p.launch(&op, contract.ConvInputGrad, dx, dy, w, b)
	if op.grad {
		n := op.node(convInputGradDeriv, dy, w, b)
		n.Any = p
		op.attach(n.Save(keptIf(w, dy), keptIf(dy, w)), dx)
	}
	return op.done(dx)
}

func convInputGradDeriv(ctx *core.BackwardContext) {
	p, g := ctx.Node.Any.(*convolution), ctx.Grad()
	if ctx.Needs(0) {
		ctx.Set(0, p.forward("conv_forward", g, ctx.Saved(1), nil, ctx.InputShape(0)[2:]))
	}
	if ctx.Needs(1) {
		ctx.SetMixed(1, p.weightGrad(g, ctx.Saved(0), parameterDType(ctx, 1, g), ctx.InputShape(1)[2:]))
	}
	if ctx.Needs(2) {
		ctx.Set(2, channelSum(g))
	}
}

// weightGrad returns the gradient of w, of spatial sizes kernel and the dtype d, for the gradient dy of y.
func (p *convolution) weightGrad(x, dy *core.Tensor, d core.DType, kernel []int) *core.Tensor {
	op := begin("conv_weight_grad").with(x, dy)
	if op.err != nil {
		return op.fail()
	}
	dw := op.out(d, append([]int{dy.Size(1), x.Size(1) / p.groups}, kernel...))
	if op.err != nil {
		return op.fail()
	}
	p.launch(&op, contract.ConvWeightGrad, dw, x, dy)
	if op.grad {
		n := op.node(convWeightGradDeriv, x, dy)
		n.Any = p
		op.attach(n.Save(keptIf(dy, x), keptIf(x, dy)), dw)
	}
	return op.done(dw)
}

func convWeightGradDeriv(ctx *core.BackwardContext) {
	p, g := ctx.Node.Any.(*convolution), ctx.Grad()
	if ctx.Needs(0) {
		ctx.Set(0, p.inputGrad("conv_input_grad", ctx.Saved(1), g, nil, ctx.InputShape(0)[2:]))
	}
	if ctx.Needs(1) {
		ctx.Set(1, p.forward("conv_forward", ctx.Saved(0), g, nil, ctx.InputShape(1)[2:]))
	}
}
