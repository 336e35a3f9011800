package op_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A result of integers is int64, unless another dtype is asked for, their own among them.
func TestOwnDtypes(t *testing.T) {
	for _, d := range []core.DType{core.Uint8, core.Int32, core.Bool} {
		x := op.To(core.FromSlice([]int64{1, 0, 1}), d)
		for name, f := range map[string]func(*core.DType) *core.Tensor{
			"sum":     func(d *core.DType) *core.Tensor { return op.SumWith(x, nil, op.ReduceOptions{DType: d}) },
			"prod":    func(d *core.DType) *core.Tensor { return op.ProdWith(x, nil, op.ReduceOptions{DType: d}) },
			"cumsum":  func(d *core.DType) *core.Tensor { return op.CumSumWith(x, 0, op.ScanOptions{DType: d}) },
			"cumprod": func(d *core.DType) *core.Tensor { return op.CumProdWith(x, 0, op.ScanOptions{DType: d}) },
		} {
			require.Equal(t, core.Int64, f(nil).DType(), name)
			require.Equal(t, d, f(&d).DType(), "%s of %v", name, d)
		}
	}
}
