package data

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/stretchr/testify/require"
)

func requireTensor(t *testing.T, x *core.Tensor, d core.DType, shape []int, want ...float64) {
	t.Helper()
	require.NotNil(t, x)
	require.NoError(t, x.Err())
	require.Equal(t, d, x.DType())
	require.Equal(t, shape, x.Shape())
	got, err := core.Values[float64](x)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestCollateNumbers(t *testing.T) {
	type label int32
	f, err := Collate[float32, *core.Tensor]([]float32{1.5, 2})
	require.NoError(t, err)
	requireTensor(t, f, core.Float32, []int{2}, 1.5, 2)
	n, err := Collate[int, *core.Tensor]([]int{-3})
	require.NoError(t, err)
	requireTensor(t, n, core.Int64, []int{1}, -3)
	l, err := Collate[label, *core.Tensor]([]label{7, 8})
	require.NoError(t, err)
	requireTensor(t, l, core.Int32, []int{2}, 7, 8)
	b, err := Collate[bool, *core.Tensor]([]bool{true, false})
	require.NoError(t, err)
	requireTensor(t, b, core.Bool, []int{2}, 1, 0)
	rows, err := Collate[[]float64, *core.Tensor]([][]float64{{1, 2}, {3, 4}, {5, 6}})
	require.NoError(t, err)
	requireTensor(t, rows, core.Float64, []int{3, 2}, 1, 2, 3, 4, 5, 6)
	ints, err := Collate[[3]int, *core.Tensor]([][3]int{{1, 2, 3}, {4, 5, 6}})
	require.NoError(t, err)
	requireTensor(t, ints, core.Int64, []int{2, 3}, 1, 2, 3, 4, 5, 6)
	empty, err := Collate[[]uint8, *core.Tensor]([][]uint8{{}, {}})
	require.NoError(t, err)
	require.Equal(t, []int{2, 0}, empty.Shape())
}

func TestCollateStructures(t *testing.T) {
	type inner struct{ Weight float64 }
	type sample struct {
		Image *core.Tensor
		Label int64
		Name  string
		In    inner
		Map   map[string]float32
		extra int
	}
	type innerBatch struct{ Weight *core.Tensor }
	type batch struct {
		Image, Label *core.Tensor
		Name         []string
		In           innerBatch
		Map          map[string]*core.Tensor
		count        int
	}
	got, err := Collate[sample, batch]([]sample{
		{core.FromSlice([]float32{1, 2}), 3, "a", inner{0.5}, map[string]float32{"k": 1}, 0},
		{core.FromSlice([]float32{4, 5}), 6, "b", inner{0.25}, map[string]float32{"k": 2}, 0},
	})
	require.NoError(t, err)
	requireTensor(t, got.Image, core.Float32, []int{2, 2}, 1, 2, 4, 5)
	requireTensor(t, got.Label, core.Int64, []int{2}, 3, 6)
	requireTensor(t, got.In.Weight, core.Float64, []int{2}, 0.5, 0.25)
	requireTensor(t, got.Map["k"], core.Float32, []int{2}, 1, 2)
	require.Equal(t, []string{"a", "b"}, got.Name)
	require.Zero(t, got.count)

	rows, err := Collate[[]*core.Tensor, []*core.Tensor]([][]*core.Tensor{
		{core.Scalar(1.0), core.FromSlice([]int{2, 3})}, {core.Scalar(4.0), core.FromSlice([]int{5, 6})},
	})
	require.NoError(t, err)
	require.Len(t, rows, 2)
	requireTensor(t, rows[0], core.Float64, []int{2}, 1, 4)
	requireTensor(t, rows[1], core.Int64, []int{2, 2}, 2, 3, 5, 6)
}

func TestCollateErrors(t *testing.T) {
	_, err := Collate[int, *core.Tensor](nil)
	require.ErrorContains(t, err, "collate: no samples")
	_, err = Collate[[]int, *core.Tensor]([][]int{{1}, {1, 2}})
	require.ErrorContains(t, err, "collate: sample: lengths differ, got 1 and 2")
	_, err = Collate[string, *core.Tensor]([]string{"a"})
	require.ErrorContains(t, err, "a string cannot become a *core.Tensor")
	_, err = Collate[map[string]int, map[string]*core.Tensor]([]map[string]int{{"a": 1}, {"b": 1}})
	require.ErrorContains(t, err, "keys differ")
	type wrong struct{ X *core.Tensor }
	_, err = Collate[struct{ Y int }, wrong]([]struct{ Y int }{{1}})
	require.ErrorContains(t, err, "has no field X")
	_, err = Collate[struct{ X []*core.Tensor }, struct{ X []*core.Tensor }]([]struct{ X []*core.Tensor }{
		{[]*core.Tensor{core.FromSlice([]int{1})}}, {[]*core.Tensor{core.FromSlice([]int{1, 2})}},
	})
	require.ErrorContains(t, err, "collate: sample.X[0]: stack: shapes differ")
	_, err = Collate[*core.Tensor, *core.Tensor]([]*core.Tensor{nil})
	require.Error(t, err)
}
