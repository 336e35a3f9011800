package cpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/core/op"
)

// side is the side of a float16 matrix of 512 KiB. A product packs it as 1 MiB of float32.
const side = 512

// product returns the product of two matrices on a device that no other test uses.
func product(t *testing.T, d core.Device) *core.Tensor {
	t.Helper()
	half := core.Float16
	x := op.Full([]int{side, side}, core.Num(0.5), op.TensorOptions{Device: d, DType: &half})
	return op.MatMul(x, x)
}

func requireProduct(t *testing.T, y *core.Tensor) {
	t.Helper()
	v, err := core.Values[float64](y)
	require.NoError(t, err)
	for _, x := range v {
		require.Equal(t, side/4.0, x)
	}
}

// warm leaves the device with the scratch memory of small calls, and nothing else.
func warm(t *testing.T, name string) *cpu.Device {
	t.Helper()
	d, err := core.OpenDevice(name)
	require.NoError(t, err)
	core.Tidy(func() { requireProduct(t, product(t, d)) })
	require.NoError(t, d.Synchronize())
	d.EmptyCache()
	return d.(*cpu.Device)
}

func TestWorkspaceIsCounted(t *testing.T) {
	d := warm(t, "cpu:70")
	require.Zero(t, core.MemoryUsage(d).Current)
	reserved := d.Reserved()
	core.ResetPeak(d)
	core.Tidy(func() { requireProduct(t, product(t, d)) })
	require.NoError(t, d.Synchronize())
	used := core.CategoryUsage(d, core.Workspace)
	require.GreaterOrEqual(t, used.Peak, 4*side*side)
	require.Less(t, used.Peak, 8*side*side)
	require.Equal(t, used, core.RankCategoryUsage(d, 0, core.Workspace))
	require.Zero(t, used.Current)
	require.GreaterOrEqual(t, core.MemoryUsage(d).Peak, used.Peak+2*2*side*side, "with both tensors")
	require.Zero(t, core.MemoryUsage(d).Current)
	require.GreaterOrEqual(t, d.Reserved()-reserved, used.Peak, "kept for the next call")
	d.EmptyCache()
	require.Equal(t, reserved, d.Reserved())
}

func TestNoRoomForWorkspace(t *testing.T) {
	d := warm(t, "cpu:71")
	core.Tidy(func() {
		d.SetMemoryLimit(d.Reserved() + 2*2*side*side + side*side) // enough for the tensors, but not for the packed matrix
		defer d.SetMemoryLimit(0)
		y := product(t, d)
		err := y.Wait()
		require.ErrorContains(t, err, "matmul: workspace: out of memory: no room for")
		require.ErrorContains(t, err, "on cpu:71")
		kind, _ := core.KindOf(err)
		require.Equal(t, core.MemoryError, kind)
		require.Zero(t, core.CategoryUsage(d, core.Workspace).Current)
		d.SetMemoryLimit(0)
		requireProduct(t, product(t, d))
	})
}

// Idle scratch memory is released when tensors need it.
func TestTensorsTakeIdleWorkspace(t *testing.T) {
	d := warm(t, "cpu:72")
	core.Tidy(func() {
		requireProduct(t, product(t, d))
		require.NoError(t, d.Synchronize())
		d.SetMemoryLimit(d.Reserved() + side*side)
		defer d.SetMemoryLimit(0)
		x := op.ZerosWith([]int{side, side}, op.TensorOptions{Device: d})
		require.NoError(t, x.Wait())
	})
}
