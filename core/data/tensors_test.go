package data

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/stretchr/testify/require"
)

func TestTensorDataset(t *testing.T) {
	x := core.FromSlice([]float32{0, 1, 10, 11, 20, 21, 30, 31, 40, 41}, 5, 2)
	y := core.FromSlice([]int64{0, 1, 2, 3, 4})
	d, err := NewTensorDataset(x, y)
	require.NoError(t, err)
	require.Equal(t, 5, d.Len())

	row, err := d.At(3)
	require.NoError(t, err)
	requireTensor(t, row[0], core.Float32, []int{2}, 30, 31)
	requireTensor(t, row[1], core.Int64, []int{}, 3)
	require.Equal(t, x.Storage(), row[0].Storage(), "a row is a view")
	_, err = d.At(5)
	require.Error(t, err)

	batch, err := d.Batch([]int{4, 0, 4})
	require.NoError(t, err)
	requireTensor(t, batch[0], core.Float32, []int{3, 2}, 40, 41, 0, 1, 40, 41)
	requireTensor(t, batch[1], core.Int64, []int{3}, 4, 0, 4)

	// Row by row and batch by batch, the loaders agree.
	for _, workers := range []int{0, 2} {
		o := Options{BatchSize: 2, Shuffle: true, Workers: workers}
		rows, err := NewLoader[[]*core.Tensor](d, Collate[[]*core.Tensor, []*core.Tensor], o)
		require.NoError(t, err)
		batches, err := NewBatchLoader(d, o)
		require.NoError(t, err)
		a, b := rows.Start(t.Context()), batches.Start(t.Context())
		for range 3 {
			left, err := a.Next()
			require.NoError(t, err)
			right, err := b.Next()
			require.NoError(t, err)
			for k := range left {
				want, err := core.Values[float64](left[k])
				require.NoError(t, err)
				requireTensor(t, right[k], left[k].DType(), left[k].Shape(), want...)
			}
		}
		a.Close()
		b.Close()
	}
}

func TestTensorDatasetRefuses(t *testing.T) {
	released := core.Scalar(1.0)
	released.Release()
	for _, list := range [][]*core.Tensor{
		nil, {nil}, {released}, {core.Scalar(1.0)}, {core.FromSlice([]int{1, 2}), core.FromSlice([]int{1, 2, 3})}, {core.Num(1)},
	} {
		_, err := NewTensorDataset(list...)
		require.Error(t, err)
	}
}

// What a pass allocates goes back when its batches are released, read or not.
func TestBatchesGiveTheirMemoryBack(t *testing.T) {
	x := core.FromSlice(make([]float32, 1000), 100, 10)
	defer x.Release()
	d, err := NewTensorDataset(x)
	require.NoError(t, err)
	device := x.Device()
	before := coretest.Settle(t, device)
	for _, workers := range []int{0, 3} {
		l, err := NewBatchLoader(d, Options{BatchSize: 8, Workers: workers})
		require.NoError(t, err)
		n := 0
		for batch, err := range l.Epoch(t.Context()) {
			require.NoError(t, err)
			Release(batch)
			if n++; n == 5 {
				break
			}
		}
		require.Equal(t, before, core.MemoryUsage(device).Current)
	}
}
