package op_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

func TestAdoptKeepsALeafAndItsGradient(t *testing.T) {
	leaf := vector64(1, 2).SetRequiresGrad(true)
	require.NoError(t, autograd.Backward(op.Sum(op.Mul(leaf, leaf), nil, false)))
	require.NoError(t, leaf.Adopt(vector64(3, 4, 5)))
	require.Equal(t, []int{3}, leaf.Shape())
	require.True(t, leaf.RequiresGrad() && leaf.IsLeaf())
	require.Equal(t, []int{2}, leaf.Grad().Shape())
	leaf.SetGrad(nil)
	require.NoError(t, autograd.Backward(op.Sum(op.Mul(leaf, leaf), nil, false)))
	got, err := core.Values[float64](leaf.Grad())
	require.NoError(t, err)
	require.Equal(t, []float64{6, 8, 10}, got)
}

func TestAdoptRefuses(t *testing.T) {
	leaf := vector64(1, 2).SetRequiresGrad(true)
	result := op.Mul(leaf, leaf)
	require.ErrorContains(t, result.Adopt(vector64(1, 2, 3)), "set_: the shape and dtype of the result of an operation cannot change")
	require.NoError(t, result.Adopt(vector64(5, 6)))
	require.Error(t, leaf.Adopt(core.Num(1)))
	released := vector64(1)
	released.Release()
	require.ErrorContains(t, leaf.Adopt(released), "released")
}
