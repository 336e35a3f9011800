package op_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

func values(t *testing.T, x *core.Tensor) []float64 {
	t.Helper()
	v, err := core.Values[float64](x)
	require.NoError(t, err)
	return v
}

func TestReductionShapesAndTypes(t *testing.T) {
	x := core.FromSlice([]int32{1, 2, 3, 4, 5, 6}, 1, 2, 3)
	y := core.FromSlice([]float32{1.5, 1, 2, 3.5, 2.5, 4.5}, 3, 2)
	z := core.FromSlice([]float32{1, 3, 2, 0, 4, 8}, 2, 3)
	f64, i64 := core.Float64, core.Int64
	for _, c := range []struct {
		got   *core.Tensor
		dtype core.DType
		shape []int
		want  []float64
	}{
		{op.Sum(x, nil, false), core.Int64, []int{}, []float64{21}},
		{op.Sum(x, []int{}, true), core.Int64, []int{1, 1, 1}, []float64{21}},
		{op.Sum(x, []int{-1}, false), core.Int64, []int{1, 2}, []float64{6, 15}},
		{op.Sum(x, []int{2, 0}, true), core.Int64, []int{1, 2, 1}, []float64{6, 15}},
		{op.ArgMax(x, nil, false), core.Int64, []int{}, []float64{5}},
		{op.ArgMax(x, []int{1}, false), core.Int64, []int{1, 3}, []float64{1, 1, 1}},
		{op.ArgMin(x, []int{1}, true), core.Int64, []int{1, 1, 3}, []float64{0, 0, 0}},
		{op.Any(x, []int{0}, false), core.Bool, []int{2, 3}, []float64{1, 1, 1, 1, 1, 1}},
		{op.All(x, nil, false), core.Bool, []int{}, []float64{1}},
		{op.SumWith(x, []int{2}, op.ReduceOptions{DType: &f64}), core.Float64, []int{1, 2}, []float64{6, 15}},
		{op.MeanWith(x, nil, op.ReduceOptions{DType: &f64}), core.Float64, []int{}, []float64{3.5}},
		{op.SumWith(y, nil, op.ReduceOptions{DType: &i64}), core.Int64, []int{}, []float64{13}},
		{op.Mean(y, []int{0}, true), core.Float32, []int{1, 2}, []float64{2, 3}},
		{op.Prod(x, []int{0, 2}, false), core.Int64, []int{2}, []float64{6, 120}},
		{op.ProdWith(y, nil, op.ReduceOptions{DType: &f64}), core.Float64, []int{}, []float64{118.125}},
		{op.Amax(x, []int{2}, false), core.Int32, []int{1, 2}, []float64{3, 6}},
		{op.Amin(x, nil, true), core.Int32, []int{1, 1, 1}, []float64{1}},
		{op.Var(z, []int{1}, 1, false), core.Float32, []int{2}, []float64{1, 16}},
		{op.Std(z, []int{1}, 1, true), core.Float32, []int{2, 1}, []float64{1, 4}},
		{op.VectorNorm(z, 2, []int{0}, op.ReduceOptions{}), core.Float32, []int{3}, []float64{1, 5, float64(float32(math.Sqrt(68)))}},
		{op.Norm(z, 0, nil, op.ReduceOptions{KeepDim: true}), core.Float32, []int{1, 1}, []float64{5}},
		{op.CountNonzero(x, []int{1}), core.Int64, []int{1, 3}, []float64{2, 2, 2}},
	} {
		require.NoError(t, c.got.Err())
		require.Equal(t, c.dtype, c.got.DType())
		require.Equal(t, c.shape, c.got.Shape())
		require.Equal(t, c.want, values(t, c.got))
	}
}

func TestReductionErrors(t *testing.T) {
	x := core.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
	empty := core.FromSlice([]float32{}, 2, 0)
	for want, got := range map[string]*core.Tensor{
		"sum: dimension 2 out of range, want [-2, 1]":                          op.Sum(x, []int{2}, false),
		"sum: dimension 1 appears twice in [1 -1]":                             op.Sum(x, []int{1, -1}, false),
		"argmax: no element to choose from in dimensions [1] of shape [2 0]":   op.ArgMax(empty, []int{1}, false),
		"argmax: got dimensions [0 1], want one or none":                       op.ArgMax(x, []int{0, 1}, false),
		"mean: got int64, want a floating-point or complex dtype":              op.Mean(core.FromSlice([]int64{1}), nil, false),
		"amax: no element to choose from in dimensions [0 1] of shape [2 0]":   op.Amax(empty, nil, false),
		"var: the input must be floating point, got bool":                      op.Var(core.FromSlice([]bool{true}), nil, 1, false),
		"vector_norm: the order of the norm is NaN":                            op.VectorNorm(x, math.NaN(), nil, op.ReduceOptions{}),
		"argmin: no element to choose from in dimensions [0 1] of shape [2 0]": op.ArgMin(empty, nil, false),
	} {
		require.EqualError(t, got.Err(), want)
	}
	require.NoError(t, op.ArgMax(empty, []int{0}, false).Err(), "there is no result that would need an element")
}

func TestSumOfNothingIsZero(t *testing.T) {
	x := core.FromSlice([]float32{}, 3, 0)
	require.Equal(t, []float64{0, 0, 0}, values(t, op.Sum(x, []int{1}, false)))
	require.Equal(t, []float64{0}, values(t, op.Sum(x, nil, false)))
	require.Equal(t, fmt.Sprint([]int{0}), fmt.Sprint(op.Sum(x, []int{0}, false).Shape()))
}
