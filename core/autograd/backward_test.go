package autograd_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

func leaf(v ...float64) *core.Tensor { return core.FromSlice(v).SetRequiresGrad(true) }

func values(t *testing.T, x *core.Tensor) []float64 {
	t.Helper()
	require.NotNil(t, x)
	v, err := core.Values[float64](x)
	require.NoError(t, err)
	return v
}

func ones(x *core.Tensor) []*core.Tensor { return []*core.Tensor{op.OnesLike(x, op.TensorOptions{})} }

func TestBackwardAddsToTheLeaves(t *testing.T) {
	x, y := leaf(2), leaf(3)
	z := op.Add(op.Mul(x, y), op.Mul(x, x))
	require.NoError(t, autograd.Backward(z))
	require.Equal(t, []float64{7}, values(t, x.Grad()))
	require.Equal(t, []float64{2}, values(t, y.Grad()))
	require.NoError(t, autograd.Backward(op.Mul(x, y)))
	require.Equal(t, []float64{10}, values(t, x.Grad()))
	require.Equal(t, core.Gradient.String(), "gradient")
}

func TestALeafThatNoLongerRequiresAGradientGetsNone(t *testing.T) {
	x, y := leaf(2), leaf(3)
	z := op.Mul(x, y)
	x.SetRequiresGrad(false)
	require.NoError(t, autograd.Backward(z))
	require.Nil(t, x.Grad())
	require.Equal(t, []float64{2}, values(t, y.Grad()))
}

func TestBackwardOfSeveralOutputs(t *testing.T) {
	x := leaf(1, 2)
	a, b := op.Mul(x, x), op.Add(x, x)
	g := core.FromSlice([]float64{10, 100})
	require.NoError(t, autograd.BackwardWith([]*core.Tensor{a, b}, []*core.Tensor{op.OnesLike(a, op.TensorOptions{}), g}, autograd.Options{}))
	require.Equal(t, []float64{22, 204}, values(t, x.Grad()))
}

func TestBackwardWantsAGradientForShapes(t *testing.T) {
	x := leaf(1, 2)
	require.ErrorContains(t, autograd.Backward(op.Mul(x, x)), "shape [2]")
	err := autograd.BackwardWith([]*core.Tensor{op.Mul(x, x)}, []*core.Tensor{core.FromSlice([]float64{1})}, autograd.Options{})
	require.ErrorContains(t, err, "want [2]")
	require.ErrorContains(t, autograd.Backward(core.FromSlice([]float64{1})), "does not require a gradient")
}

func TestGraphIsFreedUnlessRetained(t *testing.T) {
	x := leaf(3)
	y := op.Mul(x, x)
	require.NoError(t, autograd.BackwardWith([]*core.Tensor{y}, nil, autograd.Options{RetainGraph: true}))
	require.NoError(t, autograd.Backward(y))
	require.Equal(t, []float64{12}, values(t, x.Grad()))
	require.ErrorContains(t, autograd.Backward(y), "retain_graph")
}

func TestGradOfIntermediateAndUnused(t *testing.T) {
	x, unused := leaf(3), leaf(1)
	y := op.Mul(x, x)
	z := op.Mul(y, x)
	g, err := autograd.Grad([]*core.Tensor{z}, []*core.Tensor{y, x}, nil, autograd.Options{RetainGraph: true})
	require.NoError(t, err)
	require.Equal(t, []float64{3}, values(t, g[0]))
	require.Equal(t, []float64{27}, values(t, g[1]))
	require.Nil(t, x.Grad())
	_, err = autograd.Grad([]*core.Tensor{z}, []*core.Tensor{unused}, nil, autograd.Options{RetainGraph: true})
	require.ErrorContains(t, err, "do not depend on input 0")
	g, err = autograd.Grad([]*core.Tensor{z}, []*core.Tensor{unused}, nil, autograd.Options{AllowUnused: true})
	require.NoError(t, err)
	require.Nil(t, g[0])
}

func TestBackwardRestrictedToInputs(t *testing.T) {
	x, y := leaf(3), leaf(5)
	z := op.Mul(x, y)
	require.NoError(t, autograd.BackwardWith([]*core.Tensor{z}, nil, autograd.Options{Inputs: []*core.Tensor{y}}))
	require.Nil(t, x.Grad())
	require.Equal(t, []float64{3}, values(t, y.Grad()))
}

func TestHigherDerivatives(t *testing.T) {
	x := leaf(2)
	y := op.Mul(op.Mul(x, x), op.Mul(x, x))
	for _, want := range []float64{32, 48, 48, 24} {
		g, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{x}, nil, autograd.Options{CreateGraph: true})
		require.NoError(t, err)
		require.Equal(t, []float64{want}, values(t, g[0]))
		y = g[0]
	}
}

func TestInPlaceChangesOfSavedValuesAreFound(t *testing.T) {
	x := leaf(2)
	y := op.Add(x, x)
	z := op.Mul(y, y)
	op.AddInPlace(y, core.Num(1))
	require.ErrorContains(t, autograd.Backward(z), "modified by an in-place operation")
	require.ErrorContains(t, op.AddInPlace(x, y).Err(), "leaf that requires a gradient")
	core.NoGrad(func() { require.NoError(t, op.AddInPlace(x, core.Num(1)).Err()) })
}

func TestInPlaceOnAViewRebasesItsBase(t *testing.T) {
	x := leaf(1, 2, 3, 4)
	base := op.Add(x, x)
	view := op.AsStrided(base, []int{2}, []int{2}, 1) // elements 1 and 3
	other := op.AsStrided(base, []int{4}, []int{1}, 0)
	op.MulInPlace(view, core.FromSlice([]float64{10, 100}))
	require.Equal(t, []float64{2, 40, 6, 800}, values(t, base))
	require.NoError(t, autograd.BackwardWith([]*core.Tensor{base}, ones(base), autograd.Options{RetainGraph: true}))
	require.Equal(t, []float64{2, 20, 2, 200}, values(t, x.Grad()))
	x.SetGrad(nil)
	require.NoError(t, autograd.BackwardWith([]*core.Tensor{other}, ones(other), autograd.Options{RetainGraph: true}))
	require.Equal(t, []float64{2, 20, 2, 200}, values(t, x.Grad()))
	x.SetGrad(nil)
	require.NoError(t, autograd.BackwardWith([]*core.Tensor{view}, ones(view), autograd.Options{}))
	require.Equal(t, []float64{0, 20, 0, 200}, values(t, x.Grad()))
}

func TestInPlaceOnABaseReachesItsViews(t *testing.T) {
	x, w := leaf(1, 2, 3, 4), leaf(5, 6)
	base := core.FromSlice([]float64{0, 0, 0, 0})
	part := op.AsStrided(base, []int{2}, []int{1}, 2)
	require.False(t, base.RequiresGrad())
	op.AddInPlace(part, w)
	require.True(t, base.RequiresGrad())
	op.AddInPlace(base, x)
	z := op.Mul(part, part)
	require.Equal(t, []float64{64, 100}, values(t, z))
	require.NoError(t, autograd.BackwardWith([]*core.Tensor{z}, ones(z), autograd.Options{}))
	require.Equal(t, []float64{0, 0, 16, 20}, values(t, x.Grad()))
	require.Equal(t, []float64{16, 20}, values(t, w.Grad()))
}

func TestHooks(t *testing.T) {
	x := leaf(3)
	y := op.Mul(x, x)
	var order []string
	y.TensorHooks().Add(core.Hook{Fn: func(g *core.Tensor) *core.Tensor {
		order = append(order, "y")
		return op.Add(g, g)
	}})
	remove := x.TensorHooks().Add(core.Hook{Fn: func(g *core.Tensor) *core.Tensor {
		order = append(order, "x")
		return nil
	}})
	x.PostAccumulateHooks().Add(core.Hook{Fn: func(g *core.Tensor) *core.Tensor {
		require.Equal(t, []float64{24}, values(t, g))
		order = append(order, "ready")
		require.NoError(t, autograd.QueueCallback(func() error { order = append(order, "end"); return nil }))
		return nil
	}})
	y.RetainGrad()
	z := op.Add(y, y)
	require.NoError(t, autograd.Backward(z))
	require.Equal(t, []string{"y", "x", "ready", "end"}, order)
	require.Equal(t, []float64{4}, values(t, y.Grad()))
	remove()
	require.Error(t, autograd.QueueCallback(func() error { return nil }))
}

func TestForeignNodesAndHooksSuspendTheRun(t *testing.T) {
	x := leaf(3)
	n := core.NewNode(core.CurrentMode(), "python_function", nil, x)
	n.External = 42
	y := core.FromSlice([]float64{9})
	n.Attach(y, 0)
	n.Release()
	x.TensorHooks().Add(core.Hook{External: 7})
	z := op.Mul(y, y)
	require.ErrorContains(t, autograd.BackwardWith([]*core.Tensor{z}, nil, autograd.Options{RetainGraph: true}), "another language")
	r, err := autograd.NewRun([]*core.Tensor{z}, nil, autograd.Options{})
	require.NoError(t, err)
	defer r.Close()
	q, err := r.Step()
	require.NoError(t, err)
	require.Equal(t, autograd.WantDerivative, q.What)
	require.EqualValues(t, 42, q.ID)
	require.Equal(t, []float64{18}, values(t, q.Grads[0]))
	require.NoError(t, r.Resume([]*core.Tensor{op.Mul(q.Grads[0], core.FromSlice([]float64{6}))}))
	q, err = r.Step()
	require.NoError(t, err)
	require.EqualValues(t, 7, q.ID)
	require.NoError(t, r.Resume(nil))
	q, err = r.Step()
	require.NoError(t, err)
	require.Nil(t, q)
	require.Equal(t, []float64{108}, values(t, x.Grad()))
}

func TestCheckpointComputesTheSameGradient(t *testing.T) {
	x, w := leaf(2), leaf(3)
	runs := 0
	fn := func(in []*core.Tensor) []*core.Tensor {
		runs++
		h := op.Mul(in[0], w)
		return []*core.Tensor{op.Mul(h, h)}
	}
	y := op.Mul(autograd.Checkpoint(fn, x)[0], x) // w^2 x^3
	require.Equal(t, 1, runs)
	require.NoError(t, autograd.Backward(y))
	require.Equal(t, 2, runs)
	require.Equal(t, []float64{108}, values(t, x.Grad()))
	require.Equal(t, []float64{48}, values(t, w.Grad()))
}

func TestCustomDerivativeErrors(t *testing.T) {
	x := leaf(1, 2)
	boom := errors.New("boom")
	for name, deriv := range map[string]core.Deriv{
		"boom":           func(ctx *core.BackwardContext) { ctx.Fail(boom) },
		"internal error": func(ctx *core.BackwardContext) { panic("boom") },
		"want [2]":       func(ctx *core.BackwardContext) { ctx.Set(0, core.FromSlice([]float64{1})) },
	} {
		n := core.NewNode(core.CurrentMode(), "custom", deriv, x)
		y := core.FromSlice([]float64{1})
		n.Attach(y, 0)
		n.Release()
		require.ErrorContains(t, autograd.Backward(y), name)
	}
}

func TestDroppingAnOutputFreesItsGraph(t *testing.T) {
	dev, err := core.OpenDevice("cpu")
	require.NoError(t, err)
	x := leaf(make([]float64, 1000)...)
	defer x.Release()
	bytes := coretest.Settle(t, dev)
	y := x
	for range coretest.Rounds(10) * 10000 { // deep, so release must not recurse
		z := op.Mul(y, y)
		if y != x {
			y.Release()
		}
		y = z
	}
	require.Greater(t, core.MemoryUsage(dev).Current, bytes)
	y.Release()
	require.Equal(t, bytes, core.MemoryUsage(dev).Current)
}

func TestManyGoroutinesBuildAndFreeGraphs(t *testing.T) {
	dev, err := core.OpenDevice("cpu")
	require.NoError(t, err)
	w := leaf(1, 2, 3)
	defer w.Release()
	bytes := coretest.Settle(t, dev)
	var group sync.WaitGroup
	for range 1000 {
		group.Go(func() {
			core.Tidy(func() {
				x := core.FromSlice([]float64{1, 2, 3}).SetRequiresGrad(true)
				y := op.Mul(op.Add(x, w), x)
				g, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{x}, ones(y), autograd.Options{})
				if err != nil {
					t.Error(err)
				} else if v, err := core.Values[float64](g[0]); err != nil || v[2] != 9 {
					t.Error(v, err)
				}
				for _, r := range g {
					r.Release()
				}
			})
		})
	}
	group.Wait()
	require.Equal(t, bytes, core.MemoryUsage(dev).Current)
}

// OnClose functions run even after an error; callbacks do not.
func TestOnClose(t *testing.T) {
	require.Error(t, autograd.OnClose(func() {}), "outside of a pass")
	for _, fails := range []bool{false, true} {
		var closed, ended int
		x := op.Ones(2).SetRequiresGrad(true)
		y := op.Mul(x, core.Num(2.0))
		y.TensorHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
			require.NoError(t, autograd.OnClose(func() { closed++ }))
			require.NoError(t, autograd.QueueCallback(func() error { ended++; return nil }))
			if fails {
				return core.ErrorTensor(errors.New("out of luck"))
			}
			return nil
		}})
		err := autograd.Backward(op.Sum(y, nil, false))
		require.Equal(t, fails, err != nil)
		require.Equal(t, 1, closed)
		require.Equal(t, fails, ended == 0)
	}
}

// TestHiddenGradients checks who counts as one that sees a gradient.
func TestHiddenGradients(t *testing.T) {
	nothing := func(*core.Tensor) *core.Tensor { return nil }
	for name, c := range map[string]struct {
		see    func(y *core.Tensor)
		hidden bool
	}{
		"nobody":       {func(*core.Tensor) {}, true},
		"blind hook":   {func(y *core.Tensor) { y.TensorHooks().Add(core.Hook{Blind: true, Fn: nothing}) }, true},
		"removed hook": {func(y *core.Tensor) { y.TensorHooks().Add(core.Hook{Fn: nothing})() }, true},
		"hook":         {func(y *core.Tensor) { y.TensorHooks().Add(core.Hook{Fn: nothing}) }, false},
		"foreign hook": {func(y *core.Tensor) { y.TensorHooks().Add(core.Hook{External: 1}) }, false},
		"two hooks": {func(y *core.Tensor) {
			y.TensorHooks().Add(core.Hook{Blind: true, Fn: nothing})
			y.TensorHooks().Add(core.Hook{Fn: nothing})
		}, false},
		"retained": {func(y *core.Tensor) { y.RetainGrad() }, false},
		"before the node": {func(y *core.Tensor) {
			e := y.AutogradMeta().Edge()
			defer e.Node.Release()
			e.Node.PreHooks().Add(core.NodeHook{Fn: func(_, _ []*core.Tensor) []*core.Tensor { return nil }})
		}, false},
	} {
		y := op.Mul(leaf(3), core.Num(2))
		c.see(y)
		var hidden bool
		n := core.NewNode(core.CurrentMode(), "custom", func(ctx *core.BackwardContext) {
			hidden = ctx.Hidden(ctx.Node, 0)
			ctx.Set(0, core.FromSlice([]float64{1}))
		}, y)
		z := core.FromSlice([]float64{1})
		n.AttachLast(z, 0)
		if err := autograd.Backward(z); name != "foreign hook" {
			require.NoError(t, err, name)
		}
		require.Equal(t, c.hidden, hidden, name)
	}
}
