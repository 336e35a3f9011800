package backend

import (
	"time"

	"github.com/plait-ml/plait/core"
)

// First returns the first call in the queue and its number, for the worker; nil if there is none.
func (s *Stream) First() (c *core.Call, n uint64) {
	t := s.Tail.Load() // first: a call that runs on its caller's thread moves Done before Tail, and must not be taken for queued
	if n = s.taken.Load() + 1; n > t {
		return nil, n
	}
	return s.slots[n%queueSize], n
}

// Took says that calls have left the queue.
func (s *Stream) Took() {
	if s.crowded.Load() {
		s.relieve()
	}
	s.Notify()
}

// Rouse wakes the worker if it sleeps.
func (s *Stream) Rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Sleep lets the worker sleep until it is roused, which it may have been already.
func (s *Stream) Sleep() { <-s.wake }

// Spin waits a little until there is something to do, and reports whether there is.
func (s *Stream) Spin(ready func() bool) bool {
	for start := time.Now(); time.Since(start) < spin; {
		for range 64 {
			if ready() {
				return true
			}
		}
	}
	return false
}

// Ended reports whether the stream is closed and has nothing queued. The worker then returns; should there be another call, it
// gets another worker.
func (s *Stream) Ended() bool {
	if !s.closed.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Tail.Load() > s.taken.Load() {
		return false
	}
	// Storages whose cleanups are due keep the stream for another cycle of the collector, and need not keep this, most of it, as well.
	s.slots, s.working = nil, false
	return true
}
