package autograd_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// block is a residual block with a normalisation. It uses its weights twice.
func block(x *core.Tensor, w []*core.Tensor) *core.Tensor {
	h := op.Linear(x, w[0], w[1])
	h = op.Tanh(op.LayerNorm(h, []int{4}, w[2], w[3], 1e-5))
	return op.Add(x, op.Linear(h, w[0], nil))
}

func weights() []*core.Tensor {
	w := []*core.Tensor{op.Rand(4, 4), op.Rand(4), op.Rand(4), op.Rand(4)}
	for _, t := range w {
		t.SetRequiresGrad(true)
	}
	return w
}

func TestGradientsOfSomeFirst(t *testing.T) {
	w := weights()
	x := op.Rand(3, 4).SetRequiresGrad(true)
	require.NoError(t, autograd.Backward(op.Sum(block(block(x, w), w), nil, false)))
	var want [][]float64
	for _, p := range append(w, x) {
		want = append(want, values(t, p.Grad()))
		p.SetGrad(nil)
	}

	y := op.Sum(block(block(x, w), w), nil, false)
	r, err := autograd.NewRun([]*core.Tensor{y}, nil, autograd.Options{First: []*core.Tensor{x}})
	require.NoError(t, err)
	defer r.Close()
	q, err := r.Step()
	require.NoError(t, err)
	require.Nil(t, q)
	assert.Equal(t, want[4], values(t, x.Grad()))
	for _, p := range w {
		assert.Nil(t, p.Grad())
	}
	r.Rest()
	q, err = r.Step()
	require.NoError(t, err)
	require.Nil(t, q)
	for i, p := range w {
		assert.Equal(t, want[i], values(t, p.Grad()), i)
	}
	assert.Equal(t, want[4], values(t, x.Grad()))
}

// TestFirstNeedsNothing: a pass whose first part has nothing to do, and one without a second part.
func TestFirstNeedsNothing(t *testing.T) {
	w := weights()
	x := op.Rand(3, 4)
	other := op.Rand(2).SetRequiresGrad(true)
	for _, first := range [][]*core.Tensor{{}, {x}, {other}} {
		for _, p := range w {
			p.SetGrad(nil)
		}
		r, err := autograd.NewRun([]*core.Tensor{op.Sum(block(x, w), nil, false)}, nil, autograd.Options{First: first})
		require.NoError(t, err)
		_, err = r.Step()
		require.NoError(t, err)
		assert.Nil(t, w[0].Grad())
		r.Rest()
		_, err = r.Step()
		require.NoError(t, err)
		assert.NotNil(t, w[0].Grad())
		r.Close()
	}
	assert.Nil(t, other.Grad())

	x.SetRequiresGrad(true)
	r, err := autograd.NewRun([]*core.Tensor{op.Sum(op.Tanh(x), nil, false)}, nil, autograd.Options{First: []*core.Tensor{x}})
	require.NoError(t, err)
	defer r.Close()
	_, err = r.Step()
	require.NoError(t, err)
	assert.NotNil(t, x.Grad())
	r.Rest()
	_, err = r.Step()
	require.NoError(t, err)
}

// TestHooksRunOnceInDividedWalks counts the calls of hooks in a pass with two parts.
func TestHooksRunOnceInDividedWalks(t *testing.T) {
	w := weights()
	x := op.Rand(3, 4).SetRequiresGrad(true)
	h := op.Linear(x, w[0], w[1])
	var tensor, before, after int
	h.TensorHooks().Add(core.Hook{Fn: func(g *core.Tensor) *core.Tensor { tensor++; return op.Mul(g, core.Num(2)) }})
	e := h.AutogradMeta().Edge()
	defer e.Node.Release()
	e.Node.PreHooks().Add(core.NodeHook{Fn: func(_, _ []*core.Tensor) []*core.Tensor { before++; return nil }})
	r, err := autograd.NewRun([]*core.Tensor{op.Sum(h, nil, false)}, nil, autograd.Options{First: []*core.Tensor{x}})
	require.NoError(t, err)
	defer r.Close()
	_, err = r.Step()
	require.NoError(t, err)
	assert.Nil(t, w[1].Grad())
	r.Rest()
	_, err = r.Step()
	require.NoError(t, err)
	assert.Equal(t, []float64{6, 6, 6, 6}, values(t, w[1].Grad()))

	h = op.Linear(x, w[0], w[1])
	e2 := h.AutogradMeta().Edge()
	defer e2.Node.Release()
	e2.Node.PostHooks().Add(core.NodeHook{Fn: func(grads, _ []*core.Tensor) []*core.Tensor {
		after++
		assert.NotNil(t, grads[0])
		assert.NotNil(t, grads[1])
		return nil
	}})
	r, err = autograd.NewRun([]*core.Tensor{op.Sum(h, nil, false)}, nil, autograd.Options{First: []*core.Tensor{x}})
	require.NoError(t, err)
	defer r.Close()
	_, err = r.Step()
	require.NoError(t, err)
	r.Rest()
	_, err = r.Step()
	require.NoError(t, err)
	assert.Equal(t, []int{1, 1, 1}, []int{tensor, before, after})
}

// TestForeignValuesAreAskedForOnce: nodes with saved tensors of another language run in the first part, for all their inputs.
func TestForeignValuesAreAskedForOnce(t *testing.T) {
	w := op.Rand(4, 4).SetRequiresGrad(true)
	x := op.Rand(3, 4).SetRequiresGrad(true)
	f := &core.ExternalSaver{Drop: func(uint64) {}}
	var y *core.Tensor
	core.WithSavedHooks(f.Hooks(), func() { y = op.Sum(op.Linear(x, w, nil), nil, false) })
	kept := map[uint64]*core.Tensor{}
	for v := f.Next(); v != nil; v = f.Next() {
		key := uint64(len(kept) + 1)
		kept[key] = v.Value().Keep()
		v.Packed(key)
	}
	r, err := autograd.NewRun([]*core.Tensor{y}, nil, autograd.Options{First: []*core.Tensor{x}})
	require.NoError(t, err)
	defer r.Close()
	asked := 0
	for part := range 2 {
		for {
			q, err := r.Step()
			require.NoError(t, err)
			if q == nil {
				break
			}
			require.Zero(t, part)
			var answer []*core.Tensor
			for _, id := range q.IDs {
				answer = append(answer, kept[id].Alias(false).Keep())
			}
			asked += len(answer)
			require.NoError(t, r.Resume(answer))
		}
		require.NotNil(t, x.Grad())
		r.Rest()
	}
	require.Equal(t, len(kept), asked)
	require.NotNil(t, w.Grad())
}

// TestCheckpointsRunOnceInDividedWalks: a checkpoint is recomputed in the first part only.
func TestCheckpointsRunOnceInDividedWalks(t *testing.T) {
	w := weights()
	x := op.Rand(3, 4).SetRequiresGrad(true)
	require.NoError(t, autograd.Backward(op.Sum(block(x, w), nil, false)))
	want := values(t, w[0].Grad())
	w[0].SetGrad(nil)
	calls := 0
	out := autograd.Checkpoint(func(in []*core.Tensor) []*core.Tensor {
		calls++
		return []*core.Tensor{block(in[0], w)}
	}, x)
	r, err := autograd.NewRun([]*core.Tensor{op.Sum(out[0], nil, false)}, nil, autograd.Options{First: []*core.Tensor{x}})
	require.NoError(t, err)
	defer r.Close()
	_, err = r.Step()
	require.NoError(t, err)
	r.Rest()
	_, err = r.Step()
	require.NoError(t, err)
	assert.Equal(t, want, values(t, w[0].Grad()))
	assert.Equal(t, 2, calls)
}

// TestEmptiedBetweenParts empties a weight after the first part. The second part refills it through a function, and nothing else does.
func TestEmptiedBetweenParts(t *testing.T) {
	a, b := op.Rand(4, 4).SetRequiresGrad(true), op.Rand(4, 4).SetRequiresGrad(true)
	x := op.Rand(3, 4).SetRequiresGrad(true)
	loss := func() *core.Tensor { return op.Sum(op.MatMul(x, op.MatMul(a, b)), nil, false) }
	require.NoError(t, autograd.Backward(loss()))
	want := values(t, a.Grad())
	a.SetGrad(nil)
	kept := values(t, b)
	for _, refilled := range []bool{true, false} {
		var parts []string
		r, err := autograd.NewRun([]*core.Tensor{loss()}, nil, autograd.Options{First: []*core.Tensor{x}})
		require.NoError(t, err)
		fill := func(s *core.Storage, node uint64) (bool, error) {
			assert.Same(t, b.Storage(), s)
			assert.NotZero(t, node)
			if !refilled {
				return false, nil
			}
			version := s.Version()
			require.NoError(t, s.Refill())
			core.NoGrad(func() { op.CopyInPlace(b.Detach(), core.FromSlice(kept, 4, 4)) })
			s.SetVersion(version)
			return true, nil
		}
		r.RefillWith(fill)
		assert.True(t, r.FirstPart())
		assert.True(t, r.Awaits(a))
		hook := x.PostAccumulateHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
			require.NoError(t, autograd.QueuePartCallback(func() error { parts = append(parts, "first"); return nil }))
			require.NoError(t, autograd.QueueCallback(func() error { parts = append(parts, "all"); return nil }))
			return nil
		}})
		_, err = r.Step()
		hook()
		require.NoError(t, err)
		assert.Equal(t, []string{"first"}, parts)
		b.Storage().Empty()
		require.ErrorContains(t, op.Neg(b).Err(), "whose storage was emptied")
		r.Rest()
		assert.True(t, r.SecondPart())
		_, err = r.Step()
		r.Close()
		if !refilled {
			require.ErrorContains(t, err, "whose storage was emptied")
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, want, values(t, a.Grad()))
		assert.Equal(t, []string{"first", "all"}, parts)
		assert.False(t, r.Awaits(a))
		a.SetGrad(nil)
	}
	require.ErrorContains(t, autograd.QueuePartCallback(func() error { return nil }), "no backward pass is running")
}
