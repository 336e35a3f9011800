package autograd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

func TestAWalkGoesOnInTheScopeOfItsCaller(t *testing.T) {
	x := core.FromSlice([]float64{1, 2}).SetRequiresGrad(true)
	var r *Run
	core.Tidy(func() {
		core.Tidy(func() {
			y := op.Sum(op.Exp(op.Mul(x, x)), nil, false)
			var err error
			r, err = NewRun([]*core.Tensor{y.Keep()}, nil, Options{})
			require.NoError(t, err)
		})
		_, err := r.Step()
		require.NoError(t, err)
		require.Equal(t, core.CurrentMode(), core.CurrentMode().InScopeOf(r.mode))
	})
	r.Close()
	require.NotNil(t, x.Grad())
}
