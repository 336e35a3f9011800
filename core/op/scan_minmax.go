package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// CumMax returns the largest of the elements of x up to and with each along dim, and their indices as int64: the last
// of equal ones. From a NaN on, the result is NaN.
func CumMax(x *core.Tensor, dim int) (values, indices *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "cummax", x, dim)
	}
	return runningExtreme("cummax", contract.CumMax, x, dim)
}

// CumMin returns the smallest of the elements of x up to and with each along dim, and their indices as int64: the last
// of equal ones. From a NaN on, the result is NaN.
func CumMin(x *core.Tensor, dim int) (values, indices *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "cummin", x, dim)
	}
	return runningExtreme("cummin", contract.CumMin, x, dim)
}

func runningExtreme(name string, k core.KernelID, x *core.Tensor, dim int) (values, indices *core.Tensor) {
	op := begin(name, &x)
	dim = op.dim(dim, x)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	if x.Dim() == 0 {
		return Clone(x), fullLike(x, 0, core.Int64, x.Shape())
	}
	return op.choose(x, dim, x.Shape(), false, func(values, indices *core.Tensor) {
		op.launch(op.call(k).Out(values).Out(indices).In(x).Int(int64(dim)))
	})
}
