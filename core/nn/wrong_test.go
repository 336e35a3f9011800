package nn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
)

func TestNilsAndNumbersAreErrors(t *testing.T) {
	core.Tidy(func() {
		for name, l := range map[string]nn.Layer{
			"linear":         nn.NewLinear(3, 3, nn.LinearOptions{}),
			"batch norm":     nn.NewBatchNorm2d(3, nn.BatchNormOptions{}),
			"layer norm":     nn.NewLayerNorm([]int{3}, nn.NormOptions{}),
			"sequential":     nn.NewSequential(nn.NewTanh()),
			"nil sequential": nn.NewSequential(nil),
		} {
			require.NotPanics(t, func() { require.Error(t, l.Forward(nil).Err(), name) }, name)
		}
		require.ErrorContains(t, nn.NewSequential(nil).Forward(core.Num(1)).Err(), "layer 0 is nil")
		require.ErrorContains(t, autograd.Backward(core.Num(1)), "number")
		_, err := autograd.Grad([]*core.Tensor{core.Num(1)}, []*core.Tensor{core.Num(2)}, nil, autograd.Options{})
		require.ErrorContains(t, err, "number")
	})
}
