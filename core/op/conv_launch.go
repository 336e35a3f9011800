package op

import "github.com/plait-ml/plait/core"

var (
	convForwardKernel    = core.Kernel("conv_forward")
	convInputGradKernel  = core.Kernel("conv_input_grad")
	convWeightGradKernel = core.Kernel("conv_weight_grad")
)

// A convolution is the map y = x * w over some spatial dimensions, bilinear in x of shape [N, C, in...] and w of shape
// [O, C/groups, kernel...]. It and its two transposes, which give the gradients of x and w, are each other's derivatives.
type convolution struct {
	stride, padding, dilation []int // padding in front; what is behind follows from the sizes
	groups                    int
}

func (p *convolution) launch(a *application, k core.KernelID, out *core.Tensor, ins ...*core.Tensor) {
	var dense [3]*core.Tensor
	for i, t := range ins {
		dense[i] = a.dense(t)
	}
	if a.err != nil {
		return
	}
	c := a.call(k).Out(out)
	for i := range ins {
		c.In(dense[i])
	}
	c.Dims(p.stride).Dims(p.padding).Dims(p.dilation).Int(int64(p.groups))
	c.Work = max(c.Work, p.work(k, out, ins)/8)
	a.launch(c)
}

// work returns the number of products.
func (p *convolution) work(k core.KernelID, out *core.Tensor, ins []*core.Tensor) int {
	y, w := out, ins[1]
	switch k {
	case convInputGradKernel:
		y = ins[0]
	case convWeightGradKernel:
		y, w = ins[1], out
	}
	return y.Numel() * (w.Numel() / max(1, w.Size(0)))
}

// forward returns x * w + b with spatial sizes out.
func (p *convolution) forward(name string, x, w, b *core.Tensor, out []int) *core.Tensor {
	a := begin(name, x, w, b)
	if a.err != nil {
		return a.fail()
	}
	y := a.out(x.DType(), append([]int{x.Size(0), w.Size(0)}, out...))
	if a.err != nil {
		return a.fail()
	}
	p.launch(&a, convForwardKernel, y, x, w, b)
	if a.grad {
		n := a.node(convForwardDeriv, x, w, b)
		n.Any = p
		a.attach(n.Save(keptIf(w, x), keptIf(x, w)), y)
	}
	return a.done(y)
}

// keptIf returns t, if the gradient of the tensor for which it is needed is wanted.
func keptIf(needs, t *core.Tensor) *core.Tensor {
	if needs.RequiresGrad() {
		return t
	}
	return nil
}

func convForwardDeriv(d *core.Derivation) {
	p, g := d.Node.Any.(*convolution), d.Grad()
	if d.Needs(0) {
		d.Set(0, p.inputGrad("conv_input_grad", g, d.Saved(1), nil, d.InputShape(0)[2:]))
	}
	if d.Needs(1) {
		d.Set(1, p.weightGrad(d.Saved(0), g, d.InputShape(1)[2:]))
	}
	if d.Needs(2) {
		d.Set(2, channelSum(g))
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
	a := begin(name, dy, w, b)
	if a.err != nil {
		return a.fail()
	}
	dx := a.out(dy.DType(), append([]int{dy.Size(0), w.Size(1) * p.groups}, in...))
	if a.err != nil {
		return a.fail()
	}
	p.launch(&a, convInputGradKernel, dx, dy, w, b)
	if a.grad {
		n := a.node(convInputGradDeriv, dy, w, b)
		n.Any = p
		a.attach(n.Save(keptIf(w, dy), keptIf(dy, w)), dx)
	}
	return a.done(dx)
}

func convInputGradDeriv(d *core.Derivation) {
	p, g := d.Node.Any.(*convolution), d.Grad()
	if d.Needs(0) {
		d.Set(0, p.forward("conv_forward", g, d.Saved(1), nil, d.InputShape(0)[2:]))
	}
	if d.Needs(1) {
		d.Set(1, p.weightGrad(g, d.Saved(0), d.InputShape(1)[2:]))
	}
	if d.Needs(2) {
		d.Set(2, channelSum(g))
	}
}

// weightGrad returns the gradient of w, of spatial sizes kernel, for the gradient dy of y.
func (p *convolution) weightGrad(x, dy *core.Tensor, kernel []int) *core.Tensor {
	a := begin("conv_weight_grad", x, dy)
	if a.err != nil {
		return a.fail()
	}
	dw := a.out(x.DType(), append([]int{dy.Size(1), x.Size(1) / p.groups}, kernel...))
	if a.err != nil {
		return a.fail()
	}
	p.launch(&a, convWeightGradKernel, dw, x, dy)
	if a.grad {
		n := a.node(convWeightGradDeriv, x, dy)
		n.Any = p
		a.attach(n.Save(keptIf(dy, x), keptIf(x, dy)), dw)
	}
	return a.done(dw)
}

func convWeightGradDeriv(d *core.Derivation) {
	p, g := d.Node.Any.(*convolution), d.Grad()
	if d.Needs(0) {
		d.Set(0, p.inputGrad("conv_input_grad", d.Saved(1), g, nil, d.InputShape(0)[2:]))
	}
	if d.Needs(1) {
		d.Set(1, p.forward("conv_forward", d.Saved(0), g, nil, d.InputShape(1)[2:]))
	}
}
