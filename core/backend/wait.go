package backend

import (
	"sync/atomic"
	"time"
)

// shortSpin is how long workers and waiters spin before they sleep, unless [Options] say otherwise.
const shortSpin = 20 * time.Microsecond

// Notify wakes threads that wait for one of the stream's counters.
func (s *Stream) Notify() {
	if s.waiters.Load() > 0 {
		s.doneMu.Lock()
		s.doneCv.Broadcast()
		s.doneMu.Unlock()
	}
}

// Awaited reports whether a thread sleeps until one of the stream's counters changes.
func (s *Stream) Awaited() bool { return s.waiters.Load() > 0 }

// Finish blocks until call n is done.
func (s *Stream) Finish(n uint64) {
	if !s.help(n) {
		s.runner.Demand(n)
		s.Until(&s.Done, n)
	}
}

// help runs the calls up to n for which the worker was not woken, and reports whether n is done.
func (s *Stream) help(n uint64) bool {
	if s.Done.Load() < n && s.deferred.Load() && s.deferred.Swap(false) {
		if s.runner.Help(n); s.Done.Load() < s.Tail.Load() {
			s.Rouse()
		}
	}
	return s.Done.Load() >= n
}

// rouseDeferred wakes the worker if it was not woken for the last calls.
func (s *Stream) rouseDeferred() {
	if s.deferred.Load() && s.deferred.Swap(false) {
		s.Rouse()
	}
}

// Until blocks until a counter of the stream is at least n. Code that increases it must call [Stream.Notify].
func (s *Stream) Until(number *atomic.Uint64, n uint64) {
	start := time.Now()
	for i := 1; ; i++ {
		if number.Load() >= n {
			return
		}
		if i%64 == 0 && time.Since(start) > s.spin {
			break
		}
	}
	s.waiters.Add(1)
	s.doneMu.Lock()
	for number.Load() < n {
		s.doneCv.Wait()
	}
	s.doneMu.Unlock()
	s.waiters.Add(-1)
}

// FinishFor is [Stream.Finish] with the timeout d. It reports whether call n is done.
func (s *Stream) FinishFor(n uint64, d time.Duration) bool {
	if s.help(n) {
		return true
	}
	s.runner.Demand(n)
	return s.UntilFor(&s.Done, n, d)
}

// UntilFor is [Stream.Until] with the timeout d. It reports whether the counter is at least n.
func (s *Stream) UntilFor(number *atomic.Uint64, n uint64, d time.Duration) bool {
	start := time.Now()
	for i := 1; i%64 != 0 || time.Since(start) < min(s.spin, d); i++ {
		if number.Load() >= n {
			return true
		}
	}
	if d <= s.spin {
		return number.Load() >= n
	}
	over := false
	timer := time.AfterFunc(d-s.spin, func() {
		s.doneMu.Lock()
		over = true
		s.doneCv.Broadcast()
		s.doneMu.Unlock()
	})
	defer timer.Stop()
	s.waiters.Add(1)
	defer s.waiters.Add(-1)
	s.doneMu.Lock()
	defer s.doneMu.Unlock()
	for number.Load() < n && !over {
		s.doneCv.Wait()
	}
	return number.Load() >= n
}
