package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
)

// QuantileOptions are the options of [Quantile] and [NanQuantile].
type QuantileOptions struct {
	// Dim is the dimension to reduce; nil means all.
	Dim *int
	// KeepDim keeps the reduced dimension, or dimensions, with size 1.
	KeepDim bool
	// Interpolation says what a quantile between two elements is: "linear" (the default), "lower", "higher", "midpoint" or
	// "nearest".
	Interpolation string
}

// Quantile returns the quantiles q, a number or a vector of numbers from 0 to 1, of x, which must be floating point. A
// vector adds a first dimension. It is NaN where there is a NaN.
func Quantile(x, q *core.Tensor, o QuantileOptions) *core.Tensor {
	if parts := distributed(x, q); parts != nil {
		return handOn(parts, "quantile", x, q, o)
	}
	return quantile("quantile", x, q, o, false)
}

// NanQuantile is [Quantile] of what is not NaN.
func NanQuantile(x, q *core.Tensor, o QuantileOptions) *core.Tensor {
	if parts := distributed(x, q); parts != nil {
		return handOn(parts, "nanquantile", x, q, o)
	}
	return quantile("nanquantile", x, q, o, true)
}

func quantile(name string, x, q *core.Tensor, o QuantileOptions, skipNaN bool) *core.Tensor {
	op := begin(name, &x, &q)
	op.floating("the input", x)
	dim := 0
	if op.err == nil && o.Dim != nil {
		dim = op.dim(*o.Dim, x)
	}
	if o.Interpolation == "" {
		o.Interpolation = "linear"
	}
	switch {
	case op.err != nil:
	case x.Numel() == 0:
		op.failf(core.ShapeError, "got no elements, want at least one")
	case q.Dim() > 1:
		op.failf(core.ShapeError, "got quantiles of shape %v, want a number or a vector", q.Shape())
	case !slices.Contains([]string{"linear", "lower", "higher", "midpoint", "nearest"}, o.Interpolation):
		op.failf(core.ValueError, "unknown interpolation %q, want linear, lower, higher, midpoint or nearest", o.Interpolation)
	}
	return op.compose(func() *core.Tensor {
		// Lines along the last dimension, sorted; NaNs are at their ends.
		var lines *core.Tensor
		shape := slices.Clone(x.Shape())
		if o.Dim == nil || x.Dim() == 0 {
			lines = Reshape(x, 1, x.Numel())
			for i := range shape {
				shape[i] = 1
			}
			if !o.KeepDim {
				shape = shape[:0]
			}
		} else {
			lines = Movedim(x, []int{dim}, []int{-1})
			lines = Reshape(lines, -1, x.Size(dim))
			if shape[dim] = 1; !o.KeepDim {
				shape = slices.Delete(shape, dim, dim+1)
			}
		}
		n := lines.Size(1)
		sorted, _ := Sort(lines, -1, SortOptions{})
		positions := statType(x.DType())
		missing := IsNaN(lines.Detach())
		var last *core.Tensor // the index of the last element that counts, by line
		if skipNaN {
			known := Sum(castTo(LogicalNot(missing), positions), []int{1}, true)
			last = Maximum(Sub(known, core.Num(1)), core.Num(0))
		} else {
			last = fullLike(lines, float64(n-1), positions, []int{lines.Size(0), 1})
		}
		rank := Mul(last, Reshape(castTo(q, positions), 1, q.Numel())) // [lines, quantiles]
		if o.Interpolation == "nearest" {
			rank = Round(rank)
		}
		at := func(rank *core.Tensor) *core.Tensor {
			return Gather(sorted, 1, Clamp(castTo(rank.Detach(), core.Int64), core.IntNum(0), core.IntNum(int64(n-1))))
		}
		var y *core.Tensor
		switch o.Interpolation {
		case "lower", "nearest":
			y = at(Floor(rank))
		case "higher":
			y = at(Ceil(rank))
		case "midpoint":
			y = Lerp(at(Floor(rank)), at(Ceil(rank)), core.Num(0.5))
		default:
			low := Floor(rank)
			y = Lerp(at(low), at(Ceil(rank)), castTo(Sub(rank, low), x.DType()))
		}
		if !skipNaN {
			y = MaskedFill(y, Any(missing, []int{1}, true), core.Num(math.NaN()))
		}
		if q.Dim() == 0 {
			return Reshape(y, shape...)
		}
		return Reshape(Transpose(y, 0, 1), append([]int{q.Numel()}, shape...)...)
	})
}
