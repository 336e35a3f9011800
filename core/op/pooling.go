package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
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
	if p.adaptive {
		contract.SetPool(c, len(p.in), nil)
	} else {
		contract.SetPool(c, len(p.in), &contract.PoolWindows[int]{Kernel: p.kernel, Stride: p.stride, Padding: p.padding, Dilation: p.dilation,
			IncludePad: !p.excludePad, Divisor: p.divisor})
	}
	c.Work *= 2
}

// resize returns the shape of t with the last sizes replaced.
func resize(t *core.Tensor, sizes []int) []int {
	return append(slices.Clone(t.Shape()[:t.Dim()-len(sizes)]), sizes...)
}

// windows checks the arguments of a pooling and returns it.
func (op *opContext) windows(nd int, x *core.Tensor, kernel, stride, padding, dilation []int, ceil bool) *pooling {
	op.poolInput(nd, x)
	if len(kernel) == 0 {
		op.failf(core.ValueError, "kernel_size is missing, want 1 or %d entries", nd)
	}
	if len(stride) == 0 {
		stride = kernel
	}
	p := &pooling{
		kernel:   op.spatial("kernel_size", kernel, nd, 1, 1),
		stride:   op.spatial("stride", stride, nd, 1, 1),
		padding:  op.spatial("padding", padding, nd, 0, 0),
		dilation: op.spatial("dilation", dilation, nd, 1, 1),
	}
	if op.err != nil {
		return p
	}
	p.in = x.Shape()[x.Dim()-nd:]
	p.out = make([]int, nd)
	for i, in := range p.in {
		reach, pad, step := p.dilation[i]*(p.kernel[i]-1)+1, p.padding[i], p.stride[i]
		if pad > reach/2 {
			op.failf(core.ValueError, "padding must be at most half of the kernel, got padding %v, kernel_size %v", p.padding, p.kernel)
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
			op.failf(core.ShapeError, "windows of %v do not fit the input of shape %v with padding %v", p.kernel, x.Shape(), p.padding)
			return p
		}
	}
	return p
}

func (op *opContext) poolInput(nd int, x *core.Tensor) {
	if op.err == nil && x.Dim() != nd+1 && x.Dim() != nd+2 {
		op.failf(core.ShapeError, "input has shape %v, want %d dimensions, or %d without a batch", x.Shape(), nd+2, nd+1)
	}
}

// adaptiveWindows is windows for a pooling to the given sizes, of which -1 means the input's.
func (op *opContext) adaptiveWindows(nd int, x *core.Tensor, sizes []int) *pooling {
	op.poolInput(nd, x)
	if len(sizes) == 0 {
		op.failf(core.ValueError, "output_size is missing, want 1 or %d entries", nd)
	}
	p := &pooling{adaptive: true, out: op.spatial("output_size", sizes, nd, 1, -1)}
	if op.err != nil {
		return p
	}
	p.in = x.Shape()[x.Dim()-nd:]
	for i, in := range p.in {
		if p.out[i] < 0 {
			p.out[i] = in
		}
		if in == 0 {
			op.failf(core.ShapeError, "input of shape %v has nothing to pool", x.Shape())
		}
	}
	return p
}

// maxPool applies p. The positions of the maxima are returned if wanted.
func (op *opContext) maxPool(x *core.Tensor, p *pooling, indices bool) (y, index *core.Tensor) {
	if op.err == nil && x.DType() == core.Bool {
		op.failf(core.DTypeError, "no maximum of bool")
	}
	if op.err != nil {
		return op.fail(), op.fail()
	}
	shape := resize(x, p.out)
	y = op.out(x.DType(), shape)
	if indices {
		index = op.out(core.Int64, shape)
	} else if op.grad {
		index = op.temp(core.Int64, shape...)
	}
	in := op.dense(x)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	c := op.call(contract.MaxPool).Out(y).In(in)
	if index != nil {
		c.Out(index)
	}
	p.attributes(c)
	op.launch(c)
	if op.grad {
		n := op.node(maxPoolDeriv, x).Save(index)
		n.Any = p
		op.attach(n, y)
	}
	if !indices {
		return op.done(y), nil
	}
	return op.done2(y, index)
}

func maxPoolDeriv(ctx *core.BackwardContext) {
	p := ctx.Node.Any.(*pooling)
	ctx.Set(0, planeScatter("max_pool_grad", ctx.Grad(), ctx.Saved(0), p.in, true, p))
}

// planeScatter returns zeros with last sizes `sizes` to which the elements of x are added at the positions in index; or
// in which, if add is false, the last one of a position stays. p is the max pooling that made the index, or nil.
func planeScatter(name string, x, index *core.Tensor, sizes []int, add bool, p *pooling) *core.Tensor {
	op := begin(name).with(x, index)
	if op.err != nil {
		return op.fail()
	}
	out := op.out(x.DType(), resize(x, sizes))
	in, at := op.dense(x), op.dense(index)
	if op.err != nil {
		return op.fail()
	}
	c := contract.PlaneScatterAttrs{Spatial: len(sizes), Add: add}.AddTo(op.call(contract.PlaneScatter).Out(out).In(in).In(at))
	if p != nil {
		p.attributes(c)
	}
	op.launch(c)
	if op.grad {
		n := op.node(planeScatterDeriv, x).Save(index)
		n.Ints = []int{len(sizes)}
		op.attach(n, out)
	}
	return op.done(out)
}

func planeScatterDeriv(ctx *core.BackwardContext) {
	ctx.Set(0, planeGather(ctx.Grad(), ctx.Saved(0), ctx.Node.Ints[0]))
}

// planeGather returns the elements of x at the positions in index, within planes of the last nd dimensions.
func planeGather(x, index *core.Tensor, nd int) *core.Tensor {
	op := begin("max_pool_gather").with(x, index)
	if op.err != nil {
		return op.fail()
	}
	out := op.out(x.DType(), index.Shape())
	in, at := op.dense(x), op.dense(index)
	if op.err != nil {
		return op.fail()
	}
	op.launch(op.call(contract.PlaneGather).Out(out).In(in).In(at).Int(int64(nd)))
	if op.grad {
		n := op.node(planeGatherDeriv, x).Save(index)
		n.Ints = slices.Clone(x.Shape()[x.Dim()-nd:])
		op.attach(n, out)
	}
	return op.done(out)
}

func planeGatherDeriv(ctx *core.BackwardContext) {
	ctx.Set(0, planeScatter("max_pool_grad", ctx.Grad(), ctx.Saved(0), ctx.Node.Ints, true, nil))
}

// avgPool applies p.
func (op *opContext) avgPool(x *core.Tensor, p *pooling) *core.Tensor {
	if op.err == nil {
		op.inexact("the input", x)
	}
	if op.err != nil {
		return op.fail()
	}
	if x.DType().IsComplex() {
		return op.compose(func() *core.Tensor {
			parts := Movedim(ViewAsReal(x), []int{-1}, []int{0})
			return ViewAsComplex(paired(Movedim(linearPool(op.name, contract.AvgPool, parts, p, p.out), []int{0}, []int{-1})))
		})
	}
	return op.passOn(linearPool(op.name, contract.AvgPool, x, p, p.out))
}

// linearPool applies the average of p, or its transpose, which are each other's derivatives.
func linearPool(name string, k core.KernelID, x *core.Tensor, p *pooling, sizes []int) *core.Tensor {
	deriv := avgPoolDeriv
	if k == contract.AvgPoolGrad {
		deriv = avgPoolGradDeriv
	}
	return linearResize(name, k, x, sizes, p, deriv, p.attributes)
}

// linearResize applies a kernel that is linear in x and gives it other spatial sizes. attributes adds the kernel's to its call; the
// derivative finds options in its node.
func linearResize(name string, k core.KernelID, x *core.Tensor, sizes []int, options any, deriv func(*core.BackwardContext),
	attributes func(*core.Call)) *core.Tensor {
	op := begin(name).with(x)
	if op.err != nil {
		return op.fail()
	}
	y := op.out(x.DType(), resize(x, sizes))
	in := op.dense(x)
	if op.err != nil {
		return op.fail()
	}
	c := op.call(k).Out(y).In(in)
	attributes(c)
	op.launch(c)
	if op.grad {
		n := op.node(deriv, x)
		n.Any = options
		op.attach(n, y)
	}
	return op.done(y)
}

func avgPoolDeriv(ctx *core.BackwardContext) {
	p := ctx.Node.Any.(*pooling)
	ctx.Set(0, linearPool("avg_pool_grad", contract.AvgPoolGrad, ctx.Grad(), p, p.in))
}

func avgPoolGradDeriv(ctx *core.BackwardContext) {
	p := ctx.Node.Any.(*pooling)
	ctx.Set(0, linearPool("avg_pool", contract.AvgPool, ctx.Grad(), p, p.out))
}
