package op_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// naiveAttention is attention by its definition, from single operations.
func naiveAttention(q, k, v *core.Tensor, o op.AttentionOptions) *core.Tensor {
	if o.EnableGQA {
		group := q.Size(-3) / k.Size(-3)
		repeat := func(t *core.Tensor) *core.Tensor {
			s := t.Shape()
			n := len(s)
			t = op.Unsqueeze(t, n-2)
			wide := append(append([]int{}, s[:n-2]...), group, s[n-2], s[n-1])
			return op.Reshape(op.Expand(t, wide...), append(append([]int{}, s[:n-3]...), s[n-3]*group, s[n-2], s[n-1])...)
		}
		k, v = repeat(k), repeat(v)
	}
	scale := o.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(q.Size(-1)))
	}
	s := op.Mul(op.MatMul(q, op.Transpose(k, -2, -1)), core.Num(scale))
	if o.Mask != nil && o.Mask.DType() == core.Bool {
		s = op.Where(o.Mask, s, core.Num(math.Inf(-1)))
	} else if o.Mask != nil {
		s = op.Add(s, o.Mask)
	}
	if o.Causal {
		hide := make([]float64, q.Size(-2)*k.Size(-2))
		for i := range hide {
			if i%k.Size(-2) > i/k.Size(-2) {
				hide[i] = math.Inf(-1)
			}
		}
		s = op.Add(s, core.FromSlice(hide, q.Size(-2), k.Size(-2)))
	}
	return op.MatMul(op.Softmax(s, -1), v)
}

func lowerMask(n, m int) *core.Tensor {
	v := make([]bool, n*m)
	for i := range v {
		v[i] = (i%m+i/m)%3 != 1
	}
	return core.FromSlice(v, n, m)
}

func attentionCases() map[string]struct {
	q, k, v *core.Tensor
	o       op.AttentionOptions
} {
	u := uniform
	joined := func(seed uint64, heads, length, dim int) *core.Tensor { // heads inside the length, from a projection of all three
		qkv := u(seed, 2, length, 3*heads*dim)
		return op.Transpose(op.Reshape(op.Narrow(qkv, -1, heads*dim, heads*dim), 2, length, heads, dim), 1, 2)
	}
	type c = struct {
		q, k, v *core.Tensor
		o       op.AttentionOptions
	}
	return map[string]c{
		"plain":      {u(1, 2, 3, 5, 4), u(2, 2, 3, 7, 4), u(3, 2, 3, 7, 6), op.AttentionOptions{}},
		"tiles":      {u(1, 1, 2, 100, 20), u(2, 1, 2, 130, 20), u(3, 1, 2, 130, 16), op.AttentionOptions{Scale: 0.5}},
		"causal":     {u(1, 1, 2, 70, 8), u(2, 1, 2, 70, 8), u(3, 1, 2, 70, 8), op.AttentionOptions{Causal: true}},
		"bool":       {u(1, 2, 3, 5, 4), u(2, 2, 3, 7, 4), u(3, 2, 3, 7, 6), op.AttentionOptions{Mask: lowerMask(5, 7)}},
		"bool keys":  {u(1, 2, 3, 5, 4), u(2, 2, 3, 7, 4), u(3, 2, 3, 7, 6), op.AttentionOptions{Mask: op.Reshape(lowerMask(2, 7), 2, 1, 1, 7)}},
		"float":      {u(1, 2, 3, 5, 4), u(2, 2, 3, 7, 4), u(3, 2, 3, 7, 6), op.AttentionOptions{Mask: u(4, 3, 5, 7)}},
		"float 3-d":  {u(1, 3, 5, 4), u(2, 3, 7, 4), u(3, 3, 7, 6), op.AttentionOptions{Mask: u(4, 5, 7)}},
		"5-d":        {u(1, 2, 2, 3, 5, 4), u(2, 2, 2, 3, 7, 4), u(3, 2, 1, 3, 7, 6), op.AttentionOptions{Mask: u(4, 2, 1, 5, 7)}},
		"grouped":    {u(1, 2, 6, 5, 4), u(2, 2, 2, 7, 4), u(3, 2, 2, 7, 6), op.AttentionOptions{EnableGQA: true, Causal: true}},
		"transposed": {joined(1, 3, 66, 16), joined(2, 3, 66, 16), joined(3, 3, 66, 16), op.AttentionOptions{Causal: true}},
		"columns":    {op.Transpose(u(1, 2, 3, 4, 5), 2, 3), op.Transpose(u(2, 2, 3, 4, 7), 2, 3), op.Transpose(u(3, 2, 3, 6, 7), 2, 3), op.AttentionOptions{}},
	}
}

func TestAttentionAgainstDefinition(t *testing.T) {
	for name, c := range attentionCases() {
		q, k, v := leaf(c.q), leaf(c.k), leaf(c.v)
		want, got := naiveAttention(q, k, v, c.o), op.ScaledDotProductAttention(q, k, v, c.o)
		require.NoError(t, got.Err(), name)
		require.Equal(t, want.Shape(), got.Shape(), name)
		requireValues(t, values(t, want), values(t, got), 1e-12)
		dy := uniform(9, want.Shape()...)
		wantGrads := gradients(t, want, dy, q, k, v)
		gotGrads := gradients(t, got, dy, q, k, v)
		again, err := autograd.Grad([]*core.Tensor{op.ScaledDotProductAttention(q, k, v, c.o)}, []*core.Tensor{q, k, v},
			[]*core.Tensor{dy}, autograd.Options{CreateGraph: true})
		require.NoError(t, err)
		for i := range wantGrads {
			require.Equal(t, wantGrads[i].Shape(), gotGrads[i].Shape(), "%s %d", name, i)
			requireValues(t, values(t, wantGrads[i]), values(t, gotGrads[i]), 1e-11)
			requireValues(t, values(t, wantGrads[i]), values(t, again[i]), 1e-11)
		}
	}
}

func TestAttentionMaskGetsAGradient(t *testing.T) {
	coretest.SkipUnderRace(t)
	in := []*core.Tensor{leaf(uniform(1, 2, 2, 3, 4)), leaf(uniform(2, 2, 2, 5, 4)), leaf(uniform(3, 2, 2, 5, 4)), leaf(uniform(4, 2, 3, 5))}
	f := func(in []*core.Tensor) []*core.Tensor {
		return []*core.Tensor{op.ScaledDotProductAttention(in[0], in[1], in[2], op.AttentionOptions{Mask: in[3]})}
	}
	require.NoError(t, autograd.Check(f, in, 1e-6, 1e-6, 1e-5))
	require.NoError(t, autograd.CheckDouble(f, in, 1e-6, 1e-5, 1e-4))
}

// With dropout, the gradients by differences hold only if backward drops the same weights.
func TestAttentionDropoutGradients(t *testing.T) {
	coretest.SkipUnderRace(t)
	f := func(in []*core.Tensor) []*core.Tensor {
		core.ManualSeed(5)
		return []*core.Tensor{op.ScaledDotProductAttention(in[0], in[1], in[2], op.AttentionOptions{DropoutP: 0.4, EnableGQA: true})}
	}
	inRank(t, func() {
		in := []*core.Tensor{leaf(uniform(1, 1, 4, 3, 2)), leaf(uniform(2, 1, 2, 6, 2)), leaf(uniform(3, 1, 2, 6, 3))}
		require.NoError(t, autograd.Check(f, in, 1e-6, 1e-6, 1e-5))
		require.NoError(t, autograd.CheckDouble(f, in, 1e-6, 1e-5, 1e-4))
		a, b := values(t, f(in)[0]), values(t, op.ScaledDotProductAttention(in[0], in[1], in[2], op.AttentionOptions{EnableGQA: true}))
		require.NotEqual(t, a, b)
	})
}

func TestAttentionHiddenQueries(t *testing.T) {
	q, k, v := leaf(uniform(1, 1, 1, 2, 4)), leaf(uniform(2, 1, 1, 3, 4)), leaf(uniform(3, 1, 1, 3, 4))
	y := op.ScaledDotProductAttention(q, k, v, op.AttentionOptions{Mask: core.FromSlice([]bool{true, true, false, false, false, false}, 2, 3)})
	require.Zero(t, sumOf(values(t, op.Select(y, 2, 1))))
	for _, g := range gradients(t, y, op.OnesLike(y, op.TensorOptions{}), q, k, v) {
		for _, x := range values(t, g) {
			require.False(t, math.IsNaN(x))
		}
	}
}

// The scores would take 4 bytes for each of 4096 x 4096 pairs; the memory in use must stay far below.
func TestAttentionDoesNotStoreTheScores(t *testing.T) {
	const n, d = 4096, 8
	q := op.To(uniform(1, 1, 1, n, d), core.Float32).SetRequiresGrad(true)
	dev := q.Device()
	require.NoError(t, q.Wait())
	before := coretest.Settle(t, dev)
	core.ResetPeak(dev)
	y := op.ScaledDotProductAttention(q, q, q, op.AttentionOptions{Causal: true})
	require.NoError(t, autograd.BackwardWith([]*core.Tensor{y}, []*core.Tensor{op.OnesLike(y, op.TensorOptions{})}, autograd.Options{}))
	require.NoError(t, q.Grad().Wait())
	require.Less(t, core.MemoryUsage(dev).Peak-before, n*n*4/8)
}

func BenchmarkAttention(b *testing.B) {
	x := op.To(uniform(1, 8, 4, 128, 32), core.Float32).SetRequiresGrad(true)
	dy := op.OnesLike(x, op.TensorOptions{})
	for range b.N {
		core.Tidy(func() {
			y := op.ScaledDotProductAttention(x, x, x, op.AttentionOptions{Causal: true})
			g, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{x}, []*core.Tensor{dy}, autograd.Options{})
			if err == nil {
				err = g[0].Wait()
			}
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
