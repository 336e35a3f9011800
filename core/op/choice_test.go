package op_test

import (
	"math"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// TestEvenGradients: all elements that equal the chosen one share its gradient, and NaNs that of a NaN. The numbers are PyTorch's.
func TestEvenGradients(t *testing.T) {
	even := op.ChoiceOptions{Even: true}
	largest := func(x *core.Tensor) *core.Tensor { return op.AmaxWith(x, nil, even) }
	smallest := func(x *core.Tensor) *core.Tensor { return op.AminWith(x, nil, even) }
	median := func(x *core.Tensor) *core.Tensor { return first(op.MedianWith(op.Ravel(x), 0, even)) }
	nanMedian := func(x *core.Tensor) *core.Tensor { return first(op.NanMedianWith(op.Ravel(x), 0, even)) }
	rows := func(x *core.Tensor) *core.Tensor {
		return first(op.MedianWith(x, 1, op.ChoiceOptions{Even: true, KeepDim: true}))
	}
	for _, c := range []struct {
		fn   func(x *core.Tensor) *core.Tensor
		x    []float64 // of shape [2, 3]
		want []float64
	}{
		{largest, []float64{1, 3, 3, 3, 0, 3}, []float64{0, 0.25, 0.25, 0.25, 0, 0.25}},
		{largest, []float64{1, nan, 3, 3, 3, nan}, []float64{0, 0.5, 0, 0, 0, 0.5}},
		{smallest, []float64{1, nan, 3, 3, 3, nan}, []float64{0, 0.5, 0, 0, 0, 0.5}},
		{smallest, []float64{0, math.Copysign(0, -1), 3, 3, 3, 1}, []float64{0.5, 0.5, 0, 0, 0, 0}},
		{largest, []float64{math.Inf(1), 1, 2, math.Inf(1), 0, math.Inf(-1)}, []float64{0.5, 0, 0, 0.5, 0, 0}},
		{median, []float64{1, 3, 3, 3, 0, 3}, []float64{0, 0.25, 0.25, 0.25, 0, 0.25}},
		{median, []float64{1, nan, 3, 3, 3, nan}, []float64{0, 0.5, 0, 0, 0, 0.5}},
		{nanMedian, []float64{1, nan, 3, 3, 4, nan}, []float64{0, 0, 0.5, 0.5, 0, 0}},
		{nanMedian, []float64{nan, nan, nan, nan, nan, nan}, []float64{1. / 6, 1. / 6, 1. / 6, 1. / 6, 1. / 6, 1. / 6}},
		{rows, []float64{2, 2, 5, nan, 1, 1}, []float64{0.5, 0.5, 0, 1, 0, 0}},
	} {
		x := core.FromSlice(c.x, 2, 3).SetRequiresGrad(true)
		if err := autograd.Backward(op.Sum(c.fn(x), nil, false)); err != nil {
			t.Fatal(err)
		}
		requireElements(t, c.want, x.Grad())
	}
}

func first(values, _ *core.Tensor) *core.Tensor { return values }
