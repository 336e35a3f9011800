package nn

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// The pools are layers without parameters. Kernels are square or cubic; package op has functions for others.

// repeat returns n sizes of k.
func repeat(k, n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = k
	}
	return s
}

// pool returns a layer that applies a function to windows of size kernel in nd dimensions.
func pool[O any](name string, nd, kernel int, o O, fn func(*core.Tensor, []int, O) *core.Tensor) *Func {
	k := repeat(kernel, nd)
	return named(fmt.Sprintf("%s%dd", name, nd), fmt.Sprintf("kernel_size=%d", kernel), func(x *core.Tensor) *core.Tensor { return fn(x, k, o) })
}

// NewMaxPool1d returns the largest element of each window of [n, c, l], which steps by its own size unless the options say
// otherwise.
func NewMaxPool1d(kernel int, o op.MaxPoolOptions) *Func {
	return pool("MaxPool", 1, kernel, o, op.MaxPool1d)
}

// NewMaxPool2d is [NewMaxPool1d] for [n, c, h, w].
func NewMaxPool2d(kernel int, o op.MaxPoolOptions) *Func {
	return pool("MaxPool", 2, kernel, o, op.MaxPool2d)
}

// NewMaxPool3d is [NewMaxPool1d] for [n, c, d, h, w].
func NewMaxPool3d(kernel int, o op.MaxPoolOptions) *Func {
	return pool("MaxPool", 3, kernel, o, op.MaxPool3d)
}

// NewAvgPool1d returns the mean of each window of [n, c, l], which steps by its own size unless the options say otherwise.
func NewAvgPool1d(kernel int, o op.AvgPoolOptions) *Func {
	return pool("AvgPool", 1, kernel, o, op.AvgPool1d)
}

// NewAvgPool2d is [NewAvgPool1d] for [n, c, h, w].
func NewAvgPool2d(kernel int, o op.AvgPoolOptions) *Func {
	return pool("AvgPool", 2, kernel, o, op.AvgPool2d)
}

// NewAvgPool3d is [NewAvgPool1d] for [n, c, d, h, w].
func NewAvgPool3d(kernel int, o op.AvgPoolOptions) *Func {
	return pool("AvgPool", 3, kernel, o, op.AvgPool3d)
}

// lpPool returns the p-norm of each window.
func lpPool(nd int, p float64, kernel int, o op.LPPoolOptions, fn func(*core.Tensor, float64, []int, op.LPPoolOptions) *core.Tensor) *Func {
	return pool("LPPool", nd, kernel, o, func(x *core.Tensor, k []int, o op.LPPoolOptions) *core.Tensor { return fn(x, p, k, o) })
}

// NewLPPool1d returns the p-norm of each window of [n, c, l].
func NewLPPool1d(p float64, kernel int, o op.LPPoolOptions) *Func {
	return lpPool(1, p, kernel, o, op.LPPool1d)
}

// NewLPPool2d is [NewLPPool1d] for [n, c, h, w].
func NewLPPool2d(p float64, kernel int, o op.LPPoolOptions) *Func {
	return lpPool(2, p, kernel, o, op.LPPool2d)
}

// NewLPPool3d is [NewLPPool1d] for [n, c, d, h, w].
func NewLPPool3d(p float64, kernel int, o op.LPPoolOptions) *Func {
	return lpPool(3, p, kernel, o, op.LPPool3d)
}

// adaptive returns a layer whose results have the given sizes, whatever those of its inputs.
func adaptive(name string, nd int, size []int, fn func(*core.Tensor, []int) *core.Tensor) *Func {
	if len(size) == 1 {
		size = repeat(size[0], nd)
	}
	return named(fmt.Sprintf("%s%dd", name, nd), fmt.Sprintf("output_size=%v", size), func(x *core.Tensor) *core.Tensor { return fn(x, size) })
}

// NewAdaptiveAvgPool1d averages [n, c, l] to [n, c, size].
func NewAdaptiveAvgPool1d(size int) *Func {
	return adaptive("AdaptiveAvgPool", 1, []int{size}, op.AdaptiveAvgPool1d)
}

// NewAdaptiveAvgPool2d averages [n, c, h, w] to the given sizes, one for both dimensions or one for each.
func NewAdaptiveAvgPool2d(size ...int) *Func {
	return adaptive("AdaptiveAvgPool", 2, size, op.AdaptiveAvgPool2d)
}

// NewAdaptiveAvgPool3d averages [n, c, d, h, w] to the given sizes, one for all dimensions or one for each.
func NewAdaptiveAvgPool3d(size ...int) *Func {
	return adaptive("AdaptiveAvgPool", 3, size, op.AdaptiveAvgPool3d)
}

// NewAdaptiveMaxPool1d takes the largest elements of [n, c, l] to [n, c, size].
func NewAdaptiveMaxPool1d(size int) *Func {
	return adaptive("AdaptiveMaxPool", 1, []int{size}, op.AdaptiveMaxPool1d)
}

// NewAdaptiveMaxPool2d takes the largest elements of [n, c, h, w] to the given sizes, one for both dimensions or one for
// each.
func NewAdaptiveMaxPool2d(size ...int) *Func {
	return adaptive("AdaptiveMaxPool", 2, size, op.AdaptiveMaxPool2d)
}

// NewAdaptiveMaxPool3d takes the largest elements of [n, c, d, h, w] to the given sizes, one for all dimensions or one for
// each.
func NewAdaptiveMaxPool3d(size ...int) *Func {
	return adaptive("AdaptiveMaxPool", 3, size, op.AdaptiveMaxPool3d)
}

// NewPad returns a layer that extends the last dimensions: pad has the elements in front of and behind the last dimension,
// then those of the one before it, and so on.
func NewPad(pad []int, o op.PadOptions) *Func {
	mode := o.Mode
	if mode == "" {
		mode = "constant"
	}
	return named("Pad", fmt.Sprintf("%v, mode=%q", pad, mode), func(x *core.Tensor) *core.Tensor { return op.Pad(x, pad, o) })
}

// NewUpsample returns a layer that makes its inputs larger by interpolation.
func NewUpsample(o op.InterpolateOptions) *Func {
	mode := o.Mode
	if mode == "" {
		mode = "nearest"
	}
	what := fmt.Sprintf("scale_factor=%v", o.ScaleFactor)
	if o.Size != nil {
		what = fmt.Sprintf("size=%v", o.Size)
	}
	return named("Upsample", fmt.Sprintf("%s, mode=%q", what, mode), func(x *core.Tensor) *core.Tensor { return op.Interpolate(x, o) })
}

// NewPixelShuffle returns a layer from [n, c r^2, h, w] to [n, c, h r, w r] (Shi et al. 2016).
func NewPixelShuffle(r int) *Func {
	return named("PixelShuffle", fmt.Sprintf("upscale_factor=%d", r), func(x *core.Tensor) *core.Tensor { return op.PixelShuffle(x, r) })
}

// NewPixelUnshuffle undoes [NewPixelShuffle].
func NewPixelUnshuffle(r int) *Func {
	return named("PixelUnshuffle", fmt.Sprintf("downscale_factor=%d", r), func(x *core.Tensor) *core.Tensor { return op.PixelUnshuffle(x, r) })
}

// NewChannelShuffle returns a layer that mixes groups of channels (Zhang et al. 2018).
func NewChannelShuffle(groups int) *Func {
	return named("ChannelShuffle", fmt.Sprintf("groups=%d", groups), func(x *core.Tensor) *core.Tensor { return op.ChannelShuffle(x, groups) })
}

// NewLocalResponseNorm returns a layer that divides by what neighbouring channels have (Krizhevsky et al. 2012); PyTorch's
// defaults are 1e-4, 0.75 and 1.
func NewLocalResponseNorm(size int, alpha, beta, k float64) *Func {
	return named("LocalResponseNorm", fmt.Sprintf("%d, alpha=%v, beta=%v, k=%v", size, alpha, beta, k), func(x *core.Tensor) *core.Tensor {
		return op.LocalResponseNorm(x, size, alpha, beta, k)
	})
}
