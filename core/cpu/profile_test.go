package cpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

func TestAProfileHasWhatStreamsRan(t *testing.T) {
	x := core.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
	p, err := core.StartProfile(true)
	require.NoError(t, err)
	_, err = core.StartProfile(false)
	require.ErrorContains(t, err, "another profile")
	y := op.Mul(x, x)
	require.NoError(t, y.Wait())
	list := p.Stop()
	require.Nil(t, core.ActiveProfile())
	require.Len(t, list, 1)
	e := list[0]
	require.Equal(t, "mul", e.Op)
	require.Equal(t, [][]int{{2, 2}, {2, 2}}, e.Shapes)
	require.Less(t, e.Start, e.End)
	require.Equal(t, "cpu:0", e.Stream.Device().String())
	require.NoError(t, op.Mul(x, x).Wait())
	require.Empty(t, p.Stop())
}

func TestAnAllocationThatMayNotWaitFailsAtOnce(t *testing.T) {
	asked := 0
	core.SetForeignLockHeld(func() bool { asked++; return true })
	defer core.SetForeignLockHeld(func() bool { return false })
	err := op.Zeros(1 << 50).Err()
	require.ErrorContains(t, err, "out of memory")
	kind, _ := core.KindOf(err)
	require.Equal(t, core.MemoryError, kind)
	require.Equal(t, 1, asked)
}
