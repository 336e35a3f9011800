package op

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// LPPoolOptions are the options of a power-average pooling; see [AvgPoolOptions].
type LPPoolOptions struct {
	Stride   []int // the kernel's size
	CeilMode bool
}

// LPPool1d returns the p-norm of each window of x, [N, C, L] or [C, L]: the p-th root of the sum of x^p, or for inf the largest
// |x| and for -inf the smallest.
func LPPool1d(x *core.Tensor, normType float64, kernel []int, o LPPoolOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "lp_pool1d", x, normType, kernel, o)
	}
	return lpPool("lp_pool1d", 1, x, normType, kernel, o)
}

// LPPool2d returns the p-norm of each window of x, [N, C, H, W] or [C, H, W]: the p-th root of the sum of x^p.
func LPPool2d(x *core.Tensor, normType float64, kernel []int, o LPPoolOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "lp_pool2d", x, normType, kernel, o)
	}
	return lpPool("lp_pool2d", 2, x, normType, kernel, o)
}

// LPPool3d returns the p-norm of each window of x, [N, C, D, H, W] or [C, D, H, W]: the p-th root of the sum of x^p.
func LPPool3d(x *core.Tensor, normType float64, kernel []int, o LPPoolOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "lp_pool3d", x, normType, kernel, o)
	}
	return lpPool("lp_pool3d", 3, x, normType, kernel, o)
}

func lpPool(name string, nd int, x *core.Tensor, p float64, kernel []int, o LPPoolOptions) *core.Tensor {
	op := begin(name, &x)
	op.floatTensor(x)
	w := op.windows(nd, x, kernel, o.Stride, nil, nil, o.CeilMode)
	if op.err == nil && p == 0 {
		op.failf(core.ValueError, "norm_type must not be 0")
	}
	return op.compose(func() *core.Tensor {
		if math.IsInf(p, 0) {
			sign := core.Num(math.Copysign(1, p))
			out, _ := maxPool(name, nd, Mul(Abs(x), sign), kernel, MaxPoolOptions{Stride: o.Stride, CeilMode: o.CeilMode}, false)
			return Mul(out, sign)
		}
		mean := linearPool(name, contract.AvgPool, Pow(x, core.Num(p)), w, w.out)
		return Pow(Mul(mean, core.Num(float64(core.Numel(w.kernel)))), core.Num(1/p))
	})
}

func init() {
	rows := []Row{}
	samples := [3][]Sample{
		{
			{Args: []any{Between(0.5, 2, 2, 3, 8), 3.0, []int{2}, LPPoolOptions{}}},
			{Name: "inf", Args: []any{DistinctOf(1, 2, 7), math.Inf(1), []int{3}, LPPoolOptions{Stride: []int{2}}}},
			{Name: "-inf", Args: []any{DistinctOf(1, 2, 7), math.Inf(-1), []int{3}, LPPoolOptions{CeilMode: true}}},
			{Name: "ceil, no batch", Args: []any{Between(0.5, 2, 2, 8), 1.5, []int{3}, LPPoolOptions{Stride: []int{2}, CeilMode: true}}},
		},
		{
			{Args: []any{Shaped(1, 2, 4, 5), 2.0, []int{2}, LPPoolOptions{}}},
		},
		{
			{Args: []any{Between(0.5, 2, 1, 2, 3, 3, 4), 1.0, []int{2, 1, 3}, LPPoolOptions{Stride: []int{1}}}},
		},
	}
	for nd, f := range []any{LPPool1d, LPPool2d, LPPool3d} {
		rows = append(rows, Row{
			Name: poolNames("lp_pool")[nd],
			Doc:  "The p-norm of each window of the input, " + poolShapes[nd] + ".",
			Func: f,
			Args: []Arg{
				{Name: "input"}, {Name: "norm_type"}, {Name: "kernel_size"},
				{Name: "stride", Field: "Stride", Optional: true, Doc: "the kernel's size if absent"},
				{Name: "ceil_mode", Field: "CeilMode", Default: false},
			},
			Samples: samples[nd],
		})
	}
	register("pooling", rows...)
}
