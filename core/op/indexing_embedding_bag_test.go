package op_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

func TestEmbeddingBagsByOffsets(t *testing.T) {
	w := op.Reshape(vector64(1, 2, 3, 4, 5, 6), 3, 2).Detach().SetRequiresGrad(true)
	input, offsets := core.FromSlice([]int64{2, 0, 1, 1}), core.FromSlice([]int64{0, 2, 2})
	requireNear(t, op.EmbeddingBag(input, w, op.EmbeddingBagOptions{Offsets: offsets}), 3, 4, 0, 0, 3, 4)
	requireNear(t, op.EmbeddingBag(input, w, op.EmbeddingBagOptions{Offsets: offsets, Mode: "max"}), 5, 6, 0, 0, 3, 4)
	ends := core.FromSlice([]int64{0, 3, 4})
	requireNear(t, op.EmbeddingBag(input, w, op.EmbeddingBagOptions{Offsets: ends, IncludeLastOffset: true, Mode: "sum"}), 9, 12, 3, 4)
	early := core.FromSlice([]int64{0, 1, 3}) // the last index is in no bag
	for mode, want := range map[string][]float64{"sum": {5, 6, 4, 6}, "mean": {5, 6, 2, 3}, "max": {5, 6, 3, 4}} {
		requireNear(t, op.EmbeddingBag(input, w, op.EmbeddingBagOptions{Offsets: early, IncludeLastOffset: true, Mode: mode}), want...)
	}
	zero := 0
	requireNear(t, op.EmbeddingBag(input, w, op.EmbeddingBagOptions{Offsets: offsets, PaddingIdx: &zero}), 5, 6, 0, 0, 3, 4)
	scales := vector64(1, 10, 100, 1000).SetRequiresGrad(true)
	y := op.EmbeddingBag(input, w, op.EmbeddingBagOptions{Offsets: offsets, Mode: "sum", PerSampleWeights: scales})
	requireNear(t, y, 15, 26, 0, 0, 3300, 4400)
	require.NoError(t, autograd.Backward(op.Sum(y, nil, false)))
	requireNear(t, w.Grad(), 10, 10, 1100, 1100, 1, 1)
	requireNear(t, scales.Grad(), 11, 3, 7, 7)
	_, err := core.Values[float64](op.EmbeddingBag(core.FromSlice([]int64{0, 3}, 1, 2), w, op.EmbeddingBagOptions{}))
	require.ErrorContains(t, err, "embedding_bag: entry 1 is in column 3, want one of [0, 3)")
	require.ErrorContains(t, op.EmbeddingBag(input, w, op.EmbeddingBagOptions{}).Err(), "a vector of offsets")
	require.ErrorContains(t, op.EmbeddingBag(input, w, op.EmbeddingBagOptions{Offsets: offsets, PerSampleWeights: scales}).Err(), "are for sums")
}

func TestGridsThatDoNothingAndFlip(t *testing.T) {
	x := op.Reshape(vector64(1, 2, 3, 4, 5, 6), 1, 1, 2, 3)
	for _, align := range []bool{false, true} {
		same := op.AffineGrid(op.Reshape(vector64(1, 0, 0, 0, 1, 0), 1, 2, 3), []int{1, 1, 2, 3}, align)
		requireNear(t, op.GridSample(x, same, op.GridSampleOptions{AlignCorners: align}), 1, 2, 3, 4, 5, 6)
		mirror := op.AffineGrid(op.Reshape(vector64(-1, 0, 0, 0, 1, 0), 1, 2, 3), []int{1, 1, 2, 3}, align)
		requireNear(t, op.GridSample(x, mirror, op.GridSampleOptions{Mode: "nearest", AlignCorners: align}), 3, 2, 1, 6, 5, 4)
	}
	outside := op.Reshape(vector64(3, 0, -1, -1), 1, 1, 2, 2)
	requireNear(t, op.GridSample(x, outside, op.GridSampleOptions{}), 0, 0.25)
	requireNear(t, op.GridSample(x, outside, op.GridSampleOptions{PaddingMode: "border"}), 4.5, 1)
	requireNear(t, op.GridSample(x, outside, op.GridSampleOptions{PaddingMode: "reflection", AlignCorners: true}), 2.5, 1)
	require.ErrorContains(t, op.GridSample(x, outside, op.GridSampleOptions{Mode: "cubic"}).Err(), "unknown mode")
}

// TestEmbeddingBagOffsets has offsets in and out of order.
func TestEmbeddingBagOffsets(t *testing.T) {
	weight := core.FromSlice([]float32{0, 1, 2, 3, 4, 5, 6, 7}, 4, 2)
	index := core.FromSlice([]int64{0, 1, 2, 3}, 4)
	bags := func(mode string, last bool, offsets ...int64) *core.Tensor {
		return op.EmbeddingBag(index, weight, op.EmbeddingBagOptions{Offsets: core.FromSlice(offsets, len(offsets)), Mode: mode, IncludeLastOffset: last})
	}
	for _, mode := range []string{"sum", "mean", "max"} {
		for position, offsets := range map[int][]int64{0: {1, 2}, 1: {0, 5}, 2: {0, 3, 2}, 3: {0, 1, 1, -1}} {
			y := bags(mode, false, offsets...)
			require.NoError(t, y.Err())
			require.EqualError(t, y.Wait(), fmt.Sprintf(
				"embedding_bag: the offset at position %d is wrong: offsets begin with 0, do not decrease and do not pass the 4 indices", position))
		}
		none := bags(mode, false)
		require.NoError(t, none.Wait())
		require.Equal(t, []int{0, 2}, none.Shape())
		got, err := core.Values[float32](bags(mode, false, 0, 0, 3, 4, 4)) // empty ones at either end
		require.NoError(t, err)
		want := map[string][]float32{"sum": {0, 0, 6, 9, 6, 7, 0, 0, 0, 0}, "mean": {0, 0, 2, 3, 6, 7, 0, 0, 0, 0}, "max": {0, 0, 4, 5, 6, 7, 0, 0, 0, 0}}
		require.Equal(t, want[mode], got)
	}
	require.ErrorContains(t, bags("sum", true).Err(), "got no offsets, want at least the last")
}

// TestEmbeddingBagOfInfinities tells the largest of infinite rows from a bag whose rows are padding.
func TestEmbeddingBagOfInfinities(t *testing.T) {
	inf := float32(math.Inf(-1))
	weight := core.FromSlice([]float32{inf, 1, inf, inf}, 2, 2)
	index := core.FromSlice([]int64{1, 1, 0, 1}, 2, 2)
	got, err := core.Values[float32](op.EmbeddingBag(index, weight, op.EmbeddingBagOptions{Mode: "max"}))
	require.NoError(t, err)
	require.Equal(t, []float32{inf, inf, inf, 1}, got)
	padding := 1
	got, err = core.Values[float32](op.EmbeddingBag(index, weight, op.EmbeddingBagOptions{Mode: "max", PaddingIdx: &padding}))
	require.NoError(t, err)
	require.Equal(t, []float32{0, 0, inf, 1}, got)
	for _, mode := range []string{"sum", "mean"} {
		padding = 0
		got, err = core.Values[float32](op.EmbeddingBag(core.FromSlice([]int64{0, 1}, 1, 2), core.FromSlice([]float32{inf, 3}, 2, 1),
			op.EmbeddingBagOptions{Mode: mode, PaddingIdx: &padding}))
		require.NoError(t, err)
		require.Equal(t, []float32{3}, got)
	}
}

// TestEmbeddingBagOfEqualRows: the first of equal elements has the gradient. The numbers are PyTorch's.
func TestEmbeddingBagOfEqualRows(t *testing.T) {
	zero := 0
	for _, c := range []struct {
		input, offsets []int64
		padding        *int
		y, grad        []float64
	}{
		{[]int64{0, 1, 2, 1, 0, 2}, []int64{0, 3}, nil, []float64{1, 2, 1, 2}, []float64{1, 2, 3, 4, 0, 0}},
		{[]int64{2, 1, 0, 0, 0, 1}, []int64{0, 3}, nil, []float64{1, 2, 1, 2}, []float64{3, 4, 1, 0, 0, 2}},
		{[]int64{2, 1, 0}, []int64{0, 0, 3}, nil, []float64{0, 0, 1, 2, 0, 0}, []float64{0, 0, 3, 0, 0, 4}},
		{[]int64{0, 1, 2, 1, 0, 2}, []int64{0, 3}, &zero, []float64{1, 2, 1, 2}, []float64{0, 0, 4, 6, 0, 0}},
		{[]int64{0, 0, 2}, []int64{0, 2}, &zero, []float64{0, 0, 0, 2}, []float64{0, 0, 0, 0, 3, 4}},
	} {
		w := op.Reshape(vector64(1, 2, 1, 2, 0, 2), 3, 2).SetRequiresGrad(true)
		o := op.EmbeddingBagOptions{Mode: "max", Offsets: core.FromSlice(c.offsets), PaddingIdx: c.padding}
		y := op.EmbeddingBag(core.FromSlice(c.input), w, o)
		requireNear(t, y, c.y...)
		weights := op.Reshape(op.Arange(core.IntNum(1), core.IntNum(int64(y.Numel()+1)), nil, op.TensorOptions{}), y.Shape()...)
		require.NoError(t, autograd.Backward(op.Sum(op.Mul(y, weights), nil, false)))
		requireNear(t, w.Grad(), c.grad...)
	}
}

// TestEmbeddingBagOfNaNs: NaN counts only in the first row of a bag. The numbers are PyTorch's.
func TestEmbeddingBagOfNaNs(t *testing.T) {
	nan, zero := math.NaN(), 0
	for _, c := range []struct {
		weight, grad, padded []float64
		input                []int64
		y, y0                float64
	}{
		{[]float64{nan, 1, 2}, []float64{1, 0, 0}, []float64{0, 0, 1}, []int64{0, 1, 2}, nan, 2},
		{[]float64{nan, 1, 2}, []float64{0, 0, 1}, []float64{0, 0, 1}, []int64{2, 1, 0}, 2, 2},
		{[]float64{1, nan, 2}, []float64{0, 0, 1}, []float64{0, 1, 0}, []int64{0, 1, 2}, 2, nan},
		{[]float64{2, 1, nan}, []float64{1, 0, 0}, []float64{0, 1, 0}, []int64{0, 1, 2}, 2, 1},
		{[]float64{2, 1, nan}, []float64{0, 0, 1}, []float64{0, 0, 1}, []int64{2, 1, 0}, nan, nan},
		{[]float64{nan, nan, nan}, []float64{1, 0, 0}, []float64{0, 1, 0}, []int64{0, 1, 2}, nan, nan},
	} {
		for padding, want := range map[*int][]float64{nil: c.grad, &zero: c.padded} {
			w := op.Reshape(vector64(c.weight...), 3, 1).SetRequiresGrad(true)
			y := op.EmbeddingBag(op.Reshape(core.FromSlice(c.input), 1, 3), w, op.EmbeddingBagOptions{Mode: "max", PaddingIdx: padding})
			value := c.y
			if padding != nil {
				value = c.y0
			}
			got, err := core.Values[float64](y)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(value), fmt.Sprint(got[0]), "%v of %v", c.input, c.weight)
			require.NoError(t, autograd.Backward(op.Sum(y, nil, false)))
			requireNear(t, w.Grad(), want...)
		}
	}
}

// TestEmbeddingBagOfManyRows compares the largest of wide bags with those of their rows, in all dtypes.
func TestEmbeddingBagOfManyRows(t *testing.T) {
	const rows, features, bags, size = 97, 1100, 70, 13
	index := make([]int64, bags*size)
	for i := range index {
		index[i] = int64(i*i*31+i) % rows
	}
	input := core.FromSlice(index, bags, size)
	for _, d := range []core.DType{core.Float64, core.Float32, core.Float16, core.BFloat16} {
		values := op.Sin(op.Mul(op.Arange(nil, core.IntNum(rows*features), nil, op.TensorOptions{}), core.Num(0.7)))
		w := op.To(op.Reshape(values, features, rows), d)
		w = op.Transpose(w, 0, 1).Detach().SetRequiresGrad(true)
		same := w.Detach().SetRequiresGrad(true)
		y := op.EmbeddingBag(input, w, op.EmbeddingBagOptions{Mode: "max"})
		want := op.Amax(op.Embedding(input, same, op.EmbeddingOptions{}), []int{1}, false)
		require.NoError(t, y.Err())
		equal, err := core.Values[bool](op.All(op.Eq(y, want), nil, false))
		require.NoError(t, err)
		require.Equal(t, []bool{true}, equal, d)
		none := op.EmbeddingBag(input, w.Detach(), op.EmbeddingBagOptions{Mode: "max"})
		equal, err = core.Values[bool](op.All(op.Eq(none, want), nil, false))
		require.NoError(t, err)
		require.Equal(t, []bool{true}, equal, d)
		if d == core.Float64 { // no two rows of a bag are equal, but for those that are one
			require.NoError(t, autograd.Backward(op.Sum(op.Mul(y, y), nil, false)))
			require.NoError(t, autograd.Backward(op.Sum(op.Mul(want, want), nil, false)))
			a, err := core.Values[float64](w.Grad())
			require.NoError(t, err)
			requireNear(t, op.Contiguous(same.Grad()), a...)
		}
	}
	_, err := core.Values[float32](op.EmbeddingBag(core.FromSlice([]int64{0, 3}, 1, 2), op.Zeros(3, 2), op.EmbeddingBagOptions{Mode: "max"}))
	require.EqualError(t, err, "embedding_bag: index 3 at position 1 is out of range for dimension 0 of size 3")
	require.ErrorContains(t, op.EmbeddingBag(input, op.Zeros(rows, 2), op.EmbeddingBagOptions{Mode: "max", ScaleGradByFreq: true}).Err(), "max mode does not support scaling")
}
