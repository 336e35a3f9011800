package autograd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// unrolled returns the losses of a recurrence, one for each step.
func unrolled(w, state *core.Tensor, steps int) []*core.Tensor {
	losses := make([]*core.Tensor, steps)
	for i := range losses {
		state = op.Tanh(op.Mul(state, w))
		losses[i] = op.Sum(state, nil, false)
	}
	return losses
}

func TestAWalkIsPreparedInOneSweep(t *testing.T) {
	for _, steps := range []int{10, 100} {
		w := core.FromSlice([]float64{0.5, 2}).SetRequiresGrad(true)
		start := core.FromSlice([]float64{1, 1}).SetRequiresGrad(true)
		losses := unrolled(w, start, steps)
		for name, o := range map[string]Options{"inputs": {Inputs: []*core.Tensor{start}}, "first": {First: []*core.Tensor{start}}} {
			r, err := NewRun(losses, nil, o)
			require.NoError(t, err)
			require.Equal(t, len(r.states), r.visits, "%s of %d steps", name, steps)
			require.True(t, r.Visits(losses[steps-1].AutogradMeta().Edge().Node))
			r.Close()
		}
	}
}

func TestGradientsOfAnUnrolledRecurrence(t *testing.T) {
	w := core.FromSlice([]float64{0.5}).SetRequiresGrad(true)
	start := core.FromSlice([]float64{1}).SetRequiresGrad(true)
	losses := unrolled(w, start, 20)
	got, err := Grad(losses, []*core.Tensor{start}, nil, Options{RetainGraph: true})
	require.NoError(t, err)
	require.NoError(t, Backward(losses...))
	want, err := core.Values[float64](start.Grad())
	require.NoError(t, err)
	have, err := core.Values[float64](got[0])
	require.NoError(t, err)
	require.Equal(t, want, have)
}
