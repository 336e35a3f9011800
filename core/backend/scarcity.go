package backend

import (
	"runtime"
	"time"

	"github.com/plait-ml/plait/core"
)

// otherRanksWait is how long an allocation waits for other ranks' work, which may itself wait for this rank.
const otherRanksWait = time.Second

// Settle waits until unused memory is back in the caches, if the caller may block. It waits for the rank's own streams, for other ranks'
// streams up to a time limit, and for the cleanups of storages that were never released.
func Settle(rank int, streams []*Stream) {
	if core.ForeignLockHeld() {
		return
	}
	end := time.Now().Add(otherRanksWait)
	finish := func() {
		for _, s := range streams {
			if s.rank == rank {
				s.Finish(s.Tail.Load())
			} else {
				s.FinishFor(s.Tail.Load(), time.Until(end))
			}
		}
	}
	finish()
	for range 2 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	finish() // cleanups may free memory behind unfinished calls
}
