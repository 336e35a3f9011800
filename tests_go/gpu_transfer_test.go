package tests_go

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// A copy from GPU to GPU, and one to the host that is queued, does not wait for the value that it copies.
func TestCopiesBetweenGPUsAreQueued(t *testing.T) {
	needGPU(t)
	dev := func(name string) core.Device {
		d, err := core.OpenDevice(name)
		require.NoError(t, err)
		return d
	}
	core.ManualSeed(0)
	x := op.Ones(5).SetRequiresGrad(true)
	late := op.Mul(x, core.Num(3))
	open := make(chan struct{})
	s := core.CurrentContext().Stream(late.Device())
	call := s.Begin(-1, "wait")
	call.Out(late)
	call.InPlace = true
	call.Fn = func() error { <-open; return nil }
	call.Work = math.MaxInt32
	s.Launch(call)
	moved := make(chan *core.Tensor, 1)
	go func() {
		a := collective.ToDevice(late, dev("gpu:0"))
		b := collective.ToDevice(op.Mul(a, a), dev("gpu:1"))
		moved <- collective.ToDevice(b, dev("cpu:0"))
	}()
	var out *core.Tensor
	select {
	case out = <-moved:
	case <-time.After(limit):
		close(open)
		t.Fatal("a copy waits for its value")
	}
	require.False(t, out.WaitFor(0))
	close(open)
	got, err := core.Values[float32](out)
	require.NoError(t, err)
	require.Equal(t, []float32{9, 9, 9, 9, 9}, got)
	require.NoError(t, autograd.Backward(op.Sum(out, nil, false)))
	got, err = core.Values[float32](x.Grad())
	require.NoError(t, err)
	require.Equal(t, []float32{18, 18, 18, 18, 18}, got)
}

// The tangent of a value is copied with it, before either is computed.
func TestCopiesFromGPUsMoveTangents(t *testing.T) {
	needGPU(t)
	runtime.LockOSThread() // levels are their thread's
	defer runtime.UnlockOSThread()
	gpu, err := core.OpenDevice("gpu:0")
	require.NoError(t, err)
	l, err := core.EnterForward()
	require.NoError(t, err)
	x := op.Dual(op.ToDevice(core.FromSlice([]float32{1, 2}, 2), gpu), op.ToDevice(core.FromSlice([]float32{3, 4}, 2), gpu), l)
	cpu, err := core.OpenDevice("cpu:0")
	require.NoError(t, err)
	y := collective.ToDevice(op.Mul(x, x), cpu)
	got, err := core.Values[float32](op.Tangent(y, l))
	require.NoError(t, err)
	require.Equal(t, []float32{6, 16}, got)
	require.NoError(t, l.Exit())
}
