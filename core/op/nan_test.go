package op_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// TestGradientsOfNaN: where a result is NaN a gradient is too, so that who looks at gradients alone, such as a scaler of losses, finds it.
func TestGradientsOfNaN(t *testing.T) {
	one := core.FromSlice([]float64{1, 1, 1})
	for name, fn := range map[string]func(x *core.Tensor) *core.Tensor{
		"smooth_l1_loss": func(x *core.Tensor) *core.Tensor { return op.SmoothL1Loss(x, one, "sum", 1) },
		"huber_loss":     func(x *core.Tensor) *core.Tensor { return op.HuberLoss(x, one, "sum", 1) },
		"mse_loss":       func(x *core.Tensor) *core.Tensor { return op.MSELoss(x, one, "sum") },
		"amax":           func(x *core.Tensor) *core.Tensor { return op.Amax(x, nil, false) },
		"amin":           func(x *core.Tensor) *core.Tensor { return op.Amin(x, nil, false) },
		"infinity norm":  func(x *core.Tensor) *core.Tensor { return op.VectorNorm(x, math.Inf(1), nil, op.ReduceOptions{}) },
		"logsumexp":      func(x *core.Tensor) *core.Tensor { return op.LogSumExp(x, nil, false) },
	} {
		x := core.FromSlice([]float64{3, math.NaN(), 1}).SetRequiresGrad(true)
		y := fn(x)
		require.NoError(t, y.Err(), name)
		require.NoError(t, autograd.Backward(y))
		g, err := core.Values[float64](x.Grad())
		require.NoError(t, err)
		require.True(t, math.IsNaN(g[1]), "%s: %v", name, g)
	}
}

// TestGradientsOfNormsWithNaN: the gradient of every element has the norm in it, that of 0 too.
func TestGradientsOfNormsWithNaN(t *testing.T) {
	for _, p := range []float64{3, 2, 1.5, 0.5, -1} {
		x := core.FromSlice([]float64{0, math.NaN(), 1}).SetRequiresGrad(true)
		require.NoError(t, autograd.Backward(op.VectorNorm(x, p, nil, op.ReduceOptions{})))
		for i, g := range values(t, x.Grad()) {
			require.True(t, math.IsNaN(g), "p = %v: element %d has the gradient %v", p, i, g)
		}
	}
	for _, p := range []float64{3, 2, 1.5, 0.5} {
		x := core.FromSlice([]float64{0, 0}).SetRequiresGrad(true)
		require.NoError(t, autograd.Backward(op.VectorNorm(x, p, nil, op.ReduceOptions{})))
		require.Equal(t, []float64{0, 0}, values(t, x.Grad()), "p = %v", p)
	}
}
