package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

var (
	maxPoolKernel      = core.Kernel("max_pool")
	avgPoolKernel      = core.Kernel("avg_pool")
	avgPoolGradKernel  = core.Kernel("avg_pool_grad")
	planeGatherKernel  = core.Kernel("plane_gather")
	planeScatterKernel = core.Kernel("plane_scatter")
)

// A pooling says which windows of the last nd dimensions, of sizes in, make each element of results of sizes out.
type pooling struct {
	in, out                           []int
	adaptive                          bool
	kernel, stride, padding, dilation []int
	excludePad                        bool
	divisor                           int
}

func (p *pooling) attributes(c *core.Call) {
	c.Int(int64(len(p.in))).Bool(p.adaptive)
	if !p.adaptive {
		c.Dims(p.kernel).Dims(p.stride).Dims(p.padding).Dims(p.dilation).Bool(!p.excludePad).Int(int64(p.divisor))
	}
	c.Work *= 2
}

// resize returns the shape of t with the last sizes replaced.
func resize(t *core.Tensor, sizes []int) []int {
	return append(slices.Clone(t.Shape()[:t.Dim()-len(sizes)]), sizes...)
}

// windows checks the arguments of a pooling and returns it.
func (a *application) windows(nd int, x *core.Tensor, kernel, stride, padding, dilation []int, ceil bool) *pooling {
	a.poolInput(nd, x)
	if len(kernel) == 0 {
		a.failf(core.ValueError, "kernel_size is missing, want 1 or %d entries", nd)
	}
	if len(stride) == 0 {
		stride = kernel
	}
	p := &pooling{
		kernel:   a.spatial("kernel_size", kernel, nd, 1, 1),
		stride:   a.spatial("stride", stride, nd, 1, 1),
		padding:  a.spatial("padding", padding, nd, 0, 0),
		dilation: a.spatial("dilation", dilation, nd, 1, 1),
	}
	if a.err != nil {
		return p
	}
	p.in = x.Shape()[x.Dim()-nd:]
	p.out = make([]int, nd)
	for i, in := range p.in {
		reach, pad, step := p.dilation[i]*(p.kernel[i]-1)+1, p.padding[i], p.stride[i]
		if pad > reach/2 {
			a.failf(core.ValueError, "padding must be at most half of the kernel, got padding %v, kernel_size %v", p.padding, p.kernel)
			return p
		}
		room := in + 2*pad - reach
		if ceil {
			room += step - 1
		}
		if room >= 0 && in > 0 {
			p.out[i] = room/step + 1
		}
		// The last window must start inside the input or the padding in front of it.
		if ceil && p.out[i] > 0 && (p.out[i]-1)*step >= in+pad {
			p.out[i]--
		}
		if p.out[i] <= 0 {
			a.failf(core.ShapeError, "windows of %v do not fit the input of shape %v with padding %v", p.kernel, x.Shape(), p.padding)
			return p
		}
	}
	return p
}

func (a *application) poolInput(nd int, x *core.Tensor) {
	if a.err == nil && (x == nil || x.IsNumber()) {
		a.failf(core.TypeError, "want a tensor as the input")
	}
	if a.err == nil && x.Dim() != nd+1 && x.Dim() != nd+2 {
		a.failf(core.ShapeError, "input has shape %v, want %d dimensions, or %d without a batch", x.Shape(), nd+2, nd+1)
	}
}

// adaptiveWindows is windows for a pooling to the given sizes, of which -1 means the input's.
func (a *application) adaptiveWindows(nd int, x *core.Tensor, sizes []int) *pooling {
	a.poolInput(nd, x)
	if len(sizes) == 0 {
		a.failf(core.ValueError, "output_size is missing, want 1 or %d entries", nd)
	}
	p := &pooling{adaptive: true, out: a.spatial("output_size", sizes, nd, 1, -1)}
	if a.err != nil {
		return p
	}
	p.in = x.Shape()[x.Dim()-nd:]
	for i, in := range p.in {
		if p.out[i] < 0 {
			p.out[i] = in
		}
		if in == 0 {
			a.failf(core.ShapeError, "input of shape %v has nothing to pool", x.Shape())
		}
	}
	return p
}

// maxPool applies p. The positions of the maxima are returned if wanted.
func (a *application) maxPool(x *core.Tensor, p *pooling, indices bool) (y, index *core.Tensor) {
	if a.err == nil && x.DType() == core.Bool {
		a.failf(core.DTypeError, "no maximum of bool")
	}
	if a.err != nil {
		return a.fail(), a.fail()
	}
	shape := resize(x, p.out)
	y = a.out(x.DType(), shape)
	if indices {
		index = a.out(core.Int64, shape)
	} else if a.grad {
		index = a.temp(core.Int64, shape...)
	}
	in := a.dense(x)
	if a.err != nil {
		return a.fail(), a.fail()
	}
	c := a.call(maxPoolKernel).Out(y).In(in)
	if index != nil {
		c.Out(index)
	}
	p.attributes(c)
	a.launch(c)
	if a.grad {
		n := a.node(maxPoolDeriv, x).Save(index)
		n.Any = p
		a.attach(n, y)
	}
	if !indices {
		return a.done(y), nil
	}
	return a.done2(y, index)
}

func maxPoolDeriv(d *core.Derivation) {
	p := d.Node.Any.(*pooling)
	d.Set(0, planeScatter("max_pool_grad", d.Grad(), d.Saved(0), p.in, true, p))
}

// planeScatter returns zeros with last sizes `sizes` to which the elements of x are added at the positions in index; or
// in which, if add is false, the last one of a position stays. p is the max pooling that made the index, or nil.
func planeScatter(name string, x, index *core.Tensor, sizes []int, add bool, p *pooling) *core.Tensor {
	a := begin(name, x, index)
	if a.err != nil {
		return a.fail()
	}
	out := a.out(x.DType(), resize(x, sizes))
	in, at := a.dense(x), a.dense(index)
	if a.err != nil {
		return a.fail()
	}
	c := a.call(planeScatterKernel).Out(out).In(in).In(at).Int(int64(len(sizes))).Bool(add)
	if p != nil {
		p.attributes(c)
	}
	a.launch(c)
	if a.grad {
		n := a.node(planeScatterDeriv, x).Save(index)
		n.Ints = []int{len(sizes)}
		a.attach(n, out)
	}
	return a.done(out)
}

func planeScatterDeriv(d *core.Derivation) {
	d.Set(0, planeGather(d.Grad(), d.Saved(0), d.Node.Ints[0]))
}

// planeGather returns the elements of x at the positions in index, within planes of the last nd dimensions.
func planeGather(x, index *core.Tensor, nd int) *core.Tensor {
	a := begin("max_pool_gather", x, index)
	if a.err != nil {
		return a.fail()
	}
	out := a.out(x.DType(), index.Shape())
	in, at := a.dense(x), a.dense(index)
	if a.err != nil {
		return a.fail()
	}
	a.launch(a.call(planeGatherKernel).Out(out).In(in).In(at).Int(int64(nd)))
	if a.grad {
		n := a.node(planeGatherDeriv, x).Save(index)
		n.Ints = slices.Clone(x.Shape()[x.Dim()-nd:])
		a.attach(n, out)
	}
	return a.done(out)
}

func planeGatherDeriv(d *core.Derivation) {
	d.Set(0, planeScatter("max_pool_grad", d.Grad(), d.Saved(0), d.Node.Ints, true, nil))
}

// avgPool applies p.
func (a *application) avgPool(x *core.Tensor, p *pooling) *core.Tensor {
	if a.err == nil {
		a.floating("the input", x)
	}
	if a.err != nil {
		return a.fail()
	}
	return linearPool(a.name, avgPoolKernel, x, p, p.out)
}

// linearPool applies the average of p, or its transpose, which are each other's derivatives.
func linearPool(name string, k core.KernelID, x *core.Tensor, p *pooling, sizes []int) *core.Tensor {
	a := begin(name, x)
	if a.err != nil {
		return a.fail()
	}
	y := a.out(x.DType(), resize(x, sizes))
	in := a.dense(x)
	if a.err != nil {
		return a.fail()
	}
	c := a.call(k).Out(y).In(in)
	p.attributes(c)
	a.launch(c)
	if a.grad {
		deriv := avgPoolDeriv
		if k == avgPoolGradKernel {
			deriv = avgPoolGradDeriv
		}
		n := a.node(deriv, x)
		n.Any = p
		a.attach(n, y)
	}
	return a.done(y)
}

func avgPoolDeriv(d *core.Derivation) {
	p := d.Node.Any.(*pooling)
	d.Set(0, linearPool("avg_pool_grad", avgPoolGradKernel, d.Grad(), p, p.in))
}

func avgPoolGradDeriv(d *core.Derivation) {
	p := d.Node.Any.(*pooling)
	d.Set(0, linearPool("avg_pool", avgPoolKernel, d.Grad(), p, p.out))
}
