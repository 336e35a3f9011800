package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
)

// AvgPoolOptions are the options of an average pooling. Lists have one entry for each spatial dimension, or a single one
// for all of them, or none for the default.
type AvgPoolOptions struct {
	Stride          []int // the kernel's size
	Padding         []int // zeros around the input, 0
	CeilMode        bool  // also make a last window that reaches over the end
	ExcludePad      bool  // divide by the number of elements in the window, not counting the padding
	DivisorOverride int   // divide by this, if it is not 0
}

// AvgPool1d returns the average of each window of x, [N, C, L] or [C, L].
func AvgPool1d(x *core.Tensor, kernel []int, o AvgPoolOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "avg_pool1d", x, kernel, o)
	}
	return avgPool("avg_pool1d", 1, x, kernel, o)
}

// AvgPool2d returns the average of each window of x, [N, C, H, W] or [C, H, W].
func AvgPool2d(x *core.Tensor, kernel []int, o AvgPoolOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "avg_pool2d", x, kernel, o)
	}
	return avgPool("avg_pool2d", 2, x, kernel, o)
}

// AvgPool3d returns the average of each window of x, [N, C, D, H, W] or [C, D, H, W].
func AvgPool3d(x *core.Tensor, kernel []int, o AvgPoolOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "avg_pool3d", x, kernel, o)
	}
	return avgPool("avg_pool3d", 3, x, kernel, o)
}

func avgPool(name string, nd int, x *core.Tensor, kernel []int, o AvgPoolOptions) *core.Tensor {
	switch d := o.DivisorOverride; {
	case max(d, -d-1) > math.MaxInt32:
		return core.ErrorTensor(core.Errorf(core.ValueError, name, "divisor_override must fit into 32 bits, got %d", d))
	case d < 0:
		o.DivisorOverride = -d
		return compose(name, func() *core.Tensor { return Neg(avgPool(name, nd, x, kernel, o)) })
	}
	op := begin(name, &x)
	p := op.windows(nd, x, kernel, o.Stride, o.Padding, nil, o.CeilMode)
	p.excludePad, p.divisor = o.ExcludePad, o.DivisorOverride
	return op.avgPool(x, p)
}

// AdaptiveAvgPool1d returns the average of each of size windows that cover x, [N, C, L] or [C, L]. A size of -1 is
// the input's.
func AdaptiveAvgPool1d(x *core.Tensor, size []int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "adaptive_avg_pool1d", x, size)
	}
	op := begin("adaptive_avg_pool1d", &x)
	return op.adaptiveAvgPool(1, x, size)
}

// AdaptiveAvgPool2d returns the average of each of size windows that cover x, [N, C, H, W] or [C, H, W]. A size of -1 is
// the input's.
func AdaptiveAvgPool2d(x *core.Tensor, size []int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "adaptive_avg_pool2d", x, size)
	}
	op := begin("adaptive_avg_pool2d", &x)
	return op.adaptiveAvgPool(2, x, size)
}

// AdaptiveAvgPool3d returns the average of each of size windows that cover x, [N, C, D, H, W] or [C, D, H, W]. A size of -1 is
// the input's.
func AdaptiveAvgPool3d(x *core.Tensor, size []int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "adaptive_avg_pool3d", x, size)
	}
	op := begin("adaptive_avg_pool3d", &x)
	return op.adaptiveAvgPool(3, x, size)
}

// adaptiveAvgPool applies windows that cover x. One window of everything is a mean, whose kernels are made for many elements.
func (op *opContext) adaptiveAvgPool(nd int, x *core.Tensor, size []int) *core.Tensor {
	p := op.adaptiveWindows(nd, x, size)
	if op.err != nil || !x.DType().IsFloat() || slices.ContainsFunc(p.out, func(n int) bool { return n != 1 }) {
		return op.avgPool(x, p)
	}
	dims := make([]int, nd)
	for i := range dims {
		dims[i] = i - nd
	}
	return op.compose(func() *core.Tensor { return Mean(x, dims, true) })
}

func init() {
	rows := []Row{}
	for nd, f := range []struct{ avg, adaptive any }{{AvgPool1d, AdaptiveAvgPool1d}, {AvgPool2d, AdaptiveAvgPool2d}, {AvgPool3d, AdaptiveAvgPool3d}} {
		rows = append(rows, Row{
			Name: poolNames("avg_pool")[nd],
			Doc:  "Average of each window of the input, " + poolShapes[nd] + ".",
			Func: f.avg,
			Args: []Arg{
				{Name: "input"}, {Name: "kernel_size"}, {Name: "stride", Field: "Stride", Optional: true, Doc: "the kernel's size if absent"},
				{Name: "padding", Field: "Padding", Default: 0}, {Name: "ceil_mode", Field: "CeilMode", Default: false},
				{Name: "exclude_pad", Field: "ExcludePad", Default: false, Doc: "the opposite of count_include_pad"},
				{Name: "divisor_override", Field: "DivisorOverride", Default: 0, Doc: "0 for none"},
			},
			Samples: avgPoolSamples()[nd],
		}, Row{
			Name:    poolNames("adaptive_avg_pool")[nd],
			Doc:     "Average of each of output_size windows that cover the input, " + poolShapes[nd] + ".",
			Func:    f.adaptive,
			Args:    []Arg{{Name: "input"}, {Name: "output_size", Doc: "-1 for the input's"}},
			Samples: adaptivePoolSamples(Shaped)[nd],
		})
	}
	register("pooling", rows...)
}

// poolShapes are the shapes of inputs of the 1-, 2- and 3-dimensional variants.
var poolShapes = [3]string{"[N, C, L] or [C, L]", "[N, C, H, W] or [C, H, W]", "[N, C, D, H, W] or [C, D, H, W]"}

// poolNames returns the names of the 1-, 2- and 3-dimensional variants.
func poolNames(name string) [3]string { return [3]string{name + "1d", name + "2d", name + "3d"} }

func avgPoolSamples() [3][]Sample {
	return [3][]Sample{
		{
			{Args: []any{Shaped(2, 3, 8), []int{2}, AvgPoolOptions{}}},
			{Name: "overlapping, padded, no batch", Args: []any{Shaped(2, 7), []int{3}, AvgPoolOptions{Stride: []int{2}, Padding: []int{1}, CeilMode: true}}},
		},
		{
			{Args: []any{Shaped(2, 2, 5, 6), []int{2}, AvgPoolOptions{}}},
			{Name: "overlapping, ceil", Args: []any{Shaped(1, 2, 6, 7), []int{3}, AvgPoolOptions{Stride: []int{2}, CeilMode: true}}},
			{Name: "padding not counted", Args: []any{Shaped(1, 2, 5, 4), []int{3, 2}, AvgPoolOptions{Stride: []int{1, 3}, Padding: []int{1}, ExcludePad: true, CeilMode: true}}},
			{Name: "divisor, no batch", Args: []any{Shaped(2, 4, 4), []int{2, 3}, AvgPoolOptions{Stride: []int{1}, Padding: []int{1, 0}, DivisorOverride: 5}}},
			{Name: "no images", Args: []any{Shaped(0, 2, 4, 4), []int{2}, AvgPoolOptions{}}},
		},
		{
			{Args: []any{Shaped(1, 2, 4, 3, 4), []int{2}, AvgPoolOptions{Stride: []int{1, 1, 2}, Padding: []int{1, 0, 1}}}},
		},
	}
}

func adaptivePoolSamples(shaped func(shape ...int) T) [3][]Sample {
	return [3][]Sample{
		{
			{Args: []any{shaped(2, 2, 7), []int{3}}},
			{Name: "no batch, larger", Args: []any{shaped(2, 3), []int{5}}},
		},
		{
			{Args: []any{shaped(1, 2, 7, 5), []int{3, 2}}},
			{Name: "to one", Args: []any{shaped(2, 2, 3, 4), []int{1}}},
			{Name: "as the input, no batch", Args: []any{shaped(2, 3, 4), []int{-1, 3}}},
		},
		{
			{Args: []any{shaped(1, 2, 3, 5, 4), []int{2, 3, 4}}},
		},
	}
}
