package cpu

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
)

func TestSlabs(t *testing.T) {
	var s slabs
	made := 0
	take := func(class int) unsafe.Pointer {
		p := s.take(class, func() unsafe.Pointer {
			made++
			return systemAlloc(slabSize)
		})
		require.NotNil(t, p)
		require.Zero(t, uintptr(p)%64)
		clear(unsafe.Slice((*byte)(p), class))
		return p
	}
	give := func(p unsafe.Pointer, class int) unsafe.Pointer {
		ours, empty := s.put(p, class)
		require.True(t, ours)
		return empty
	}
	var pieces []unsafe.Pointer
	for range 10 {
		pieces = append(pieces, take(slabPiece))
	}
	require.Equal(t, 2, made)
	small := take(64)
	require.Nil(t, give(small, 64))
	require.Equal(t, small, take(64), "a piece that came back is used again")

	other := new(int)
	ours, _ := s.put(unsafe.Pointer(other), 64)
	require.False(t, ours)

	var freed []unsafe.Pointer
	for _, p := range pieces {
		if slab := give(p, slabPiece); slab != nil {
			freed = append(freed, slab)
		}
	}
	require.Len(t, freed, 1, "of two slabs one has a piece in use")
	require.Zero(t, uintptr(freed[0])%slabSize)
	systemFree(freed[0], slabSize)
	take(slabPiece)
	require.Equal(t, 2, made, "pieces of the other slab are used before a new one is asked for")
}

func TestSmallPiecesGoBackToTheSystem(t *testing.T) {
	setup()
	d := &Device{Device: backend.NewDevice("cpu", maxDevices, maxDevices)}
	s := newStream(d, 0)
	for range 3 {
		var pieces []core.Memory
		for i := range 1000 {
			m, err := s.Alloc(10 * i)
			require.NoError(t, err)
			pieces = append(pieces, m)
		}
		require.GreaterOrEqual(t, d.Reserved(), 10*1000*999/2)
		for _, m := range pieces {
			s.Free(m)
		}
		s.Cache.Empty(s.Done.Load())
		require.Zero(t, d.Reserved())
	}
}
