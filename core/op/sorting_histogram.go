package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// BinCount returns, for each integer from 0 to the largest element of x, or to minLength-1 if that is larger, how often
// it comes in x, a vector of integers that are not negative. With weights, of x's shape, it is the sum of their weights:
// of float32 for float32 weights, otherwise float64. It waits for the largest element.
func BinCount(x, weights *core.Tensor, minLength int) *core.Tensor {
	if parts := distributed(x, weights); parts != nil {
		return handOn(parts, "bincount", x, weights, minLength)
	}
	op := begin("bincount", &x, optional(&weights))
	if op.err != nil {
		return op.fail()
	}
	switch {
	case x.Dim() != 1 || x.DType().IsFloat():
		op.failf(core.ShapeError, "got %v%v, want a vector of integers", x.DType(), x.Shape())
	case minLength < 0:
		op.failf(core.ValueError, "got minlength %d, want at least 0", minLength)
	case weights != nil && !slices.Equal(weights.Shape(), x.Shape()):
		op.failf(core.ShapeError, "weights have shape %v, want the input's %v", weights.Shape(), x.Shape())
	}
	return op.compose(func() *core.Tensor {
		in := op.own(Contiguous(castTo(x, core.Int64)))
		bins := minLength
		if x.Numel() > 0 {
			ends, err := core.Values[int64](extremes(in))
			op.check(err)
			switch {
			case op.err != nil:
			case ends[0] < 0:
				op.failf(core.ValueError, "got the negative element %d", ends[0])
			case ends[1] >= math.MaxInt64/16:
				op.failf(core.MemoryError, "no memory for %d bins", ends[1])
			default:
				bins = max(bins, int(ends[1])+1)
			}
		}
		result, kind := core.Int64, core.Int64
		var w *core.Tensor
		if weights != nil {
			result, kind = core.Float64, core.Float64
			if weights.DType() == core.Float32 {
				result = core.Float32
				if !x.Device().HostAccessible() { // other devices have no wider dtype
					kind = core.Float32
				}
			}
			w = op.own(Contiguous(castTo(weights.Detach(), kind)))
		}
		out := op.out(kind, []int{bins})
		if op.err != nil {
			return op.fail()
		}
		op.launch(op.call(contract.BinCount).Out(out).In(in).In(w))
		if kind != result {
			out = castTo(op.own(out), result)
		}
		return op.done(out)
	})
}

// extremes returns the smallest and the largest element of x in one tensor, so that a program waits once for both.
func extremes(x *core.Tensor) *core.Tensor {
	op := begin("aminmax", &x)
	r := op.reduction(x, nil, false)
	op.nonempty(x, r)
	if op.err != nil {
		return op.fail()
	}
	ends := op.out(x.DType(), []int{2})
	if op.err != nil {
		return op.fail()
	}
	for i, k := range []core.KernelID{contract.Amin, contract.Amax} {
		end := core.WrapTensor(op.mode, ends.Storage(), ends.DType(), []int{}, []int{}, ends.Offset()+i)
		op.launch(op.call(k).Out(end).In(x).Dims(r.dims))
		end.Release()
	}
	return op.done(ends)
}

// HistC returns how many elements of x, which must be floating point, lie in each of `bins` equal parts of the range from
// low to high; others do not count. If both are 0 the range is that of the elements, for which it waits. The result has
// x's dtype.
func HistC(x *core.Tensor, bins int, low, high float64) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "histc", x, bins, low, high)
	}
	op := begin("histc", &x)
	op.floating("the input", x)
	switch {
	case op.err != nil:
	case bins <= 0:
		op.failf(core.ValueError, "got %d bins, want at least 1", bins)
	case low > high:
		op.failf(core.ValueError, "got the range from %v to %v, want it ascending", low, high)
	}
	return op.compose(func() *core.Tensor {
		in := op.own(Contiguous(x.Detach()))
		if low == 0 && high == 0 && x.Numel() > 0 {
			ends, err := core.Values[float64](extremes(in))
			if op.check(err); err == nil {
				low, high = ends[0], ends[1]
			}
		}
		if low == high {
			low, high = low-1, high+1
		}
		if op.err == nil && (math.IsInf(high-low, 0) || high-low != high-low) {
			op.failf(core.ValueError, "the range from %v to %v is not finite", low, high)
		}
		out := op.temp(core.Int64, bins)
		if op.err != nil {
			return op.fail()
		}
		op.launch(contract.HistCAttrs{Low: low, High: high}.AddTo(op.call(contract.HistC).Out(out).In(in)))
		return op.done(castTo(out, x.DType()))
	})
}
