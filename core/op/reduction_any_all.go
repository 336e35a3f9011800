package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// Any returns, as bool or for uint8 as uint8, whether any element of x over dims, or over all dimensions if there are none, is not zero. A NaN
// is not zero; of nothing the result is false.
func Any(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "any", x, dims, keepdim)
	}
	return truths("any", contract.Any, x, dims, keepdim)
}

// All returns, as bool or for uint8 as uint8, whether no element of x over dims, or over all dimensions if there are none, is zero. Of nothing
// the result is true.
func All(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "all", x, dims, keepdim)
	}
	return truths("all", contract.All, x, dims, keepdim)
}

// truths returns a result of truth values; those of uint8 are 0 and 1 of uint8, as PyTorch has it.
func truths(name string, k core.KernelID, x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	if x.Err() != nil || x.DType() != core.Uint8 {
		return count(name, k, x, dims, keepdim, core.Bool)
	}
	return compose(name, func() *core.Tensor { return castTo(count(name, k, x, dims, keepdim, core.Bool), core.Uint8) })
}

// CountNonzero returns, as int64, the number of elements of x over dims, or over all dimensions if there are none, that
// are not zero.
func CountNonzero(x *core.Tensor, dims []int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "count_nonzero", x, dims)
	}
	return count("count_nonzero", contract.CountNonzero, x, dims, false, core.Int64)
}

func count(name string, k core.KernelID, x *core.Tensor, dims []int, keepdim bool, d core.DType) *core.Tensor {
	op := begin(name, &x)
	r := op.reduction(x, dims, keepdim)
	if op.err != nil {
		return op.fail()
	}
	if x.DType().IsComplex() {
		x = op.own(castTo(x, core.Bool))
	}
	out := op.reduce(k, x, r, d)
	return op.done(out)
}
