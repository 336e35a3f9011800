package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
)

// ConvOptions are the options of a convolution. Lists have one entry for each spatial dimension, or a single one for all
// of them, or none for the default.
type ConvOptions struct {
	Stride   []int // 1
	Padding  []int // zeros added on both sides, 0
	Dilation []int // distance of the kernel's taps, 1
	Groups   int   // 1
	Same     bool  // pad so that the output is as large as the input; the stride must be 1 and Padding absent
}

// Conv1d returns the cross-correlation of x with the weight w plus the bias b, which may be nil.
// x is [N, C, L] or [C, L], w [O, C/groups, K], b [O]; the result [N, O, L'] or [O, L'].
func Conv1d(x, w, b *core.Tensor, o ConvOptions) *core.Tensor {
	if parts := distributed(x, w, b); parts != nil {
		return handOn(parts, "conv1d", x, w, b, o)
	}
	return conv("conv1d", 1, x, w, b, o)
}

// Conv2d returns the cross-correlation of x with the weight w plus the bias b, which may be nil.
// x is [N, C, H, W] or [C, H, W], w [O, C/groups, KH, KW], b [O]; the result [N, O, H', W'] or [O, H', W'].
func Conv2d(x, w, b *core.Tensor, o ConvOptions) *core.Tensor {
	if parts := distributed(x, w, b); parts != nil {
		return handOn(parts, "conv2d", x, w, b, o)
	}
	return conv("conv2d", 2, x, w, b, o)
}

// Conv3d returns the cross-correlation of x with the weight w plus the bias b, which may be nil.
// x is [N, C, D, H, W] or [C, D, H, W], w [O, C/groups, KD, KH, KW], b [O].
func Conv3d(x, w, b *core.Tensor, o ConvOptions) *core.Tensor {
	if parts := distributed(x, w, b); parts != nil {
		return handOn(parts, "conv3d", x, w, b, o)
	}
	return conv("conv3d", 3, x, w, b, o)
}

// ConvTransposeOptions are the options of a transposed convolution; lists as in [ConvOptions].
type ConvTransposeOptions struct {
	Stride        []int // 1
	Padding       []int // taken off both sides, 0
	OutputPadding []int // added behind, less than the stride or the dilation, 0
	Groups        int   // 1
	Dilation      []int // 1
}

// ConvTranspose1d returns the transpose of [Conv1d] applied to x, plus the bias b, which may be nil.
// x is [N, C, L] or [C, L], w [C, O/groups, K], b [O].
func ConvTranspose1d(x, w, b *core.Tensor, o ConvTransposeOptions) *core.Tensor {
	if parts := distributed(x, w, b); parts != nil {
		return handOn(parts, "conv_transpose1d", x, w, b, o)
	}
	return convTranspose("conv_transpose1d", 1, x, w, b, o)
}

// ConvTranspose2d returns the transpose of [Conv2d] applied to x, plus the bias b, which may be nil.
// x is [N, C, H, W] or [C, H, W], w [C, O/groups, KH, KW], b [O].
func ConvTranspose2d(x, w, b *core.Tensor, o ConvTransposeOptions) *core.Tensor {
	if parts := distributed(x, w, b); parts != nil {
		return handOn(parts, "conv_transpose2d", x, w, b, o)
	}
	return convTranspose("conv_transpose2d", 2, x, w, b, o)
}

// ConvTranspose3d returns the transpose of [Conv3d] applied to x, plus the bias b, which may be nil.
// x is [N, C, D, H, W] or [C, D, H, W], w [C, O/groups, KD, KH, KW], b [O].
func ConvTranspose3d(x, w, b *core.Tensor, o ConvTransposeOptions) *core.Tensor {
	if parts := distributed(x, w, b); parts != nil {
		return handOn(parts, "conv_transpose3d", x, w, b, o)
	}
	return convTranspose("conv_transpose3d", 3, x, w, b, o)
}

func conv(name string, nd int, x, w, b *core.Tensor, o ConvOptions) *core.Tensor {
	op := begin(name, &x, &w, optional(&b))
	p := op.convOperands(nd, x, w, b, o)
	if op.err == nil && (w.Size(0)%p.groups != 0 || x.Size(-nd-1) != w.Size(1)*p.groups) {
		op.failf(core.ShapeError, "input of shape %v has %d channels, weight of shape %v in %d groups wants %d and a multiple of %d outputs",
			x.Shape(), x.Size(-nd-1), w.Shape(), p.groups, w.Size(1)*p.groups, p.groups)
	}
	if op.err == nil && b != nil && !slices.Equal(b.Shape(), w.Shape()[:1]) {
		op.failf(core.ShapeError, "bias has shape %v, want [%d]", b.Shape(), w.Size(0))
	}
	if op.err != nil {
		return op.fail()
	}
	out := make([]int, nd)
	for i := range nd {
		in, reach := x.Size(i-nd), p.dilation[i]*(w.Size(2+i)-1)+1
		if o.Same {
			if p.stride[i] != 1 || len(o.Padding) > 0 {
				op.failf(core.ValueError, "padding to the same size needs stride 1 and no other padding, got stride %v and padding %v", p.stride, o.Padding)
				return op.fail()
			}
			p.padding[i], out[i] = (reach-1)/2, in
			continue
		}
		if in+2*p.padding[i] < reach {
			op.failf(core.ShapeError, "kernel reaches over %d of %d padded elements of dimension %d: input %v, weight %v, padding %v, dilation %v",
				reach, in+2*p.padding[i], i-nd, x.Shape(), w.Shape(), p.padding, p.dilation)
			return op.fail()
		}
		out[i] = (in+2*p.padding[i]-reach)/p.stride[i] + 1
		p.simplify(i, out[i], w.Size(2+i))
	}
	if x.DType().IsComplex() {
		return op.compose(func() *core.Tensor {
			return complexConv(nd, x, w, b, false, func(x, w, b *core.Tensor) *core.Tensor { return conv(name, nd, x, w, b, o) })
		})
	}
	return op.passOn(batched(name, nd, x, func(x *core.Tensor) *core.Tensor { return p.forward(name, x, w, b, out) }))
}

func convTranspose(name string, nd int, x, w, b *core.Tensor, o ConvTransposeOptions) *core.Tensor {
	op := begin(name, &x, &w, optional(&b))
	p := op.convOperands(nd, x, w, b, ConvOptions{Stride: o.Stride, Padding: o.Padding, Dilation: o.Dilation, Groups: o.Groups})
	extra := op.spatial("output_padding", o.OutputPadding, nd, 0, 0)
	if op.err == nil && (w.Size(0)%p.groups != 0 || x.Size(-nd-1) != w.Size(0)) {
		op.failf(core.ShapeError, "input of shape %v has %d channels, weight of shape %v wants %d, a multiple of %d groups",
			x.Shape(), x.Size(-nd-1), w.Shape(), w.Size(0), p.groups)
	}
	if op.err == nil && b != nil && (b.Dim() != 1 || b.Size(0) != w.Size(1)*p.groups) {
		op.failf(core.ShapeError, "bias has shape %v, want [%d]", b.Shape(), w.Size(1)*p.groups)
	}
	if op.err != nil {
		return op.fail()
	}
	out := make([]int, nd)
	for i := range nd {
		if extra[i] >= p.stride[i] && extra[i] >= p.dilation[i] {
			op.failf(core.ValueError, "output_padding must be smaller than the stride or the dilation, got %v with stride %v and dilation %v",
				extra, p.stride, p.dilation)
			return op.fail()
		}
		out[i] = (x.Size(i-nd)-1)*p.stride[i] - 2*p.padding[i] + p.dilation[i]*(w.Size(2+i)-1) + extra[i] + 1
		if out[i] <= 0 || x.Size(i-nd) == 0 {
			op.failf(core.ShapeError, "output would have size %d in dimension %d: input %v, weight %v, stride %v, padding %v",
				out[i], i-nd, x.Shape(), w.Shape(), p.stride, p.padding)
			return op.fail()
		}
		p.simplify(i, x.Size(i-nd), w.Size(2+i))
	}
	if x.DType().IsComplex() {
		return op.compose(func() *core.Tensor {
			return complexConv(nd, x, w, b, true, func(x, w, b *core.Tensor) *core.Tensor { return convTranspose(name, nd, x, w, b, o) })
		})
	}
	return op.passOn(batched(name, nd, x, func(x *core.Tensor) *core.Tensor { return p.inputGrad(name, x, w, b, out) }))
}

// simplify makes the stride and the dilation of dimension i 1 where they mean nothing, with one place of the kernel or a kernel
// of one element. Kernels go through them one by one.
func (p *convolution) simplify(i, places, taps int) {
	if places == 1 {
		p.stride[i] = 1
	}
	if taps == 1 {
		p.dilation[i] = 1
	}
}

// spatial returns an option of nd spatial dimensions: v, or its only entry for all of them, or the default.
func (op *opContext) spatial(what string, v []int, nd, missing, least int) []int {
	out := make([]int, nd)
	for i := range out {
		switch len(v) {
		case 0:
			out[i] = missing
		case 1:
			out[i] = v[0]
		case nd:
			out[i] = v[i]
		default:
			op.failf(core.ValueError, "%s has %d entries, want 1 or %d", what, len(v), nd)
			return out
		}
		if out[i] < least {
			op.failf(core.ValueError, "%s must be at least %d, got %v", what, least, v)
		} else if out[i] > math.MaxInt32 {
			op.failf(core.ValueError, "%s must be at most %d, got %v", what, math.MaxInt32, v)
		}
	}
	return out
}

// convOperands checks dimensions, dtypes and options, and returns the convolution that the options describe.
func (op *opContext) convOperands(nd int, x, w, b *core.Tensor, o ConvOptions) *convolution {
	op.tensors(x, w)
	op.inexact("the input", x)
	op.inexact("the weight", w)
	if op.err != nil {
		return nil
	}
	if d := x.Dim(); d != nd+2 && d != nd+1 {
		op.failf(core.ShapeError, "input has shape %v, want %d dimensions, or %d without a batch", x.Shape(), nd+2, nd+1)
	}
	if w.Dim() != nd+2 {
		op.failf(core.ShapeError, "weight has shape %v, want %d dimensions", w.Shape(), nd+2)
	} else if core.Numel(w.Shape()[2:]) == 0 {
		op.failf(core.ShapeError, "weight has an empty kernel, got shape %v", w.Shape())
	}
	if x.DType() != w.DType() && !op.rounds || b != nil && x.DType() != b.DType() {
		got := []core.DType{x.DType(), w.DType()}
		if b != nil {
			got = append(got, b.DType())
		}
		op.failf(core.DTypeError, "input, weight and bias must have one dtype, got %v", got)
	}
	if o.Groups < 0 {
		op.failf(core.ValueError, "groups must be positive, got %d", o.Groups)
	}
	return &convolution{
		stride:   op.spatial("stride", o.Stride, nd, 1, 1),
		padding:  op.spatial("padding", o.Padding, nd, 0, 0),
		dilation: op.spatial("dilation", o.Dilation, nd, 1, 1),
		groups:   max(o.Groups, 1),
	}
}

// batched applies fn, which wants a batch in front of a channel and nd spatial dimensions, to x with or without one.
func batched(name string, nd int, x *core.Tensor, fn func(x *core.Tensor) *core.Tensor) *core.Tensor {
	if x.Dim() != nd+1 {
		return fn(x)
	}
	return compose(name, func() *core.Tensor {
		y := fn(Reshape(x, append([]int{1}, x.Shape()...)...))
		if y.Err() != nil {
			return y
		}
		return Reshape(y, y.Shape()[1:]...)
	})
}

func init() {
	register("conv",
		convRow("conv1d", Conv1d, "x is [N, C, L] or [C, L], weight [O, C/groups, K].",
			Sample{Args: []any{Shaped(2, 3, 9), Shaped(4, 3, 3), Shaped(4), ConvOptions{}}},
			Sample{Name: "no batch, stride that does not divide", Args: []any{Shaped(2, 10), Shaped(3, 2, 4), nil, ConvOptions{Stride: []int{3}, Padding: []int{1}}}},
			Sample{Name: "groups and dilation", Args: []any{Shaped(1, 4, 11), Shaped(6, 2, 3), Shaped(6), ConvOptions{Groups: 2, Dilation: []int{2}, Padding: []int{3}}}},
			Sample{Name: "same, even kernel", Args: []any{Shaped(1, 2, 7), Shaped(2, 2, 4), nil, ConvOptions{Same: true}}},
		),
		convRow("conv2d", Conv2d, "x is [N, C, H, W] or [C, H, W], weight [O, C/groups, KH, KW].",
			Sample{Args: []any{Shaped(2, 3, 5, 6), Shaped(4, 3, 3, 3), Shaped(4), ConvOptions{Padding: []int{1}}}},
			Sample{Name: "stride 2 that does not divide", Args: []any{Shaped(1, 2, 7, 8), Shaped(3, 2, 3, 2), nil, ConvOptions{Stride: []int{2}}}},
			Sample{Name: "dilation, stride, groups", Args: []any{Shaped(1, 4, 9, 7), Shaped(2, 2, 2, 3), Shaped(2), ConvOptions{Stride: []int{2, 1}, Padding: []int{1, 2}, Dilation: []int{3, 2}, Groups: 2}}},
			Sample{Name: "depthwise, no batch", Args: []any{Shaped(3, 5, 5), Shaped(6, 1, 3, 3), Shaped(6), ConvOptions{Groups: 3}}},
			Sample{Name: "1x1", Args: []any{Shaped(2, 3, 2, 2), Shaped(2, 3, 1, 1), nil, ConvOptions{}}},
			Sample{Name: "same", Args: []any{Shaped(1, 2, 4, 5), Shaped(2, 2, 2, 3), nil, ConvOptions{Same: true}}},
			Sample{Name: "no images", Args: []any{Shaped(0, 2, 4, 4), Shaped(2, 2, 3, 3), Shaped(2), ConvOptions{}}},
		),
		convRow("conv3d", Conv3d, "x is [N, C, D, H, W] or [C, D, H, W], weight [O, C/groups, KD, KH, KW].",
			Sample{Args: []any{Shaped(1, 2, 3, 4, 4), Shaped(2, 2, 2, 3, 3), Shaped(2), ConvOptions{Padding: []int{1, 0, 1}}}},
			Sample{Name: "stride, groups, no batch", Args: []any{Shaped(2, 4, 5, 4), Shaped(4, 1, 2, 2, 3), nil, ConvOptions{Stride: []int{2, 3, 1}, Groups: 2}}},
		),
		convTransposeRow("conv_transpose1d", ConvTranspose1d, "x is [N, C, L] or [C, L], weight [C, O/groups, K].",
			Sample{Args: []any{Shaped(2, 3, 4), Shaped(3, 2, 3), Shaped(2), ConvTransposeOptions{}}},
			Sample{Name: "stride and output padding, no batch", Args: []any{Shaped(3, 4), Shaped(3, 2, 3), nil, ConvTransposeOptions{Stride: []int{3}, Padding: []int{1}, OutputPadding: []int{2}}}},
		),
		convTransposeRow("conv_transpose2d", ConvTranspose2d, "x is [N, C, H, W] or [C, H, W], weight [C, O/groups, KH, KW].",
			Sample{Args: []any{Shaped(2, 3, 3, 4), Shaped(3, 2, 3, 2), Shaped(2), ConvTransposeOptions{Stride: []int{2}}}},
			Sample{Name: "groups, dilation, output padding", Args: []any{Shaped(1, 4, 3, 4), Shaped(4, 2, 2, 3), Shaped(4), ConvTransposeOptions{Groups: 2, Stride: []int{2, 1}, Dilation: []int{3, 2}, Padding: []int{1}, OutputPadding: []int{2, 1}}}},
			Sample{Name: "upsampling by 2, no batch", Args: []any{Shaped(2, 3, 3), Shaped(2, 1, 2, 2), nil, ConvTransposeOptions{Stride: []int{2}}}},
			Sample{Name: "stride beyond the kernel", Args: []any{Shaped(1, 2, 3, 2), Shaped(2, 2, 1, 2), Shaped(2), ConvTransposeOptions{Stride: []int{3}}}},
		),
		convTransposeRow("conv_transpose3d", ConvTranspose3d, "x is [N, C, D, H, W] or [C, D, H, W], weight [C, O/groups, KD, KH, KW].",
			Sample{Args: []any{Shaped(1, 2, 2, 3, 2), Shaped(2, 2, 2, 3, 2), Shaped(2), ConvTransposeOptions{Stride: []int{2, 1, 2}, Padding: []int{0, 1, 0}}}},
		),
	)
}

func convRow(name string, fn any, shapes string, samples ...Sample) Row {
	return Row{
		Name: name,
		Doc:  "Cross-correlation of x with weight over its spatial dimensions, plus bias.\n" + shapes,
		Func: fn,
		Args: []Arg{
			{Name: "input"}, {Name: "weight"}, {Name: "bias", Optional: true, Doc: "[O]"},
			{Name: "stride", Field: "Stride", Default: 1},
			{Name: "padding", Field: "Padding", Default: 0, Doc: "zeros on both sides"},
			{Name: "dilation", Field: "Dilation", Default: 1},
			{Name: "groups", Field: "Groups", Default: 1},
			{Name: "same", Field: "Same", Default: false, Doc: "pad to the input's size, as padding=\"same\""},
		},
		Samples: samples,
	}
}

func convTransposeRow(name string, fn any, shapes string, samples ...Sample) Row {
	return Row{
		Name: name,
		Doc:  "Transpose of the convolution with weight, applied to x, plus bias.\n" + shapes,
		Func: fn,
		Args: []Arg{
			{Name: "input"}, {Name: "weight"}, {Name: "bias", Optional: true, Doc: "[O]"},
			{Name: "stride", Field: "Stride", Default: 1},
			{Name: "padding", Field: "Padding", Default: 0, Doc: "taken off both sides"},
			{Name: "output_padding", Field: "OutputPadding", Default: 0, Doc: "added behind"},
			{Name: "groups", Field: "Groups", Default: 1},
			{Name: "dilation", Field: "Dilation", Default: 1},
		},
		Samples: samples,
	}
}
