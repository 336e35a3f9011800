package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// MaxPoolOptions are the options of a maximum pooling. Lists have one entry for each spatial dimension, or a single one
// for all of them, or none for the default.
type MaxPoolOptions struct {
	Stride   []int // the kernel's size
	Padding  []int // positions around the input that never are the maximum, 0
	Dilation []int // distance of the elements of a window, 1
	CeilMode bool  // also make a last window that reaches over the end
}

// MaxPool1d returns the largest element of each window of x, [N, C, L] or [C, L].
func MaxPool1d(x *core.Tensor, kernel []int, o MaxPoolOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "max_pool1d", x, kernel, o)
	}
	y, _ := maxPool("max_pool1d", 1, x, kernel, o, false)
	return y
}

// MaxPool1dWithIndices is [MaxPool1d] that also returns the positions of the maxima in their planes, int64.
func MaxPool1dWithIndices(x *core.Tensor, kernel []int, o MaxPoolOptions) (y, indices *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "max_pool1d_with_indices", x, kernel, o)
	}
	return maxPool("max_pool1d", 1, x, kernel, o, true)
}

// MaxPool2d returns the largest element of each window of x, [N, C, H, W] or [C, H, W].
func MaxPool2d(x *core.Tensor, kernel []int, o MaxPoolOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "max_pool2d", x, kernel, o)
	}
	y, _ := maxPool("max_pool2d", 2, x, kernel, o, false)
	return y
}

// MaxPool2dWithIndices is [MaxPool2d] that also returns the positions of the maxima in their planes, int64.
func MaxPool2dWithIndices(x *core.Tensor, kernel []int, o MaxPoolOptions) (y, indices *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "max_pool2d_with_indices", x, kernel, o)
	}
	return maxPool("max_pool2d", 2, x, kernel, o, true)
}

// MaxPool3d returns the largest element of each window of x, [N, C, D, H, W] or [C, D, H, W].
func MaxPool3d(x *core.Tensor, kernel []int, o MaxPoolOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "max_pool3d", x, kernel, o)
	}
	y, _ := maxPool("max_pool3d", 3, x, kernel, o, false)
	return y
}

// MaxPool3dWithIndices is [MaxPool3d] that also returns the positions of the maxima in their planes, int64.
func MaxPool3dWithIndices(x *core.Tensor, kernel []int, o MaxPoolOptions) (y, indices *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "max_pool3d_with_indices", x, kernel, o)
	}
	return maxPool("max_pool3d", 3, x, kernel, o, true)
}

func maxPool(name string, nd int, x *core.Tensor, kernel []int, o MaxPoolOptions, indices bool) (*core.Tensor, *core.Tensor) {
	op := begin(name, &x)
	return op.maxPool(x, op.windows(nd, x, kernel, o.Stride, o.Padding, o.Dilation, o.CeilMode), indices)
}

// AdaptiveMaxPool1d returns the largest element of each of size windows that cover x, [N, C, L] or [C, L]. A size of -1
// is the input's.
func AdaptiveMaxPool1d(x *core.Tensor, size []int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "adaptive_max_pool1d", x, size)
	}
	y, _ := adaptiveMaxPool("adaptive_max_pool1d", 1, x, size, false)
	return y
}

// AdaptiveMaxPool1dWithIndices is [AdaptiveMaxPool1d] that also returns the positions of the maxima in their planes.
func AdaptiveMaxPool1dWithIndices(x *core.Tensor, size []int) (y, indices *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "adaptive_max_pool1d_with_indices", x, size)
	}
	return adaptiveMaxPool("adaptive_max_pool1d", 1, x, size, true)
}

// AdaptiveMaxPool2d returns the largest element of each of size windows that cover x, [N, C, H, W] or [C, H, W]. A size of -1
// is the input's.
func AdaptiveMaxPool2d(x *core.Tensor, size []int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "adaptive_max_pool2d", x, size)
	}
	y, _ := adaptiveMaxPool("adaptive_max_pool2d", 2, x, size, false)
	return y
}

// AdaptiveMaxPool2dWithIndices is [AdaptiveMaxPool2d] that also returns the positions of the maxima in their planes.
func AdaptiveMaxPool2dWithIndices(x *core.Tensor, size []int) (y, indices *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "adaptive_max_pool2d_with_indices", x, size)
	}
	return adaptiveMaxPool("adaptive_max_pool2d", 2, x, size, true)
}

// AdaptiveMaxPool3d returns the largest element of each of size windows that cover x, [N, C, D, H, W] or [C, D, H, W]. A size of -1
// is the input's.
func AdaptiveMaxPool3d(x *core.Tensor, size []int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "adaptive_max_pool3d", x, size)
	}
	y, _ := adaptiveMaxPool("adaptive_max_pool3d", 3, x, size, false)
	return y
}

// AdaptiveMaxPool3dWithIndices is [AdaptiveMaxPool3d] that also returns the positions of the maxima in their planes.
func AdaptiveMaxPool3dWithIndices(x *core.Tensor, size []int) (y, indices *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "adaptive_max_pool3d_with_indices", x, size)
	}
	return adaptiveMaxPool("adaptive_max_pool3d", 3, x, size, true)
}

func adaptiveMaxPool(name string, nd int, x *core.Tensor, size []int, indices bool) (*core.Tensor, *core.Tensor) {
	op := begin(name, &x)
	return op.maxPool(x, op.adaptiveWindows(nd, x, size), indices)
}

// MaxUnpoolOptions are the options of the inverse of a maximum pooling; the lists are those of the pooling.
type MaxUnpoolOptions struct {
	Stride     []int
	Padding    []int
	OutputSize []int // spatial sizes of the result, where the pooling's arguments leave them open
}

// MaxUnpool1d puts the elements of x, [N, C, L] or [C, L], at the positions that [MaxPool1dWithIndices]
// returned, among zeros. An index outside the result is an error when a value is read.
func MaxUnpool1d(x, indices *core.Tensor, kernel []int, o MaxUnpoolOptions) *core.Tensor {
	if parts := distributed(x, indices); parts != nil {
		return handOn(parts, "max_unpool1d", x, indices, kernel, o)
	}
	return maxUnpool("max_unpool1d", 1, x, indices, kernel, o)
}

// MaxUnpool2d puts the elements of x, [N, C, H, W] or [C, H, W], at the positions that [MaxPool2dWithIndices]
// returned, among zeros. An index outside the result is an error when a value is read.
func MaxUnpool2d(x, indices *core.Tensor, kernel []int, o MaxUnpoolOptions) *core.Tensor {
	if parts := distributed(x, indices); parts != nil {
		return handOn(parts, "max_unpool2d", x, indices, kernel, o)
	}
	return maxUnpool("max_unpool2d", 2, x, indices, kernel, o)
}

// MaxUnpool3d puts the elements of x, [N, C, D, H, W] or [C, D, H, W], at the positions that [MaxPool3dWithIndices]
// returned, among zeros. An index outside the result is an error when a value is read.
func MaxUnpool3d(x, indices *core.Tensor, kernel []int, o MaxUnpoolOptions) *core.Tensor {
	if parts := distributed(x, indices); parts != nil {
		return handOn(parts, "max_unpool3d", x, indices, kernel, o)
	}
	return maxUnpool("max_unpool3d", 3, x, indices, kernel, o)
}

func maxUnpool(name string, nd int, x, indices *core.Tensor, kernel []int, o MaxUnpoolOptions) *core.Tensor {
	op := begin(name, &x, &indices)
	op.floatTensor(x)
	op.poolInput(nd, x)
	if op.err == nil && (indices == nil || indices.DType() != core.Int64 || !slices.Equal(indices.Shape(), x.Shape())) {
		op.failf(core.TypeError, "indices are %v, want int64%v", indices, x.Shape())
	}
	if len(o.Stride) == 0 {
		o.Stride = kernel
	}
	size := op.spatial("kernel_size", kernel, nd, 0, 1)
	stride, padding := op.spatial("stride", o.Stride, nd, 1, 1), op.spatial("padding", o.Padding, nd, 0, 0)
	if op.err == nil && len(o.OutputSize) != 0 && len(o.OutputSize) != nd {
		op.failf(core.ValueError, "output_size is %v, want %d entries", o.OutputSize, nd)
	}
	if op.err != nil {
		return op.fail()
	}
	out := make([]int, nd)
	for i := range out {
		out[i] = (x.Size(i-nd)-1)*stride[i] - 2*padding[i] + size[i]
		if len(o.OutputSize) > 0 {
			if got := o.OutputSize[i]; got <= out[i]-stride[i] || got >= out[i]+stride[i] {
				op.failf(core.ValueError, "output_size is %v, want sizes within %v of %d in dimension %d", o.OutputSize, stride, out[i], i-nd)
				return op.fail()
			}
			out[i] = o.OutputSize[i]
		}
		if out[i] <= 0 {
			op.failf(core.ShapeError, "result would have size %d in dimension %d", out[i], i-nd)
			return op.fail()
		}
	}
	return op.passOn(planeScatter(name, x, indices, out, false, nil))
}

func init() {
	rows := []Row{}
	for nd, f := range []struct{ pool, indices, adaptive, adaptiveIndices, unpool any }{
		{MaxPool1d, MaxPool1dWithIndices, AdaptiveMaxPool1d, AdaptiveMaxPool1dWithIndices, MaxUnpool1d},
		{MaxPool2d, MaxPool2dWithIndices, AdaptiveMaxPool2d, AdaptiveMaxPool2dWithIndices, MaxUnpool2d},
		{MaxPool3d, MaxPool3dWithIndices, AdaptiveMaxPool3d, AdaptiveMaxPool3dWithIndices, MaxUnpool3d},
	} {
		args := []Arg{
			{Name: "input"}, {Name: "kernel_size"}, {Name: "stride", Field: "Stride", Optional: true, Doc: "the kernel's size if absent"},
			{Name: "padding", Field: "Padding", Default: 0}, {Name: "dilation", Field: "Dilation", Default: 1},
			{Name: "ceil_mode", Field: "CeilMode", Default: false},
		}
		adaptive := []Arg{{Name: "input"}, {Name: "output_size", Doc: "-1 for the input's"}}
		doc, indices := "Largest element of each window of the input, "+poolShapes[nd]+".", "\nThe second result has the positions of the maxima in their planes."
		adaptiveDoc := "Largest element of each of output_size windows that cover the input, " + poolShapes[nd] + "."
		name, adaptiveName := poolNames("max_pool")[nd], poolNames("adaptive_max_pool")[nd]
		rows = append(rows,
			Row{Name: name, Doc: doc, Func: f.pool, Args: args, Samples: maxPoolSamples()[nd]},
			Row{Name: name + "_with_indices", Doc: doc + indices, Func: f.indices, Args: args, Samples: maxPoolSamples()[nd]},
			Row{Name: adaptiveName, Doc: adaptiveDoc, Func: f.adaptive, Args: adaptive, Samples: adaptivePoolSamples(DistinctOf)[nd]},
			Row{Name: adaptiveName + "_with_indices", Doc: adaptiveDoc + indices, Func: f.adaptiveIndices, Args: adaptive, Samples: adaptivePoolSamples(DistinctOf)[nd]},
			Row{
				Name: poolNames("max_unpool")[nd],
				Doc:  "Zeros with the elements of the input at the positions that a maximum pooling returned.",
				Func: f.unpool,
				Args: []Arg{
					{Name: "input"}, {Name: "indices"}, {Name: "kernel_size"}, {Name: "stride", Field: "Stride", Optional: true},
					{Name: "padding", Field: "Padding", Default: 0}, {Name: "output_size", Field: "OutputSize", Optional: true},
				},
				Samples: maxUnpoolSamples()[nd],
			},
		)
	}
	register("pooling", rows...)
}

func maxPoolSamples() [3][]Sample {
	return [3][]Sample{
		{
			{Args: []any{DistinctOf(2, 3, 8), []int{2}, MaxPoolOptions{}}},
			{Name: "overlapping, dilated, no batch", Args: []any{DistinctOf(2, 9), []int{3}, MaxPoolOptions{Stride: []int{2}, Padding: []int{1}, Dilation: []int{2}, CeilMode: true}}},
		},
		{
			{Args: []any{DistinctOf(2, 2, 5, 6), []int{2}, MaxPoolOptions{}}},
			{Name: "overlapping, ceil", Args: []any{DistinctOf(1, 2, 6, 7), []int{3}, MaxPoolOptions{Stride: []int{2}, CeilMode: true}}},
			{Name: "padded, dilated, no batch", Args: []any{DistinctOf(2, 7, 5), []int{3, 2}, MaxPoolOptions{Stride: []int{1, 3}, Padding: []int{2, 1}, Dilation: []int{2, 1}}}},
			{Name: "no images", Args: []any{DistinctOf(0, 2, 4, 4), []int{2}, MaxPoolOptions{}}},
		},
		{
			{Args: []any{DistinctOf(1, 2, 4, 3, 5), []int{2, 2, 3}, MaxPoolOptions{Stride: []int{1, 1, 2}, Padding: []int{1, 0, 1}}}},
		},
	}
}

func maxUnpoolSamples() [3][]Sample {
	return [3][]Sample{
		{{Args: []any{Shaped(1, 2, 2), Indices([]int{1, 2, 2}, 1, 2, 0, 3), []int{2}, MaxUnpoolOptions{}}}},
		{
			{Args: []any{Shaped(1, 1, 2, 2), Indices([]int{1, 1, 2, 2}, 1, 2, 9, 15), []int{2}, MaxUnpoolOptions{}}},
			{Name: "size, no batch", Args: []any{Shaped(1, 2, 2), Indices([]int{1, 2, 2}, 1, 4, 22, 14), []int{2}, MaxUnpoolOptions{OutputSize: []int{5, 5}}}},
		},
		{{Args: []any{Shaped(1, 1, 2, 1, 1), Indices([]int{1, 1, 2, 1, 1}, 3, 12), []int{2}, MaxUnpoolOptions{}}}},
	}
}
