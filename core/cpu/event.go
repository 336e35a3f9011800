package cpu

import (
	"slices"
	"time"

	"github.com/plait-ml/plait/core"
)

func (s *stream) notify() {
	if s.waiters.Load() > 0 {
		s.doneMu.Lock()
		s.doneCv.Broadcast()
		s.doneMu.Unlock()
	}
}

// wait blocks until call n is done.
func (s *stream) wait(n uint64) {
	if s.done.Load() >= n {
		return
	}
	start := time.Now()
	for i := 1; ; i++ {
		if s.done.Load() >= n {
			return
		}
		if i%64 == 0 && time.Since(start) > spin {
			break
		}
	}
	s.waiters.Add(1)
	s.doneMu.Lock()
	for s.done.Load() < n {
		s.doneCv.Wait()
	}
	s.doneMu.Unlock()
	s.waiters.Add(-1)
}

// waitFor is wait for at most d; it reports whether call n is done. After the spin it looks again at growing intervals:
// a caller that limits its wait is one that has time.
func (s *stream) waitFor(n uint64, d time.Duration) bool {
	start := time.Now()
	pause := 5 * time.Microsecond
	for i := 1; s.done.Load() < n; i++ {
		if i%64 != 0 {
			continue
		}
		passed := time.Since(start)
		if passed >= d {
			return s.done.Load() >= n
		}
		if passed > spin {
			time.Sleep(min(pause, d-passed))
			pause = min(2*pause, time.Millisecond)
		}
	}
	return true
}

// event is a point in a stream.
type event struct {
	stream *stream
	number uint64
}

// Done implements [core.Event].
func (e event) Done() bool { return e.stream.done.Load() >= e.number }

// Wait implements [core.Event].
func (e event) Wait() { e.stream.wait(e.number) }

// WaitFor implements [core.Event].
func (e event) WaitFor(d time.Duration) bool { return e.stream.waitFor(e.number, d) }

// Stream implements [core.Event].
func (e event) Stream() core.Stream { return e.stream }

// Record implements [core.Stream].
func (s *stream) Record() core.Event { return event{s, s.tail.Load()} }

// Next implements [core.Stream].
func (s *stream) Next() core.Event { return event{s, s.tail.Load() + 1} }

// Locked implements [core.Stream].
func (s *stream) Locked(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// Wait implements [core.Stream].
func (s *stream) Wait(e core.Event) {
	if e.Stream() == core.Stream(s) {
		return
	}
	s.mu.Lock()
	if len(s.pending) == cap(s.pending) { // of a stream without calls, which memory comes from, nobody else takes them
		s.pending = slices.DeleteFunc(s.pending, core.Event.Done)
	}
	s.pending = append(s.pending, e)
	s.mu.Unlock()
}
