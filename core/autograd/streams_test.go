package autograd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// streams returns the CPU device and n streams of it.
func streams(t *testing.T, n int) (core.Device, []core.Stream) {
	t.Helper()
	dev, err := core.OpenDevice("cpu")
	require.NoError(t, err)
	list := make([]core.Stream, n)
	for i := range list {
		list[i] = dev.NewStream(0)
		t.Cleanup(func() { list[i].Close() })
	}
	return dev, list
}

// linger keeps the current stream of dev busy for a while.
func linger(dev core.Device) {
	c := core.CurrentContext().Stream(dev).Begin(-1, "linger")
	c.Work = 1 << 30
	c.Fn = func() error {
		time.Sleep(20 * time.Millisecond)
		return nil
	}
	core.CurrentContext().Stream(dev).Launch(c)
}

func TestDerivativesRunOnTheStreamsOfTheirOperations(t *testing.T) {
	dev, s := streams(t, 3)
	x := leaf(1, 2, 3)
	seen := map[string]core.Stream{}
	watch := func(name string, y *core.Tensor) {
		y.TensorHooks().Add(core.Hook{Fn: func(g *core.Tensor) *core.Tensor {
			linger(dev)
			seen[name] = core.CurrentContext().Stream(dev)
			return nil
		}})
	}
	var y, z, loss *core.Tensor
	core.WithStream(s[0], func() { y = op.Mul(x, x) })
	core.WithStream(s[1], func() { z = op.Mul(y, core.Num(10)) })
	loss = op.Sum(op.Add(y, z), nil, false)
	watch("y", y)
	watch("z", z)
	watch("loss", loss)
	core.WithStream(s[2], func() {
		require.NoError(t, autograd.Backward(loss))
		require.Equal(t, s[2], core.CurrentContext().Stream(dev))
	})
	require.Equal(t, map[string]core.Stream{"y": s[0], "z": s[1], "loss": core.CurrentContext().Stream(dev)}, seen)
	// The caller's stream waits for the gradients although nobody reads them.
	after := []core.Event{s[0].Record(), s[1].Record()}
	require.NoError(t, s[2].Synchronize())
	for _, e := range after {
		require.True(t, e.Done())
	}
	require.Equal(t, []float64{22, 44, 66}, values(t, x.Grad()))
}

func TestGradientsFromSeveralStreamsAdd(t *testing.T) {
	dev, s := streams(t, 3)
	for range 20 {
		x := leaf(1, 2, 3)
		var parts []*core.Tensor
		for i, stream := range s[:2] {
			core.WithStream(stream, func() {
				y := op.Mul(x, core.Num(float64(i+1)))
				y.TensorHooks().Add(core.Hook{Fn: func(g *core.Tensor) *core.Tensor {
					linger(dev)
					return op.Mul(g, core.Num(2))
				}})
				parts = append(parts, y)
			})
		}
		total := op.Add(parts[0], parts[1])
		core.WithStream(s[2], func() {
			g, err := autograd.Grad([]*core.Tensor{total}, []*core.Tensor{x}, ones(total), autograd.Options{RetainGraph: true})
			require.NoError(t, err)
			require.Equal(t, []float64{6, 6, 6}, values(t, op.Add(g[0], core.Num(0))))
			require.NoError(t, autograd.BackwardWith([]*core.Tensor{total}, ones(total), autograd.Options{}))
		})
		require.Equal(t, []float64{6, 6, 6}, values(t, x.Grad()))
	}
}

func TestADerivativeOfADerivativeRunsOnItsStream(t *testing.T) {
	_, s := streams(t, 2)
	x := leaf(2)
	var y *core.Tensor
	core.WithStream(s[0], func() { y = op.Mul(op.Mul(x, x), x) })
	var first []*core.Tensor
	core.WithStream(s[1], func() {
		var err error
		first, err = autograd.Grad([]*core.Tensor{y}, []*core.Tensor{x}, nil, autograd.Options{CreateGraph: true})
		require.NoError(t, err)
	})
	second, err := autograd.Grad(first, []*core.Tensor{x}, nil, autograd.Options{})
	require.NoError(t, err)
	require.Equal(t, []float64{12}, values(t, second[0]))
}

func TestTidyReleasesTheGradientsThatGradReturns(t *testing.T) {
	x := leaf(3)
	var inside, kept, retained *core.Tensor
	core.Tidy(func() {
		y := op.Mul(x, x)
		y.RetainGrad()
		g, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{x}, nil, autograd.Options{CreateGraph: true})
		require.NoError(t, err)
		inside = g[0]
		g, err = autograd.Grad([]*core.Tensor{y}, []*core.Tensor{x}, nil, autograd.Options{RetainGraph: true})
		require.NoError(t, err)
		kept = g[0].Keep()
		require.NoError(t, autograd.Backward(y))
		retained = x.Grad()
	})
	require.ErrorContains(t, inside.Usable("test"), "released")
	require.Equal(t, []float64{6}, values(t, kept))
	require.Equal(t, []float64{6}, values(t, retained))
}

// TestBackwardLeavesNoMemoryBehind: a pass releases everything it made, even without a scope.
func TestBackwardLeavesNoMemoryBehind(t *testing.T) {
	dev, err := core.OpenDevice("cpu")
	require.NoError(t, err)
	x := leaf(make([]float64, 1000)...)
	run := func() {
		y := op.Exp(x)
		z := op.Sum(y, nil, false)
		require.NoError(t, autograd.Backward(z))
		y.Release()
		z.Release()
	}
	run()
	before := coretest.Settle(t, dev)
	for range 10 {
		run()
	}
	require.Equal(t, before, core.MemoryUsage(dev).Current)
}

func TestWorkerHasItsOwnGenerators(t *testing.T) {
	d, err := core.OpenDevice("cpu:0")
	require.NoError(t, err)
	c := core.CurrentContext()
	w := c.Worker(7)
	defer w.Free()
	before, at := c.Generator(d).State()
	require.Same(t, c.Stream(d), w.Stream(d))
	seed, _ := w.Generator(d).Next(4)
	require.EqualValues(t, 7, seed)
	after, now := c.Generator(d).State()
	require.Equal(t, []uint64{before, at}, []uint64{after, now})
}
