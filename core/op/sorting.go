package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

var (
	sortKernel      = core.Kernel("sort")
	argSortKernel   = core.Kernel("argsort")
	topKKernel      = core.Kernel("topk")
	kthValueKernel  = core.Kernel("kthvalue")
	medianKernel    = core.Kernel("median")
	nanMedianKernel = core.Kernel("nanmedian")
	modeKernel      = core.Kernel("mode")
)

// SortOptions are the options of sorting.
type SortOptions struct {
	Descending bool
	// Stable asks for equal elements to stay in their order. They always do.
	Stable bool
}

// Sort returns the elements of x in order along dim and their indices in x, as int64. A NaN counts as the largest.
func Sort(x *core.Tensor, dim int, o SortOptions) (values, indices *core.Tensor) {
	a := beginTensor("sort", x)
	dim = a.dim(dim, x)
	if a.err != nil {
		return a.fail(), a.fail()
	}
	if x.Dim() == 0 {
		return Clone(x), fullLike(x, 0, core.Int64, nil)
	}
	return a.choose(x, dim, x.Shape(), func(values, indices *core.Tensor) {
		a.launch(sortingWork(a.call(sortKernel).Out(values).Out(indices).In(x).Int(int64(dim)).Bool(o.Descending)))
	})
}

// ArgSort returns the indices of [Sort].
func ArgSort(x *core.Tensor, dim int, o SortOptions) *core.Tensor {
	a := beginTensor("argsort", x)
	dim = a.dim(dim, x)
	if a.err != nil {
		return a.fail()
	}
	if x.Dim() == 0 {
		return fullLike(x, 0, core.Int64, nil)
	}
	indices := a.out(core.Int64, x.Shape())
	if a.err != nil {
		return a.fail()
	}
	a.launch(sortingWork(a.call(argSortKernel).Out(indices).In(x).Int(int64(dim)).Bool(o.Descending)))
	return a.done(indices)
}

// sortingWork says that a call costs more than a pass over its operands.
func sortingWork(c *core.Call) *core.Call {
	c.Work *= 8
	return c
}

// TopK returns the k largest, or smallest, elements of x along dim and their indices, as int64. They are in order
// whether sorted is set or not. Of equal elements those that come first are taken; a NaN counts as the largest.
func TopK(x *core.Tensor, k, dim int, largest, sorted bool) (values, indices *core.Tensor) {
	a := beginTensor("topk", x)
	dim = a.dim(dim, x)
	a.atMost(k, 0, x, dim)
	if a.err != nil {
		return a.fail(), a.fail()
	}
	if x.Dim() == 0 {
		return Clone(x), fullLike(x, 0, core.Int64, nil)
	}
	shape := slices.Clone(x.Shape())
	shape[dim] = k
	return a.choose(x, dim, shape, func(values, indices *core.Tensor) {
		a.launch(a.call(topKKernel).Out(values).Out(indices).In(x).Int(int64(dim), int64(k)).Bool(largest))
	})
}

// atMost fails unless k lies between least and the size of dimension dim. A 0-d tensor counts as one element.
func (a *application) atMost(k, least int, x *core.Tensor, dim int) {
	if a.err != nil {
		return
	}
	n := 1
	if x.Dim() > 0 {
		n = x.Size(dim)
	}
	if k < least || k > n {
		a.failf(core.ValueError, "got k %d, want %d to %d for dimension %d of shape %v", k, least, n, dim, x.Shape())
	}
}

// KthValue returns the k-th smallest elements of x along dim, counted from 1, and their indices, as int64.
func KthValue(x *core.Tensor, k, dim int, keepdim bool) (values, indices *core.Tensor) {
	a := beginTensor("kthvalue", x)
	dim = a.dim(dim, x)
	a.atMost(k, 1, x, dim)
	return a.selectAlong(kthValueKernel, x, dim, keepdim, k)
}

// Median returns the median of x along dim and its index, as int64: the lower one of two elements in the middle, and the
// first NaN where there is one.
func Median(x *core.Tensor, dim int, keepdim bool) (values, indices *core.Tensor) {
	a := beginTensor("median", x)
	return a.selectAlong(medianKernel, x, a.dim(dim, x), keepdim, 0)
}

// NanMedian returns the median along dim of the elements of x that are not NaN, and its index, as int64.
func NanMedian(x *core.Tensor, dim int, keepdim bool) (values, indices *core.Tensor) {
	a := beginTensor("nanmedian", x)
	return a.selectAlong(nanMedianKernel, x, a.dim(dim, x), keepdim, 0)
}

// Mode returns the element of x along dim that comes most often, the smallest of those, and the index of its last
// occurrence, as int64.
func Mode(x *core.Tensor, dim int, keepdim bool) (values, indices *core.Tensor) {
	a := beginTensor("mode", x)
	return a.selectAlong(modeKernel, x, a.dim(dim, x), keepdim, 0)
}

// selectAlong applies an operation that selects one element along dim.
func (a *application) selectAlong(kernel core.KernelID, x *core.Tensor, dim int, keepdim bool, k int) (values, indices *core.Tensor) {
	r := a.reduction(x, []int{dim}, keepdim)
	a.nonempty(x, r)
	if a.err != nil {
		return a.fail(), a.fail()
	}
	if x.Dim() == 0 {
		return Clone(x), fullLike(x, 0, core.Int64, nil)
	}
	return a.choose(x, dim, r.shape, func(values, indices *core.Tensor) {
		a.launch(sortingWork(a.call(kernel).Out(values).Out(indices).In(x).Int(int64(dim), int64(k))))
	})
}

// MSort returns x sorted along its first dimension.
func MSort(x *core.Tensor) *core.Tensor {
	return compose("msort", func() *core.Tensor {
		values, _ := Sort(x, 0, SortOptions{Stable: true})
		return values
	})
}
