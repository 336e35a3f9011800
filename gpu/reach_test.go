package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/gpu/shader"
)

// TestPiecesBehindReach checks that only a piece that begins its slab ends behind what programs can index in every dtype.
func TestPiecesBehindReach(t *testing.T) {
	const large = reach + 512
	s := &slab{size: 2 * large, free: []span{{0, 2 * large}}}
	require.NoError(t, allSlabs.add(s))
	defer allSlabs.remove(s)
	m := &memory{limit: 1, slabSize: 1, slabs: []*slab{s}}
	first, err := m.take(granule)
	require.NoError(t, err)
	_, err = m.take(large)
	require.Error(t, err, "it would begin at %d and end behind %d", granule, reach)
	second, err := m.take(reach - granule)
	require.NoError(t, err)
	require.Equal(t, uint64(granule), second.Handle&shader.OffsetMask)
	_, err = m.take(granule)
	require.Error(t, err)
	m.Release(second)
	m.Release(first)
	whole, err := m.take(large)
	require.NoError(t, err)
	require.Zero(t, whole.Handle&shader.OffsetMask)
}
