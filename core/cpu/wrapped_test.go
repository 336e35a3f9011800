package cpu_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TestWrappedMemoryGoesBack wraps memory that calls have finished with, and memory that one still writes.
func TestWrappedMemoryGoesBack(t *testing.T) {
	memory := make([]float32, large)
	released := make(chan struct{}, 1)
	wrap := func() *core.Tensor {
		m := core.CurrentMode()
		size := core.Memory{Ptr: unsafe.Pointer(&memory[0]), Size: 4 * large}
		st := core.WrapStorage(m.Context().Stream(device(t)), size, func() { released <- struct{}{} })
		defer st.Release()
		return core.WrapTensor(m, st, core.Float32, []int{large}, []int{1}, 0)
	}
	require.NoError(t, device(t).Synchronize())
	for range 3 {
		wrap().Release()
		select {
		case <-released:
		default:
			t.Fatal("an idle stream's memory is not back")
		}
	}
	core.Tidy(func() {
		x := wrap()
		for range 100 {
			op.AddInPlace(x, core.Num(1))
		}
		require.NoError(t, x.Err())
		x.Release()
	})
	<-released
	for _, v := range memory {
		require.Equal(t, float32(100), v)
	}
}
