package matmul

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/gpu/shader"
)

func TestLastWaveIsSplit(t *testing.T) {
	gpu := &shader.Device{Tuning: shader.DefaultTuning(false)}
	gpu.Multiprocessors = 4
	gpu.Tiles = []shader.Tile{{Rows: 32, Cols: 32, K: 16, ThreadRows: 4, ThreadCols: 4, Double: true, TileCost: 100_000}}
	pieces := func(m, n, k int, transposed bool) int {
		if c := contiguousProduct(gpu, m, n, k, transposed).estimate(); c.lastWave {
			return c.pieces
		}
		return 0
	}
	for _, transposed := range []bool{true, false} {
		require.Equal(t, 4, pieces(96, 96, 512, transposed))
		require.Equal(t, 4, pieces(70, 86, 1024, transposed))
		require.Equal(t, 4, pieces(131, 69, 800, transposed))
	}
	require.Zero(t, pieces(64, 64, 1024, true), "one whole wave")
}

// TestRemainderOfKIsSplit checks that a product whose K tiles do not divide is split in two, even if the last wave could be split
// instead.
func TestRemainderOfKIsSplit(t *testing.T) {
	gpu := &shader.Device{Tuning: shader.DefaultTuning(false)}
	splits := func(rowStride int) bool {
		p := contiguousProduct(gpu, 8192, 768, 50257, false)
		p.ARow = rowStride
		whole, _ := p.splitRemainder()
		return whole != nil && whole.remainderPays()
	}
	require.True(t, splits(50260))
	require.False(t, splits(50257), "read one element at a time")
}
