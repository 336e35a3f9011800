package op

import "github.com/plait-ml/plait/core"

var (
	argMaxKernel = core.Kernel("argmax")
	argMinKernel = core.Kernel("argmin")
)

// ArgMax returns the indices, as int64, of the largest elements of x along a dimension, or in the flattened x if dims is
// empty. Of equal ones it is the first; a NaN counts as the largest.
func ArgMax(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	return arg("argmax", argMaxKernel, x, dims, keepdim)
}

// ArgMin returns the indices, as int64, of the smallest elements of x along a dimension, or in the flattened x if dims is
// empty. Of equal ones it is the first; a NaN counts as the smallest.
func ArgMin(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	return arg("argmin", argMinKernel, x, dims, keepdim)
}

func arg(name string, k core.KernelID, x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	a := begin(name, x)
	if len(dims) > 1 {
		a.failf(core.ValueError, "got dimensions %v, want one or none", dims)
	}
	r := a.reduction(x, dims, keepdim)
	a.nonempty(x, r)
	if a.err != nil {
		return a.fail()
	}
	return a.done(a.reduce(k, x, r, core.Int64))
}
