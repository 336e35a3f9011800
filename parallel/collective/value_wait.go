package collective

import (
	"maps"
	"time"

	"github.com/plait-ml/plait/core"
)

// Values that a rank reads may depend on collectives for which another rank never comes. So the deadlock detector counts waits for values.

// A valueWait is a wait for an event.
type valueWait struct {
	threads      int // that wait now
	since, until time.Time
}

// A valueWaiter waits for values on behalf of a rank. It reports the waits of the main thread: other threads may wait for a value while
// the main thread computes.
type valueWaiter struct{ local *local }

// Wait implements [core.Waiter].
func (v valueWaiter) Wait(e core.Event, d time.Duration) bool {
	const short = time.Millisecond // most waits are over by then
	detector, rank := v.local.detector()
	if !rank.onMain() || d >= 0 && d < short {
		if d < 0 {
			e.Wait()
			return true
		}
		return e.WaitFor(d)
	}
	end := time.Now().Add(d)
	for !e.WaitFor(short) {
		slice := deadlockDelay
		if d >= 0 {
			slice = min(slice, max(time.Until(end), 0))
		}
		if v.waitSlice(detector, rank, e, slice) {
			return true
		}
		if d >= 0 && !time.Now().Before(end) {
			return false
		}
	}
	return true
}

// waitSlice waits for e, at most for d, and then checks for a deadlock.
func (v valueWaiter) waitSlice(detector *deadlockDetector, rank *rankWaits, e core.Event, d time.Duration) bool {
	detector.mu.Lock()
	w := rank.values[e]
	if w == nil || w.threads == 0 && time.Since(w.until) > 10*time.Millisecond { // the thread has done something else since
		maps.DeleteFunc(rank.values, func(_ core.Event, w *valueWait) bool { return w.threads == 0 })
		w = &valueWait{since: time.Now()}
		rank.values[e] = w
	}
	w.threads++
	detector.mu.Unlock()
	done := e.WaitFor(d)
	var stuck []blockedCall
	detector.mu.Lock()
	if !done {
		stuck = detector.deadlocked()
	}
	w.threads--
	w.until = time.Now()
	if done {
		delete(rank.values, e)
	}
	detector.mu.Unlock()
	v.local.rendezvous.world.report(stuck)
	return done
}
