package collective

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
)

// A deferredEvent is an event whose parts become known later, such as the end of a job of a relay.
type deferredEvent struct {
	known  atomic.Bool
	ready  chan struct{} // closed when the parts are known
	events []core.Event  // the parts

	job    deferring     // whose end it is, or nil
	world  *world        // of several processes, whose messages a waiter moves along, or nil
	idle   time.Duration // how long it does so after the last one, if no data is under way
	before []core.Event  // without a job: the events after which the parts are known
}

// deferring is a job whose end is a deferredEvent.
type deferring interface {
	blockedOn() core.Event // that the job waits for, or nil
	cancel(err error)      // makes the job fail if it has not begun
}

func newDeferredEvent() *deferredEvent { return &deferredEvent{ready: make(chan struct{})} }

// resolve sets the parts.
func (e *deferredEvent) resolve(events ...core.Event) {
	e.events = events
	e.known.Store(true)
	close(e.ready)
}

// Done implements [core.Event].
func (e *deferredEvent) Done() bool { return e.known.Load() && allDone(e.events) }

// Wait implements [core.Event].
func (e *deferredEvent) Wait() {
	for _, o := range e.Parts() {
		o.Wait()
	}
}

// Parts implements [core.Joint].
func (e *deferredEvent) Parts() []core.Event {
	if !e.spin(-1) {
		<-e.ready
	}
	return e.events
}

// spin moves messages along for a while, at most for d unless d is negative, and reports whether the parts are known.
func (e *deferredEvent) spin(d time.Duration) bool {
	if e.world != nil {
		e.world.move(&e.known, func() time.Duration {
			if j, ok := e.job.(*wireJob); ok && j.flowing.Load() && e.idle == longSpin {
				return acrossSpin
			}
			return e.idle
		}, d)
	}
	return e.known.Load()
}

// Known implements [core.Joint].
func (e *deferredEvent) Known(d time.Duration) bool {
	if d <= 0 {
		return e.known.Load()
	}
	end := time.Now().Add(d)
	return e.spin(d) || e.parked(time.Until(end))
}

// parked is Known for who does not move messages along.
func (e *deferredEvent) parked(d time.Duration) bool {
	if e.known.Load() {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-e.ready:
		return true
	case <-timer.C:
		return false
	}
}

// waitsFor returns events that must be done before e can be: see the function of that name.
func (e *deferredEvent) waitsFor() []core.Event {
	switch {
	case e.known.Load():
		return e.events
	case e.job == nil:
		return e.before
	}
	if on := e.job.blockedOn(); on != nil {
		return []core.Event{on}
	}
	return nil
}

// WaitFor implements [core.Event].
func (e *deferredEvent) WaitFor(d time.Duration) bool {
	deadline := time.Now().Add(d)
	if !e.Known(d) {
		return false
	}
	for _, o := range e.events {
		if !o.WaitFor(time.Until(deadline)) {
			return false
		}
	}
	return true
}

// Stream implements [core.Event]. The parts may be on several streams.
func (e *deferredEvent) Stream() core.Stream { return nil }

// pending returns the events that are not done.
func pending(events []core.Event) []core.Event {
	var list []core.Event
	for _, e := range events {
		if !e.Done() {
			list = append(list, e)
		}
	}
	return list
}

// allDone reports whether all events are done.
func allDone(events []core.Event) bool {
	return !slices.ContainsFunc(events, func(e core.Event) bool { return !e.Done() })
}
