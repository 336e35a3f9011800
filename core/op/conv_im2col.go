package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// PatchOptions are the options of [Im2Col] and [Col2Im]. Lists have two entries, or one for both dimensions.
type PatchOptions struct {
	Dilation []int // distance of the elements of a patch, 1
	Padding  []int // zeros around the image, 0
	Stride   []int // distance of the patches, 1
}

// patches says where the patches of images of sizes in lie: out of them along each dimension.
type patches struct {
	in, out, kernel, stride, padding, dilation []int
}

// Im2Col returns the patches of images x, [N, C, H, W] or [C, H, W], as columns: [N, C*KH*KW, L] or [C*KH*KW, L].
// PyTorch has it as nn.functional.unfold.
func Im2Col(x *core.Tensor, kernel []int, o PatchOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "im2col", x, kernel, o)
	}
	op := begin("im2col", &x)
	op.tensors(x)
	op.inexact("the input", x)
	op.poolInput(2, x)
	p := &patches{}
	if op.err == nil {
		p.in = slices.Clone(x.Shape()[x.Dim()-2:])
	}
	op.patches(p, kernel, o)
	if op.err != nil {
		return op.fail()
	}
	if x.DType().IsComplex() {
		return op.compose(func() *core.Tensor { return Complex(Im2Col(Real(x), kernel, o), Im2Col(Imag(x), kernel, o)) })
	}
	return batched("im2col", 2, x, func(x *core.Tensor) *core.Tensor { return p.columns("im2col", x) })
}

// Col2Im returns images of the given size made of columns x, [N, C*KH*KW, L] or [C*KH*KW, L]: the sum of all patches,
// each in its place, [N, C, H, W] or [C, H, W]. PyTorch has it as nn.functional.fold.
func Col2Im(x *core.Tensor, size, kernel []int, o PatchOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "col2im", x, size, kernel, o)
	}
	op := begin("col2im", &x)
	op.tensors(x)
	op.inexact("the input", x)
	op.poolInput(1, x)
	p := &patches{in: op.spatial("output_size", size, 2, 1, 1)}
	op.patches(p, kernel, o)
	if op.err != nil {
		return op.fail()
	}
	if taps, places := p.kernel[0]*p.kernel[1], p.out[0]*p.out[1]; x.Size(-2)%taps != 0 || x.Size(-1) != places {
		op.failf(core.ShapeError, "columns have shape %v, want [N, C*%d, %d] for images of %v", x.Shape(), taps, places, p.in)
		return op.fail()
	}
	if x.DType().IsComplex() {
		return op.compose(func() *core.Tensor {
			return Complex(Col2Im(Real(x), size, kernel, o), Col2Im(Imag(x), size, kernel, o))
		})
	}
	return batched("col2im", 1, x, func(x *core.Tensor) *core.Tensor { return p.images("col2im", x) })
}

func (op *opContext) patches(p *patches, kernel []int, o PatchOptions) {
	if len(kernel) == 0 {
		op.failf(core.ValueError, "kernel_size is missing, want 1 or 2 entries")
	}
	p.kernel, p.stride = op.spatial("kernel_size", kernel, 2, 1, 1), op.spatial("stride", o.Stride, 2, 1, 1)
	p.padding, p.dilation = op.spatial("padding", o.Padding, 2, 0, 0), op.spatial("dilation", o.Dilation, 2, 1, 1)
	if op.err != nil {
		return
	}
	p.out = make([]int, 2)
	for i, n := range p.in {
		room := n + 2*p.padding[i] - p.dilation[i]*(p.kernel[i]-1) - 1
		if room < 0 {
			op.failf(core.ShapeError, "patches of %v with dilation %v do not fit images of %v with padding %v", p.kernel, p.dilation, p.in, p.padding)
			return
		}
		p.out[i] = room/p.stride[i] + 1
	}
}

func (p *patches) columns(name string, x *core.Tensor) *core.Tensor {
	return p.apply(name, contract.Im2Col, x, im2colDeriv,
		func(x *core.Tensor) []int {
			return []int{x.Size(0), x.Size(1) * p.kernel[0] * p.kernel[1], p.out[0] * p.out[1]}
		})
}

func (p *patches) images(name string, x *core.Tensor) *core.Tensor {
	return p.apply(name, contract.Col2Im, x, col2imDeriv,
		func(x *core.Tensor) []int {
			return []int{x.Size(0), x.Size(1) / (p.kernel[0] * p.kernel[1]), p.in[0], p.in[1]}
		})
}

func (p *patches) apply(name string, k core.KernelID, x *core.Tensor, deriv core.Deriv, shape func(x *core.Tensor) []int) *core.Tensor {
	op := begin(name).with(x)
	if op.err != nil {
		return op.fail()
	}
	y := op.out(x.DType(), shape(x))
	in := op.dense(x)
	if op.err != nil {
		return op.fail()
	}
	op.launch(contract.SetPatches(op.call(k).Out(y).In(in), p.kernel, p.stride, p.padding, p.dilation, p.out))
	if op.grad {
		n := op.node(deriv, x)
		n.Any = p
		op.attach(n, y)
	}
	return op.done(y)
}

func im2colDeriv(ctx *core.BackwardContext) {
	ctx.Set(0, ctx.Node.Any.(*patches).images("col2im", ctx.Grad()))
}

func col2imDeriv(ctx *core.BackwardContext) {
	ctx.Set(0, ctx.Node.Any.(*patches).columns("im2col", ctx.Grad()))
}

func init() {
	args := []Arg{
		{Name: "kernel_size"}, {Name: "dilation", Field: "Dilation", Default: 1},
		{Name: "padding", Field: "Padding", Default: 0}, {Name: "stride", Field: "Stride", Default: 1},
	}
	register("conv",
		Row{
			Name:   "im2col",
			Doc:    "The patches of images as columns: [N, C, H, W] to [N, C*KH*KW, L].",
			Func:   Im2Col,
			Args:   append([]Arg{{Name: "input"}}, args...),
			Memory: true,
			Samples: []Sample{
				{Args: []any{Shaped(2, 2, 4, 5), []int{2, 3}, PatchOptions{}}},
				{Name: "options", Args: []any{Shaped(1, 2, 5, 6), []int{3, 2}, PatchOptions{Stride: []int{2, 3}, Padding: []int{1, 2}, Dilation: []int{1, 2}}}},
				{Name: "no batch", Args: []any{Shaped(2, 3, 3), []int{2}, PatchOptions{Stride: []int{2}}}},
			},
		},
		Row{
			Name:   "col2im",
			Doc:    "Images as the sum of patches given as columns: [N, C*KH*KW, L] to [N, C, H, W].",
			Func:   Col2Im,
			Args:   append([]Arg{{Name: "input"}, {Name: "output_size"}}, args...),
			Memory: true,
			Samples: []Sample{
				{Args: []any{Shaped(2, 8, 12), []int{4, 5}, []int{2}, PatchOptions{}}},
				{Name: "options", Args: []any{Shaped(1, 6, 9), []int{5, 6}, []int{3, 2}, PatchOptions{Stride: []int{2, 3}, Padding: []int{1, 2}, Dilation: []int{1, 2}}}},
				{Name: "no batch", Args: []any{Shaped(4, 4), []int{4, 4}, []int{2}, PatchOptions{Stride: []int{2}}}},
			},
		},
	)
}
