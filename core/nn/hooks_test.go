package nn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
)

func TestForwardHooks(t *testing.T) {
	double := nn.NewFunc(func(x *core.Tensor) *core.Tensor { return op.Mul(x, core.Num(2)) })
	m := nn.NewSequential(double, nn.NewFunc(func(x *core.Tensor) *core.Tensor { return op.Add(x, core.Num(1)) }))
	x := core.FromSlice([]float64{3})
	var order []string
	removePre := double.RegisterForwardPreHook(func(l nn.Layer, x *core.Tensor) *core.Tensor {
		require.Same(t, double, l)
		order = append(order, "pre")
		return op.Add(x, core.Num(1))
	})
	double.RegisterForwardPreHook(func(nn.Layer, *core.Tensor) *core.Tensor { order = append(order, "second"); return nil })
	remove := double.RegisterForwardHook(func(_ nn.Layer, x, y *core.Tensor) *core.Tensor {
		require.Equal(t, []float64{4}, floats(t, x))
		require.Equal(t, []float64{8}, floats(t, y))
		return op.Neg(y)
	})
	m.RegisterForwardHook(func(_ nn.Layer, _, y *core.Tensor) *core.Tensor { order = append(order, "outer"); return nil })
	require.Equal(t, []float64{-7}, floats(t, nn.Call(m, x)))
	require.Equal(t, []string{"pre", "second", "outer"}, order)
	require.Equal(t, []float64{-7}, floats(t, m.Forward(x)), "the parts' hooks run")
	removePre()
	remove()
	require.Equal(t, []float64{7}, floats(t, nn.Call(m, x)))
	require.Equal(t, []float64{6}, floats(t, double.Forward(x)))
}

func TestWrapForward(t *testing.T) {
	double := nn.NewFunc(func(x *core.Tensor) *core.Tensor { return op.Mul(x, core.Num(2)) })
	x := core.FromSlice([]float64{3, 4})
	removeInner := double.WrapForward(func(x *core.Tensor, forward func(*core.Tensor) *core.Tensor) *core.Tensor {
		return op.Cat([]*core.Tensor{forward(op.Narrow(x, 0, 0, 1)), forward(op.Narrow(x, 0, 1, 1))}, 0)
	})
	removeOuter := double.WrapForward(func(x *core.Tensor, forward func(*core.Tensor) *core.Tensor) *core.Tensor {
		return op.Neg(forward(op.Add(x, core.Num(1))))
	})
	double.RegisterForwardHook(func(_ nn.Layer, x, y *core.Tensor) *core.Tensor {
		require.Equal(t, []float64{3, 4}, floats(t, x))
		return nil
	})
	require.Equal(t, []float64{-8, -10}, floats(t, nn.Call(double, x)))
	removeOuter()
	require.Equal(t, []float64{6, 8}, floats(t, nn.Call(double, x)))
	removeInner()
	double.WrapForward(nil)()
	require.Equal(t, []float64{6, 8}, floats(t, nn.Call(double, x)))
}

func TestEmbeddingLimitsAndBags(t *testing.T) {
	index := core.FromSlice([]int64{1, 1, 2})
	e := nn.NewEmbedding(3, 2, nn.EmbeddingOptions{MaxNorm: 1, ScaleGradByFreq: true})
	core.NoGrad(func() { op.CopyInPlace(e.Weight, op.Reshape(core.FromSlice([]float64{3, 4, 3, 4, 0.3, 0.4}), 3, 2)) })
	y := e.Forward(index)
	require.InDeltaSlice(t, []float64{0.6, 0.8, 0.6, 0.8, 0.3, 0.4}, floats(t, y), 1e-6)
	require.InDeltaSlice(t, []float64{3, 4, 0.6, 0.8, 0.3, 0.4}, floats(t, e.Weight), 1e-6)
	require.NoError(t, autograd.Backward(op.Sum(y, nil, false)))
	require.Equal(t, []float64{0, 0, 1, 1, 1, 1}, floats(t, e.Weight.Grad()))

	zero := 0
	b := nn.NewEmbeddingBag(3, 2, "sum", nn.EmbeddingOptions{PaddingIdx: &zero})
	require.Equal(t, []float64{0, 0}, floats(t, op.Select(b.Weight, 0, 0)))
	w := floats(t, b.Weight)
	got := floats(t, b.Bags(index, core.FromSlice([]int64{0, 2}), core.FromSlice([]float32{1, 2, 3})))
	require.InDeltaSlice(t, []float64{3 * w[2], 3 * w[3], 3 * w[4], 3 * w[5]}, got, 1e-5)
	got = floats(t, b.Forward(core.FromSlice([]int64{0, 1, 2, 2}, 2, 2)))
	require.InDeltaSlice(t, []float64{w[2], w[3], 2 * w[4], 2 * w[5]}, got, 1e-5)
}
