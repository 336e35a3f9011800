package autograd_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

func TestAnomalyModeNamesTheOperation(t *testing.T) {
	x := leaf(1, -1)
	autograd.DetectAnomaly(func() {
		y := op.Log(x)
		require.ErrorContains(t, y.Err(), "log: made a NaN at element 1")
		z := op.Sqrt(op.Mul(leaf(0), core.Num(1)))
		g := op.Mul(z, core.FromSlice([]float64{0}))
		err := autograd.Backward(g) // 0 * d sqrt(0) is NaN
		require.ErrorContains(t, err, "NaN")
		require.ErrorContains(t, err, "TestAnomalyModeNamesTheOperation", "the trace says where the operation was recorded")
	})
	require.NoError(t, op.Log(x).Err())
}

func TestSavedHooksReplaceWhatNodesKeep(t *testing.T) {
	type kept struct{ half *core.Tensor }
	packed, unpacked := 0, 0
	hooks := &core.SavedHooks{
		Pack: func(x *core.Tensor) any {
			packed++
			return kept{op.To(x, core.Float32).Keep()}
		},
		Unpack: func(v any) *core.Tensor {
			unpacked++
			return op.To(v.(kept).half, core.Float64).Keep()
		},
	}
	x := leaf(2, 3)
	var y *core.Tensor
	core.WithSavedHooks(hooks, func() { y = op.Mul(x, x) })
	require.Equal(t, 2, packed)
	require.Zero(t, unpacked)
	require.NoError(t, autograd.BackwardWith([]*core.Tensor{y}, ones(y), autograd.Options{}))
	require.Equal(t, 2, unpacked)
	require.Equal(t, []float64{4, 6}, values(t, x.Grad()))
}

func TestDerivativesPerInputCanRunSeparately(t *testing.T) {
	x, w := leaf(2, 3), leaf(5, 7)
	y := op.Mul(x, w)
	n := y.AutogradMeta().Edge().Node
	defer n.Release()
	g := op.OnesLike(y, op.TensorOptions{})
	for i, want := range [][]float64{{5, 7}, {2, 3}} {
		need := []bool{i == 0, i == 1}
		out, err := core.NewBackwardContext(core.CurrentMode(), n, []*core.Tensor{g}, need).Run()
		require.NoError(t, err)
		require.Nil(t, out[1-i])
		require.Equal(t, want, values(t, out[i]))
	}
}

func TestNodeHooksRunAroundTheDerivative(t *testing.T) {
	x := leaf(3)
	y := op.Mul(x, core.Num(2))
	n := y.AutogradMeta().Edge().Node
	defer n.Release()
	n.PreHooks().Add(core.NodeHook{Fn: func(g, _ []*core.Tensor) []*core.Tensor {
		return []*core.Tensor{op.Mul(g[0], core.Num(10))}
	}})
	n.PostHooks().Add(core.NodeHook{Fn: func(g, _ []*core.Tensor) []*core.Tensor {
		require.Equal(t, []float64{20}, values(t, g[0]))
		return nil
	}})
	require.NoError(t, autograd.Backward(y))
	require.Equal(t, []float64{20}, values(t, x.Grad()))
}

func TestCheckpointReplaysRandomNumbers(t *testing.T) {
	x := op.Randn(64).SetRequiresGrad(true)
	fn := func(in []*core.Tensor) []*core.Tensor {
		return []*core.Tensor{op.Dropout(op.Mul(in[0], in[0]), 0.5, true)}
	}
	core.ManualSeed(9)
	plain := fn([]*core.Tensor{x})[0]
	require.NoError(t, autograd.BackwardWith([]*core.Tensor{plain}, ones(plain), autograd.Options{}))
	want := values(t, x.Grad())
	x.SetGrad(nil)
	core.ManualSeed(9)
	y := autograd.Checkpoint(fn, x)[0]
	op.Randn(100) // other draws in between do not matter
	require.NoError(t, autograd.BackwardWith([]*core.Tensor{y}, ones(y), autograd.Options{}))
	require.Equal(t, want, values(t, x.Grad()))

	runs := 0
	changing := func(in []*core.Tensor) []*core.Tensor {
		if runs++; runs > 1 {
			return []*core.Tensor{in[0]}
		}
		return []*core.Tensor{op.Mul(in[0], in[0])}
	}
	z := autograd.Checkpoint(changing, x)[0]
	require.ErrorContains(t, autograd.BackwardWith([]*core.Tensor{z}, ones(z), autograd.Options{}), "must compute the same")
}

func TestCheckpointSavesMemory(t *testing.T) {
	dev, err := core.OpenDevice("cpu")
	require.NoError(t, err)
	x := op.Ones(10_000).SetRequiresGrad(true)
	fn := func(in []*core.Tensor) []*core.Tensor {
		y := in[0]
		for range 10 {
			z := op.Mul(y, y)
			if y != in[0] {
				y.Release()
			}
			y = z
		}
		return []*core.Tensor{y}
	}
	before := coretest.Settle(t, dev)
	y := autograd.Checkpoint(fn, x)[0]
	require.LessOrEqual(t, core.MemoryUsage(dev).Current-before, 40_064, "only the result")
	require.NoError(t, autograd.BackwardWith([]*core.Tensor{y}, ones(y), autograd.Options{}))
	y.Release()
	v, err := x.Grad().Bytes()
	require.NoError(t, err)
	require.Len(t, v, 40_000)
}
