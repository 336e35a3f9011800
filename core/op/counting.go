package op

import "github.com/plait-ml/plait/core"

var (
	anyKernel   = core.Kernel("any")
	allKernel   = core.Kernel("all")
	countKernel = core.Kernel("count_nonzero")
)

// Any returns, as bool, whether any element of x over dims, or over all dimensions if there are none, is not zero. A NaN
// is not zero; of nothing the result is false.
func Any(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	return count("any", anyKernel, x, dims, keepdim, core.Bool)
}

// All returns, as bool, whether no element of x over dims, or over all dimensions if there are none, is zero. Of nothing
// the result is true.
func All(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	return count("all", allKernel, x, dims, keepdim, core.Bool)
}

// CountNonzero returns, as int64, the number of elements of x over dims, or over all dimensions if there are none, that
// are not zero.
func CountNonzero(x *core.Tensor, dims []int) *core.Tensor {
	return count("count_nonzero", countKernel, x, dims, false, core.Int64)
}

func count(name string, k core.KernelID, x *core.Tensor, dims []int, keepdim bool, d core.DType) *core.Tensor {
	a := beginTensor(name, x)
	r := a.reduction(x, dims, keepdim)
	if a.err != nil {
		return a.fail()
	}
	out := a.reduce(k, x, r, d)
	return a.done(out)
}
