package backend

import (
	"runtime"
	"time"

	"github.com/plait-ml/plait/core"
)

// patience is how long an allocation waits for the work of other ranks, which may itself wait for this one.
const patience = time.Second

// Settle waits, where the caller may wait, until memory has come back that nobody needs any more: for the work of a rank on streams,
// for that of others as long as patience lasts, and for the cleanups of storages that were not released. It is then in the caches.
func Settle(rank int, streams []*Stream) {
	if !core.MayWait() {
		return
	}
	end := time.Now().Add(patience)
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
	finish() // cleanups free memory after calls that were not done
}
