package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// SortOptions are the options of sorting.
type SortOptions struct {
	Descending bool
	// Stable asks for equal elements to stay in their order. They always do.
	Stable bool
}

// Sort returns the elements of x in order along dim and their indices in x, as int64. A NaN counts as the largest.
func Sort(x *core.Tensor, dim int, o SortOptions) (values, indices *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "sort", x, dim, o)
	}
	op := begin("sort", &x)
	dim = op.dim(dim, x)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	if x.Dim() == 0 {
		return Clone(x), fullLike(x, 0, core.Int64, nil)
	}
	return op.choose(x, dim, x.Shape(), false, func(values, indices *core.Tensor) {
		op.launch(sortingWork(contract.SortAttrs{Dim: dim, Descending: o.Descending}.AddTo(op.call(contract.Sort).Out(values).Out(indices).In(x))))
	})
}

// ArgSort returns the indices of [Sort].
func ArgSort(x *core.Tensor, dim int, o SortOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "argsort", x, dim, o)
	}
	op := begin("argsort", &x)
	dim = op.dim(dim, x)
	if op.err != nil {
		return op.fail()
	}
	if x.Dim() == 0 {
		return fullLike(x, 0, core.Int64, nil)
	}
	indices := op.out(core.Int64, x.Shape())
	if op.err != nil {
		return op.fail()
	}
	op.launch(sortingWork(contract.SortAttrs{Dim: dim, Descending: o.Descending}.AddTo(op.call(contract.ArgSort).Out(indices).In(x))))
	return op.done(indices)
}

// sortingWork says that a call costs more than a pass over its operands.
func sortingWork(c *core.Call) *core.Call {
	c.Work *= 8
	return c
}

// TopK returns the k largest, or smallest, elements of x along dim and their indices, as int64. They are in order
// whether sorted is set or not. Of equal elements those that come first are taken; a NaN counts as the largest.
func TopK(x *core.Tensor, k, dim int, largest, sorted bool) (values, indices *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "topk", x, k, dim, largest, sorted)
	}
	op := begin("topk", &x)
	dim = op.dim(dim, x)
	op.atMost(k, 0, x, dim)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	if x.Dim() == 0 {
		return Clone(x), fullLike(x, 0, core.Int64, nil)
	}
	shape := slices.Clone(x.Shape())
	shape[dim] = k
	return op.choose(x, dim, shape, false, func(values, indices *core.Tensor) {
		op.launch(contract.TopKAttrs{Dim: dim, K: k, Largest: largest}.AddTo(op.call(contract.TopK).Out(values).Out(indices).In(x)))
	})
}

// atMost fails unless k lies between least and the size of dimension dim. A 0-d tensor counts as one element.
func (op *opContext) atMost(k, least int, x *core.Tensor, dim int) {
	if op.err != nil {
		return
	}
	n := 1
	if x.Dim() > 0 {
		n = x.Size(dim)
	}
	if k < least || k > n {
		op.failf(core.ValueError, "got k %d, want %d to %d for dimension %d of shape %v", k, least, n, dim, x.Shape())
	}
}

// KthValue returns the k-th smallest elements of x along dim, counted from 1, and their indices, as int64.
func KthValue(x *core.Tensor, k, dim int, keepdim bool) (values, indices *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "kthvalue", x, k, dim, keepdim)
	}
	op := begin("kthvalue", &x)
	dim = op.dim(dim, x)
	op.atMost(k, 1, x, dim)
	return op.selectAlong(contract.KthValue, x, dim, ChoiceOptions{KeepDim: keepdim}, k)
}

// Median returns the median of x along dim and its index, as int64: the lower one of two elements in the middle, and the
// first NaN where there is one.
func Median(x *core.Tensor, dim int, keepdim bool) (values, indices *core.Tensor) {
	return MedianWith(x, dim, ChoiceOptions{KeepDim: keepdim})
}

// MedianWith is [Median] with options.
func MedianWith(x *core.Tensor, dim int, o ChoiceOptions) (values, indices *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "median", x, dim, o)
	}
	op := begin("median", &x)
	return op.selectAlong(contract.Median, x, op.dim(dim, x), o, 0)
}

// NanMedian returns the median along dim of the elements of x that are not NaN, and its index, as int64.
func NanMedian(x *core.Tensor, dim int, keepdim bool) (values, indices *core.Tensor) {
	return NanMedianWith(x, dim, ChoiceOptions{KeepDim: keepdim})
}

// NanMedianWith is [NanMedian] with options.
func NanMedianWith(x *core.Tensor, dim int, o ChoiceOptions) (values, indices *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "nanmedian", x, dim, o)
	}
	op := begin("nanmedian", &x)
	return op.selectAlong(contract.NanMedian, x, op.dim(dim, x), o, 0)
}

// Mode returns the element of x along dim that comes most often, the smallest of those, and the index of its last
// occurrence, as int64.
func Mode(x *core.Tensor, dim int, keepdim bool) (values, indices *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "mode", x, dim, keepdim)
	}
	op := begin("mode", &x)
	return op.selectAlong(contract.Mode, x, op.dim(dim, x), ChoiceOptions{KeepDim: keepdim}, 0)
}

// selectAlong applies an operation that selects one element along dim.
func (op *opContext) selectAlong(kernel core.KernelID, x *core.Tensor, dim int, o ChoiceOptions, k int) (values, indices *core.Tensor) {
	r := op.reduction(x, []int{dim}, o.KeepDim)
	op.nonempty(x, r)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	if x.Dim() == 0 {
		return Clone(x), fullLike(x, 0, core.Int64, nil)
	}
	return op.choose(x, dim, r.shape, o.Even, func(values, indices *core.Tensor) {
		op.launch(sortingWork(contract.PickAttrs{Dim: dim, K: k}.AddTo(op.call(kernel).Out(values).Out(indices).In(x))))
	})
}

// MSort returns x sorted along its first dimension.
func MSort(x *core.Tensor) *core.Tensor {
	return compose("msort", func() *core.Tensor {
		values, _ := Sort(x, 0, SortOptions{Stable: true})
		return values
	})
}
