package op

import (
	"math"
	"slices"
	"unsafe"

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
		in := x
		if x.DType() != core.Int64 {
			in = op.own(castTo(x, core.Int64))
		}
		in = op.dense(in)
		bins := minLength
		if x.Numel() > 0 {
			switch low, high := op.ends(in); {
			case op.err != nil:
			case low < 0:
				op.failf(core.ValueError, "got the negative element %d", low)
			case high >= math.MaxInt64/16:
				op.failf(core.MemoryError, "no memory for %d bins", high)
			default:
				bins = max(bins, int(high)+1)
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

// few is how many integers the host looks through in less time than launches and a wait take.
const few = 4096

// ends waits for the smallest and the largest element of a contiguous tensor of int64.
func (op *opContext) ends(x *core.Tensor) (low, high int64) {
	if op.err != nil {
		return 0, 0
	}
	if x.Numel() > few || !x.Device().HostAccessible() {
		ends, err := core.Values[int64](extremes(x))
		if op.check(err); err != nil {
			return 0, 0
		}
		return ends[0], ends[1]
	}
	op.check(x.Look(func(bytes []byte) {
		values := unsafe.Slice((*int64)(unsafe.Pointer(&bytes[0])), x.Numel())
		low, high = values[0], values[0]
		for _, v := range values {
			low, high = min(low, v), max(high, v)
		}
	}))
	return low, high
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
