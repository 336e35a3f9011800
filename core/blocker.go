package core

import (
	"sync/atomic"
	"time"
)

// cancelDelay is how long a blocked worker takes at most to see that its call was cancelled.
const cancelDelay = 100 * time.Millisecond

// A Blocker lets the worker of a queue wait for events of other queues. A deadlock detector can see what the worker waits for, and can
// cancel the calls of a deadlock. Calls are numbered in the order of the queue.
type Blocker struct {
	blocked   atomic.Pointer[blockage]
	cancelled atomic.Pointer[cancellation]
}

// A blockage says that call number n waits for an event.
type blockage struct {
	on Event
	n  uint64
}

type cancellation struct {
	last uint64 // number of the last cancelled call
	err  error
}

// BlockOn waits for e on behalf of call n. wait waits for at most d and reports whether e has come. If the call was cancelled, BlockOn
// returns the reason.
func (b *Blocker) BlockOn(e Event, n uint64, wait func(d time.Duration) bool) error {
	b.blocked.Store(&blockage{e, n})
	defer b.blocked.Store(nil)
	for !wait(cancelDelay) {
		if err := b.Cancelled(n); err != nil {
			return err
		}
	}
	return nil
}

// BlockedOn returns the event for which the worker waits before it can begin call n, on behalf of that call or an earlier one; nil if there is
// none. A call that has begun waits for nothing, even if a later one does.
func (b *Blocker) BlockedOn(n uint64) Event {
	if w := b.blocked.Load(); w != nil && w.n <= n {
		return w.on
	}
	return nil
}

// Cancel makes the calls up to the given one fail with err instead of running, except those that have begun.
func (b *Blocker) Cancel(last uint64, err error) {
	next := &cancellation{last, err}
	for old := b.cancelled.Load(); old == nil || old.last < last; old = b.cancelled.Load() {
		if b.cancelled.CompareAndSwap(old, next) {
			return
		}
	}
}

// Cancelled returns the reason why call n must not run, or nil.
func (b *Blocker) Cancelled(n uint64) error {
	if c := b.cancelled.Load(); c != nil && n <= c.last {
		return c.err
	}
	return nil
}
