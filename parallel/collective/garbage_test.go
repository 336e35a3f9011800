package collective

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TestRanksAreGarbageCollected checks that the streams of ended ranks, and everything reachable from them, are collected. An
// object that its own cleanup can reach would never be.
func TestRanksAreGarbageCollected(t *testing.T) {
	spawn := func() {
		require.NoError(t, Spawn(3, nil, longTimeout, func(r *Rank) error {
			x := filled(64, 1)
			for _, w := range []*Work{r.World.AllReduce(x, Sum), r.World.AllGatherInto(filled(192, 0), x)} {
				if err := w.Wait(); err != nil {
					return err
				}
			}
			all := make([]*core.Tensor, 7) // more than a call's arrays have room for
			for i := range all {
				all[i] = x
			}
			return op.Cat(all, 0).Err()
		}))
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	collect := func(cycles int) (m runtime.MemStats) {
		for range cycles { // one cycle's cleanups release what the next cycle collects
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m
	}
	for range 10 {
		spawn()
	}
	before := collect(4)
	for range 50 {
		spawn()
	}
	first := collect(1)
	last := collect(3)
	assert.Less(t, int(last.HeapObjects)-int(before.HeapObjects), 500, "50 spawns leave objects behind")
	// If more than a part of the garbage needed a second cycle, the heap would grow without bound.
	assert.Less(t, int(first.HeapAlloc)-int(last.HeapAlloc), 1<<20, "garbage is left to the next cycle")
}
