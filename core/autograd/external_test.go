package autograd_test

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

func TestValuesOfAnotherLanguageAreAskedFor(t *testing.T) {
	var dropped []uint64
	f := &core.ExternalSaver{Drop: func(key uint64) { dropped = append(dropped, key) }}
	x := leaf(3)
	var y *core.Tensor
	core.WithSavedHooks(f.Hooks(), func() {
		y = op.Mul(x, x)
		require.True(t, core.ExternalWaiting())
	})
	require.False(t, core.ExternalWaiting(), "it is the thread's own hooks that count")
	kept := map[uint64]*core.Tensor{}
	for v := f.Next(); v != nil; v = f.Next() {
		key := uint64(len(kept) + 1)
		kept[key] = v.Value().Keep()
		v.Packed(key)
		require.Nil(t, v.Value())
	}
	require.NotEmpty(t, kept)

	r, err := autograd.NewRun([]*core.Tensor{y}, nil, autograd.Options{})
	require.NoError(t, err)
	defer r.Close()
	asked := 0
	for {
		q, err := r.Step()
		require.NoError(t, err)
		if q == nil {
			break
		}
		require.Equal(t, autograd.WantSaved, q.What)
		var answer []*core.Tensor
		for _, id := range q.IDs {
			answer = append(answer, kept[id].Alias(false).Keep())
		}
		asked += len(answer)
		require.NoError(t, r.Resume(answer))
	}
	require.Equal(t, len(kept), asked)
	require.Equal(t, []float64{6}, values(t, x.Grad()))
	require.Len(t, dropped, len(kept))

	core.WithSavedHooks(f.Hooks(), func() { y = op.Exp(x) })
	f.Next().Packed(9)
	require.ErrorContains(t, autograd.Backward(y), "another language")
	y.Release()
	require.Contains(t, dropped, uint64(9))
}

func TestValuesThatNobodyPackedStay(t *testing.T) {
	f := &core.ExternalSaver{Drop: func(uint64) { t.Error("nothing was packed") }}
	x := leaf(0)
	var y *core.Tensor
	core.WithSavedHooks(f.Hooks(), func() { y = op.Exp(x) })
	f.Forget()
	require.NoError(t, autograd.Backward(y))
	require.Equal(t, []float64{1}, values(t, x.Grad()))
}

func TestHooksAreDroppedOnce(t *testing.T) {
	drops := map[string]int{}
	drop := func(name string) func() { return func() { drops[name]++ } }
	x := leaf(1)
	remove := x.TensorHooks().Add(core.Hook{Drop: drop("removed")})
	remove()
	remove()
	require.Equal(t, map[string]int{"removed": 1}, drops)
	x.PostAccumulateHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor { return nil }, Drop: drop("leaf")})
	y := op.Exp(x)
	y.TensorHooks().Add(core.Hook{Drop: drop("tensor")})
	n := y.AutogradMeta().Edge().Node
	n.PostHooks().Add(core.NodeHook{Drop: drop("node")})
	n.Edges()[0].Node.PreHooks().Add(core.NodeHook{Drop: drop("accumulating node")})
	n.Release()
	require.Len(t, drops, 1)
	y.Release()
	require.Equal(t, map[string]int{"removed": 1, "tensor": 1, "node": 1}, drops)
	x.Release()
	require.Equal(t, map[string]int{"removed": 1, "tensor": 1, "node": 1, "leaf": 1, "accumulating node": 1}, drops)
}

func TestHooksAfterANodeSeeBothSides(t *testing.T) {
	x := leaf(3)
	y := op.Mul(x, core.Num(2))
	n := y.AutogradMeta().Edge().Node
	defer n.Release()
	n.PostHooks().Add(core.NodeHook{Fn: func(g, after []*core.Tensor) []*core.Tensor {
		require.Equal(t, []float64{2}, values(t, g[0]))
		require.Equal(t, []float64{1}, values(t, after[0]))
		return nil
	}})
	require.NoError(t, autograd.Backward(y))
	require.Equal(t, []float64{2}, values(t, x.Grad()))
}

func TestRetainedGradientsFollowAChangeInPlace(t *testing.T) {
	x := leaf(3)
	y := op.Mul(x, core.Num(2))
	y.RetainGrad()
	op.MulInPlace(y, core.Num(5))
	require.True(t, y.RetainsGrad())
	z := op.Mul(y, core.Num(7))
	require.NoError(t, autograd.BackwardWith([]*core.Tensor{z}, nil, autograd.Options{RetainGraph: true}))
	require.Equal(t, []float64{7}, values(t, y.Grad()))
	require.NoError(t, autograd.Backward(z))
	require.Equal(t, []float64{14}, values(t, y.Grad()))
}

func TestInferenceTensorsStayOutOfGraphs(t *testing.T) {
	x := leaf(3)
	var made *core.Tensor
	core.WithMode(func(m core.Mode) core.Mode { return m.WithInference(true) }, func() { made = op.Exp(x) })
	require.True(t, made.Storage().Inference())
	require.ErrorContains(t, op.Mul(x, made).Err(), "cannot be saved for backward")
	require.ErrorContains(t, op.MulInPlace(op.Mul(x, core.Num(1)), made).Err(), "cannot be saved for backward")
	require.ErrorContains(t, op.AddInPlace(made, core.Num(1)).Err(), "outside InferenceMode")
	require.ErrorContains(t, made.SetRequiresGrad(true).Err(), "outside InferenceMode")
	require.NoError(t, op.Add(x, made).Err())
	require.NoError(t, op.Mul(x, op.Clone(made)).Err())
}
