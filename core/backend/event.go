package backend

import (
	"slices"
	"time"

	"github.com/plait-ml/plait/core"
)

// An Event is the end of a call of a stream.
type Event struct {
	stream *Stream
	number uint64
}

// Number returns the number of the call.
func (e Event) Number() uint64 { return e.number }

// Done implements [core.Event].
func (e Event) Done() bool {
	if e.stream.Done.Load() >= e.number {
		return true
	}
	e.stream.rouseDeferred()
	return false
}

// Wait implements [core.Event].
func (e Event) Wait() { e.stream.Finish(e.number) }

// WaitFor implements [core.Event].
func (e Event) WaitFor(d time.Duration) bool { return e.stream.FinishFor(e.number, d) }

// Cancel makes the calls up to the event fail with err instead of running, except those that have begun.
func (e Event) Cancel(err error) { e.stream.Cancel(e.number, err) }

// Stream implements [core.Event].
func (e Event) Stream() core.Stream { return e.stream.self }

// Event returns the event of call n.
func (s *Stream) Event(n uint64) core.Event { return Event{s, n} }

// Record implements [core.Stream].
func (s *Stream) Record() core.Event { return Event{s, s.Tail.Load()} }

// Next implements [core.Stream].
func (s *Stream) Next() core.Event { return Event{s, s.Tail.Load() + 1} }

// Locked implements [core.Stream].
func (s *Stream) Locked(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// Wait implements [core.Stream].
func (s *Stream) Wait(e core.Event) {
	if e.Stream() == s.self {
		return
	}
	s.mu.Lock()
	if len(s.pending) == cap(s.pending) { // a stream without calls never removes them otherwise
		s.pending = slices.DeleteFunc(s.pending, core.Event.Done)
	}
	s.pending = append(s.pending, e)
	s.mu.Unlock()
}

// Synchronize implements [core.Stream].
func (s *Stream) Synchronize() error {
	s.mu.Lock()
	others := slices.Clone(s.pending)
	s.mu.Unlock()
	for _, e := range others {
		e.Wait()
	}
	s.Finish(s.Tail.Load())
	return s.self.TakeError()
}
