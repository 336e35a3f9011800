package op_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// ctcByEnumeration adds up the probabilities of all sequences of steps that become the target.
func ctcByEnumeration(logProbs [][]float64, target []int64, blank int64) float64 {
	total := 0.0
	var walk func(t int, sum float64, last int64, made []int64)
	walk = func(t int, sum float64, last int64, made []int64) {
		if t == len(logProbs) {
			if slices.Equal(made, target) {
				total += math.Exp(sum)
			}
			return
		}
		for c, p := range logProbs[t] {
			next := made
			if int64(c) != blank && int64(c) != last {
				next = append(slices.Clone(made), int64(c))
			}
			walk(t+1, sum+p, int64(c), next)
		}
	}
	walk(0, 0, -1, []int64{})
	return -math.Log(total)
}

func TestCTCLossIsThatOfAllWaysToTheTarget(t *testing.T) {
	core.ManualSeed(1)
	const steps, classes = 6, 3
	targets := [][]int64{{1, 2}, {1, 1}, {}, {2}, {2, 2, 2}, {1, 2, 1}, {1, 1, 1, 1}, {2}, {}}
	inputs := []int{6, 6, 5, 1, 5, 4, 6, 0, 0}
	n := len(targets)
	logProbs := op.LogSoftmax(randn64(steps, n, classes), -1)
	values, err := core.Values[float64](logProbs)
	require.NoError(t, err)
	want, lengths := make([]float64, n), make([]int, n)
	var flat, padded []int64
	for i, target := range targets {
		var rows [][]float64
		for s := range inputs[i] {
			at := (s*n + i) * classes
			rows = append(rows, values[at:at+classes])
		}
		want[i], lengths[i] = ctcByEnumeration(rows, target, 0), len(target)
		flat = append(flat, target...)
		padded = append(padded, append(slices.Clone(target), make([]int64, 4-len(target))...)...)
	}
	none := op.CTCOptions{Reduction: "none"}
	joined, table := core.FromSlice(flat), core.FromSlice(padded, n, 4)
	requireNear(t, op.CTCLoss(logProbs, joined, inputs, lengths, none), want...)
	requireNear(t, op.CTCLoss(logProbs, op.To(table, core.Int32), inputs, lengths, none), want...)
	for i := range n {
		one := op.CTCLoss(op.Select(logProbs, 1, i), op.Select(table, 0, i), inputs[i:i+1], lengths[i:i+1], none)
		require.Empty(t, one.Shape())
		requireNear(t, one, want[i])
	}

	sum, mean := 0.0, 0.0
	for i, w := range want {
		if math.IsInf(w, 1) {
			w = 0
		}
		sum += w
		mean += w / float64(max(lengths[i], 1)) / float64(n)
	}
	requireNear(t, op.CTCLoss(logProbs, table, inputs, lengths, op.CTCOptions{Reduction: "sum", ZeroInfinity: true}), sum)
	requireNear(t, op.CTCLoss(logProbs, table, inputs, lengths, op.CTCOptions{ZeroInfinity: true}), mean)
	// Another blank.
	require.InDelta(t, ctcByEnumeration([][]float64{{-1, -2, -3}, {-2, -0.5, -1}}, []int64{0}, 2),
		item(t, op.CTCLoss(core.FromSlice([]float64{-1, -2, -3, -2, -0.5, -1}, 2, 3), core.FromSlice([]int64{0}), []int{2}, []int{1}, op.CTCOptions{Blank: 2})), 1e-12)
}

func item(t *testing.T, x *core.Tensor) float64 {
	t.Helper()
	v, err := x.Item()
	require.NoError(t, err)
	return v
}

func TestCTCLossHasNoGradientWhereTheTargetDoesNotFit(t *testing.T) {
	x := randn64(3, 2, 3).SetRequiresGrad(true)
	loss := op.CTCLoss(x, core.FromSlice([]int64{1, 1, 1, 1, 2, 0}, 2, 3), []int{3, 3}, []int{3, 2}, op.CTCOptions{Reduction: "sum", ZeroInfinity: true})
	require.NoError(t, autograd.Backward(loss))
	g, err := core.Values[float64](op.Sum(op.Abs(x.Grad()), []int{0, 2}, false))
	require.NoError(t, err)
	require.Zero(t, g[0])
	require.InDelta(t, 3, g[1], 1e-12) // each step's shares add up to 1
}

// TestCTCLossGradients compares the kernel's gradient with that of operations that can be differentiated again, which has gradients of its own.
func TestCTCLossGradients(t *testing.T) {
	core.ManualSeed(3)
	targets := core.FromSlice([]int64{1, 2, 1, 1, 1, 3, 0, 0, 0, 2, 0, 0, 2, 2, 2, 1, 3, 0, 3, 0, 0}, 7, 3)
	inputs, lengths := []int{6, 5, 6, 1, 3, 0, 4}, []int{3, 3, 0, 1, 3, 2, 1}
	for _, d := range []core.DType{core.Float32, core.Float64} {
		x := op.LogSoftmax(op.To(randn64(6, 7, 4), d), -1).Detach().SetRequiresGrad(true)
		weights := op.To(randn64(7), d)
		loss := func() *core.Tensor {
			each := op.CTCLoss(x, targets, inputs, lengths, op.CTCOptions{Reduction: "none", ZeroInfinity: true})
			return op.Sum(op.Mul(each, weights), nil, false)
		}
		once, err := autograd.Grad([]*core.Tensor{loss()}, []*core.Tensor{x}, nil, autograd.Options{})
		require.NoError(t, err)
		again, err := autograd.Grad([]*core.Tensor{loss()}, []*core.Tensor{x}, nil, autograd.Options{CreateGraph: true})
		require.NoError(t, err)
		want, err := core.Values[float64](op.To(again[0].Detach(), core.Float64))
		require.NoError(t, err)
		tolerance := map[core.DType]float64{core.Float32: 3e-6, core.Float64: 1e-14}[d]
		got, err := core.Values[float64](op.To(once[0], core.Float64))
		require.NoError(t, err)
		require.InDeltaSlice(t, want, got, tolerance)
		twice, err := autograd.Grad([]*core.Tensor{op.Sum(op.Square(again[0]), nil, false)}, []*core.Tensor{x}, nil, autograd.Options{})
		require.NoError(t, err)
		finite, err := core.Values[float64](op.To(twice[0], core.Float64))
		require.NoError(t, err)
		for _, v := range finite {
			require.False(t, math.IsNaN(v) || math.IsInf(v, 0))
		}
	}
}

func TestCTCLossRefuses(t *testing.T) {
	x, y := randn64(4, 2, 3), core.FromSlice([]int64{1, 2, 1, 2}, 2, 2)
	for want, loss := range map[string]*core.Tensor{
		"blank must be one of the 3 classes":          op.CTCLoss(x, y, []int{4, 4}, []int{2, 2}, op.CTCOptions{Blank: 3}),
		"want 2 of each":                              op.CTCLoss(x, y, []int{4}, []int{2, 2}, op.CTCOptions{}),
		"length 5 of input 1":                         op.CTCLoss(x, y, []int{4, 5}, []int{2, 2}, op.CTCOptions{}),
		"length 3 of target 0":                        op.CTCLoss(x, y, []int{4, 4}, []int{3, 2}, op.CTCOptions{}),
		"add up to 3, got 4 targets":                  op.CTCLoss(x, op.Ravel(y), []int{4, 4}, []int{1, 2}, op.CTCOptions{}),
		"must be a tensor of integers":                op.CTCLoss(x, op.To(y, core.Float32), []int{4, 4}, []int{2, 2}, op.CTCOptions{}),
		"want [T, N, C] or [T, C]":                    op.CTCLoss(op.Select(op.Select(x, 0, 0), 0, 0), y, []int{4, 4}, []int{2, 2}, op.CTCOptions{}),
		`unknown reduction "all"`:                     op.CTCLoss(x, y, []int{4, 4}, []int{2, 2}, op.CTCOptions{Reduction: "all"}),
		fmt.Sprintf("targets of shape %v", y.Shape()): op.CTCLoss(op.Select(x, 1, 0), y, []int{4}, []int{2}, op.CTCOptions{}),
	} {
		require.ErrorContains(t, loss.Err(), want)
	}
	loss := op.CTCLoss(x, core.FromSlice([]int64{1, 3, 1, 2}, 2, 2), []int{4, 4}, []int{2, 2}, op.CTCOptions{})
	require.ErrorContains(t, loss.Wait(), "target 3 at position 1 is no class, got 3 classes")
}
