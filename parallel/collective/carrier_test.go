package collective

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TestCarrierWaitsOnlyForTheCopiedTensor blocks one copy. The next copy, from another device, must not wait for it.
func TestCarrierWaitsOnlyForTheCopiedTensor(t *testing.T) {
	dev := func(name string) core.Device {
		d, err := core.OpenDevice(name)
		require.NoError(t, err)
		return d
	}
	on := func(name string, v float32) *core.Tensor {
		return op.Full([]int{5}, core.Num(float64(v)), op.TensorOptions{Device: dev(name)})
	}
	c := NewCarrier()
	slow, fast := on("cpu:0", 1), on("cpu:1", 2)
	first, second := on("cpu:2", 0), on("cpu:2", 0)
	open := make(chan struct{})
	call := core.CurrentContext().Stream(dev("cpu:0")).Begin(-1, "wait")
	call.Out(slow)
	call.InPlace = true
	call.Fn = func() error { <-open; return nil }
	call.Work = math.MaxInt32
	core.CurrentContext().Stream(dev("cpu:0")).Launch(call)
	require.NoError(t, c.Copy(first, slow))
	require.NoError(t, c.Copy(second, fast))
	got, err := core.Values[float32](second)
	require.NoError(t, err)
	require.Equal(t, []float32{2, 2, 2, 2, 2}, got)
	close(open)
	got, err = core.Values[float32](first)
	require.NoError(t, err)
	require.Equal(t, []float32{1, 1, 1, 1, 1}, got)
	require.ErrorContains(t, c.Copy(first, second), "cannot copy")
	require.ErrorContains(t, c.Copy(op.Zeros(3), first), "cannot copy")
	require.NoError(t, c.Close())
}
