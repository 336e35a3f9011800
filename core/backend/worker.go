package backend

import (
	"time"

	"github.com/plait-ml/plait/core"
)

// First returns the first queued call and its number, for the worker; nil if the queue is empty.
func (s *Stream) First() (c *core.Call, n uint64) {
	t := s.Tail.Load() // load Tail first: a call on the caller's thread moves Done before Tail and must not look queued
	if n = s.taken.Load() + 1; n > t {
		return nil, n
	}
	return s.slots[n%queueSize], n
}

// Took must be called after calls have left the queue.
func (s *Stream) Took() {
	if s.nearlyFull.Load() {
		s.clearNearlyFull()
	}
	s.Notify()
}

// Rouse wakes the worker.
func (s *Stream) Rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Sleep blocks the worker until Rouse. It returns at once if Rouse was called before.
func (s *Stream) Sleep() { <-s.wake }

// Spin spins until ready, for a short time, and reports whether it is.
func (s *Stream) Spin(ready func() bool) bool {
	for start := time.Now(); time.Since(start) < s.spin; {
		for range 64 {
			if ready() {
				return true
			}
		}
	}
	return false
}

// Ended reports whether the stream is closed and its queue empty. The worker then returns; a later call starts a new one.
func (s *Stream) Ended() bool {
	if !s.closed.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Tail.Load() > s.taken.Load() {
		return false
	}
	// Until their cleanups have run, storages keep the stream alive for another garbage collection, but need not keep its slots.
	s.slots, s.working = nil, false
	return true
}
