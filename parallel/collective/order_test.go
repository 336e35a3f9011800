package collective

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TestCase03SumsInRankOrder checks that sums are bitwise equal to a sum in rank order, on every rank, however the data is split.
func TestCase03SumsInRankOrder(t *testing.T) {
	const world, n = 5, 70000
	data := make([][]float32, world)
	for r := range data {
		random := rand.New(rand.NewPCG(7, uint64(r)))
		data[r] = make([]float32, n)
		for i := range data[r] {
			data[r][i] = float32(random.NormFloat64()) * float32(int(1)<<(random.IntN(20)))
		}
	}
	want := slices.Clone(data[0])
	for r := 1; r < world; r++ {
		for i, v := range data[r] {
			want[i] += v
		}
	}
	for i := range want {
		want[i] /= world
	}
	for _, piece := range []int{n, 1000, 333, 33000} {
		require.NoError(t, spawn(world, nil, longTimeout, func(r *Rank) error {
			x := core.FromSlice(data[r.Rank])
			for from := 0; from < n; from += piece {
				r.World.AllReduce(op.Narrow(x, 0, from, min(piece, n-from)), Avg)
			}
			got, err := core.Values[float32](x)
			if err != nil {
				return err
			}
			for i := range want {
				if got[i] != want[i] {
					return fmt.Errorf("pieces of %d: element %d is %v, want %v", piece, i, got[i], want[i])
				}
			}
			return nil
		}))
	}
	parts := make([]*core.Tensor, world)
	for r := range parts {
		parts[r] = core.FromSlice(data[r])
	}
	require.NoError(t, AllReduceSync(parts, Avg))
	for r := range parts {
		got, err := core.Values[float32](parts[r])
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

// TestCase03ReduceSyncOrder checks that ReduceSyncMany adds the other devices' tensors in their order, and the first device's
// tensor last.
func TestCase03ReduceSyncOrder(t *testing.T) {
	for _, c := range []struct {
		values []float32
		want   float32
	}{
		{[]float32{1, 1e8, -1e8, 1}, 2}, // 0 or 1 if the first device's tensor were added earlier
		{[]float32{1e8, 1, 1e8, -1e8}, 1e8},
		{[]float32{-1e8, 1e8, 1, 0}, 0},
	} {
		lists := make([][]*core.Tensor, len(c.values))
		for i, v := range c.values {
			lists[i] = []*core.Tensor{core.FromSlice([]float32{v})}
		}
		require.NoError(t, ReduceSyncMany(lists, Sum, nil))
		got, err := lists[0][0].Item()
		require.NoError(t, err)
		assert.EqualValues(t, c.want, got, c.values)
	}
}
