package autograd_test

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

// Devices take turns: neither runs all its nodes before the other starts.
func TestDevicesTakeTurns(t *testing.T) {
	const length = 20
	var order []int
	first, err := core.OpenDevice("cpu:0")
	require.NoError(t, err)
	sums := make([]*core.Tensor, 2)
	for i := range sums {
		d, err := core.OpenDevice([]string{"cpu:0", "cpu:1"}[i])
		require.NoError(t, err)
		x := op.ToDevice(core.FromSlice([]float32{1, 2}), d).Detach().SetRequiresGrad(true)
		for range length {
			x = op.Mul(x, core.Num(2))
			x.TensorHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
				order = append(order, i)
				return nil
			}})
		}
		sums[i] = op.ToDevice(op.Sum(x, nil, false), first)
	}
	require.NoError(t, autograd.Backward(op.Add(sums[0], sums[1])))
	require.Len(t, order, 2*length)
	lead := 0
	for _, d := range order {
		lead += 2*d - 1
		require.LessOrEqual(t, max(lead, -lead), 3, order)
	}
}
