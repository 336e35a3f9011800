package optim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/optim"
)

// What looks at parameters or gradients as wholes refuses a rank's part of one.
func TestPartsOfParameters(t *testing.T) {
	part := func() *core.Tensor {
		p := core.FromSlice([]float64{1, 2, 3, 4}, 2, 2).SetRequiresGrad(true)
		p.Divide(&core.Division{Whole: "parameter w"})
		p.SetGrad(core.FromSlice([]float64{1, 1, 1, 1}, 2, 2).Divide(&core.Division{Whole: "the gradient of parameter w"}))
		return p
	}
	for _, name := range []string{"muon", "adafactor", "lbfgs"} {
		_, err := optim.New(name, optim.Hyper{}, optim.Params{Tensors: []*core.Tensor{part()}})
		require.ErrorContains(t, err, "it looks at parameters as wholes, and parameter w is sharded over ranks")
	}
	p := part()
	o, err := optim.New("adamw", optim.Hyper{}, optim.Params{Tensors: []*core.Tensor{p}})
	require.NoError(t, err)
	require.NoError(t, o.Step())
	require.ErrorContains(t, optim.ClipGradNorm([]*core.Tensor{p}, 1, optim.ClipOptions{}).Err(), "the gradient of parameter w is sharded over ranks")

	s := optim.NewGradScaler()
	_, err = s.Step(o)
	require.ErrorContains(t, err, "the gradient of parameter w is sharded over ranks, which have to leave a step out together")
	s.FoundElsewhere(o, core.FromSlice([]float64{1}))
	finite, err := s.Step(o)
	require.NoError(t, err)
	require.False(t, finite)
}
