package collective

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
)

// A waiter stays awake for a while before it parks, since a parked thread wakes later than a small collective takes: longer
// where each rank can have a core, so that ranks that go in step do not park at all.
const (
	shortSpin = 10 * time.Microsecond
	longSpin  = 100 * time.Microsecond
)

// spinOf returns how long ranks of a group of so many stay awake.
func spinOf(ranks int) time.Duration {
	if ranks <= runtime.NumCPU() {
		return longSpin
	}
	return shortSpin
}

// A Work is a collective on its way. The tensors that were given to it are ordered by it: whatever is launched on them later,
// on any stream, waits for it by itself. So nobody need wait for a Work but to learn its error.
type Work struct {
	*outcome
	label string
	group string // the name of the group
	use   string // what it is for, or empty
	place *local // where the rank waits for the others; nil for a work that did not start

	met    atomic.Bool // all that it needs of other ranks has come, or it has failed
	waited time.Time   // since when the rank waits

	mu       sync.Mutex
	after    core.Event       // the end of what the rank does with the result, if anything
	loans    []*core.Borrowed // of this rank's tensors
	written  []*core.Borrowed // those that the work writes to
	payloads [][]byte         // of an exchange
	source   int              // of a recv: who sent
}

// An outcome is how a work ends. A storage keeps it for as long as its memory may be in use, so it must not know the storages:
// what a storage's cleanup can reach is never collected.
type outcome struct {
	settled atomic.Bool   // launched on the streams, or failed
	ready   chan struct{} // closed then
	err     error         // once settled
	spin    time.Duration // how long a waiter stays awake
	events  []core.Event  // once settled: done when no rank uses the memory any more
}

func newWork(label string) *Work {
	return &Work{outcome: &outcome{ready: make(chan struct{})}, label: label}
}

// failed returns a work that never started.
func failedWork(label string, err error) *Work {
	w := newWork(label)
	w.settle(nil, err)
	return w
}

// settle ends the wait for the other ranks: the work is done when events are, or has failed before it started.
func (w *Work) settle(events []core.Event, err error) {
	w.met.Store(true)
	w.events, w.err = events, err
	if err != nil {
		for _, l := range w.written {
			l.Fail(err)
		}
	}
	w.settled.Store(true)
	close(w.ready)
}

// String returns the name of the collective and its number in the group, such as "all_reduce #5".
func (w *Work) String() string { return w.label }

// Group returns the name of the group; empty for a work that did not start.
func (w *Work) Group() string { return w.group }

// Arrived waits until every rank has made the call and all of them agree, and if memory is shared with somebody outside,
// such as a NumPy array, until the work is done. It returns the error if they do not agree; the tensors are then as they
// were.
func (w *Work) Arrived() error {
	w.arriveOn(-1)
	if err := w.refused(); err != nil || !w.shared() {
		return err
	}
	return w.Wait()
}

// ArrivedFor is [Work.Arrived] for at most d; it reports whether the wait is over.
func (w *Work) ArrivedFor(d time.Duration) (bool, error) {
	if !w.arrivedWithin(max(d, 0)) {
		return false, nil
	}
	if err := w.refused(); err != nil || !w.shared() {
		return true, err
	}
	return w.WaitFor(d)
}

// ArrivedOn is [Work.ArrivedFor] of a rank that goes on waiting until the others have come. Ranks that all do, so that none of them
// can go on, are told so.
func (w *Work) ArrivedOn(d time.Duration) (bool, error) {
	if !w.arriveOn(max(d, 0)) {
		return false, nil
	}
	return w.ArrivedFor(d)
}

// Met waits until every rank has made the call and all agree, or the work has failed, whose tensors stay failed then.
func (w *Work) Met() { w.arriveOn(-1) }

func (w *Work) shared() bool {
	for _, l := range w.loans {
		if l.Shared() {
			return true
		}
	}
	return false
}

// refused returns the error of a work that did not start, and makes the tensors usable again: their contents are untouched.
func (w *Work) refused() error {
	if w.err != nil {
		for _, l := range w.written {
			l.Restore(w.err)
		}
	}
	return w.err
}

// arrivedWithin waits until the work is settled, for at most d if d is not negative.
func (w *outcome) arrivedWithin(d time.Duration) bool {
	start := time.Now()
	for i := 1; !w.settled.Load(); i++ {
		if i%64 == 0 && time.Since(start) > w.spin {
			break
		}
	}
	if w.settled.Load() {
		return true
	}
	if d < 0 {
		<-w.ready
		return true
	}
	timer := time.NewTimer(max(d-time.Since(start), 0))
	defer timer.Stop()
	select {
	case <-w.ready:
		return true
	case <-timer.C:
		return w.settled.Load()
	}
}

// Wait waits until the collective is done and returns the error that kept it from being done. The group's timeout bounds
// the wait for the other ranks.
func (w *Work) Wait() error {
	w.arriveOn(-1)
	if err := w.refused(); err != nil {
		return err
	}
	for _, e := range w.all() {
		e.Wait()
	}
	return w.executed()
}

// WaitFor is [Work.Wait] for at most d; it reports whether the collective is done, or has failed.
func (w *Work) WaitFor(d time.Duration) (bool, error) {
	deadline := time.Now().Add(d)
	if !w.arrivedWithin(max(d, 0)) {
		return false, nil
	}
	if err := w.refused(); err != nil {
		return true, err
	}
	for _, e := range w.all() {
		if !e.WaitFor(time.Until(deadline)) {
			return false, nil
		}
	}
	return true, w.executed()
}

// Done reports whether the collective is done or has failed.
func (w *Work) Done() bool {
	if !w.settled.Load() {
		return false
	}
	for _, e := range w.all() {
		if !e.Done() {
			return false
		}
	}
	return true
}

// Err returns the error as far as it is known, without waiting.
func (w *Work) Err() error {
	if !w.settled.Load() {
		return nil
	}
	if w.err != nil {
		return w.err
	}
	return w.executed()
}

// Event returns an event that is done when no rank uses the tensors for the collective any more.
func (w *Work) Event() core.Event { return (*event)(w.outcome) }

// all returns the events that end a settled work.
func (w *Work) all() []core.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.after == nil {
		return w.events
	}
	return append(w.events[:len(w.events):len(w.events)], w.after)
}

// executed returns the error of execution that reached the rank's tensors.
func (w *Work) executed() error {
	for _, l := range w.loans {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// An event is the point at which a work is done. It exists before anybody knows on which streams that will be.
type event outcome

// Done implements [core.Event].
func (e *event) Done() bool {
	if !e.settled.Load() {
		return false
	}
	for _, o := range e.events {
		if !o.Done() {
			return false
		}
	}
	return true
}

// Wait implements [core.Event].
func (e *event) Wait() {
	for _, o := range e.Parts() {
		o.Wait()
	}
}

// Parts implements [core.Joint].
func (e *event) Parts() []core.Event {
	(*outcome)(e).arrivedWithin(-1)
	return e.events
}

// WaitFor implements [core.Event].
func (e *event) WaitFor(d time.Duration) bool {
	deadline := time.Now().Add(d)
	if !(*outcome)(e).arrivedWithin(max(d, 0)) {
		return false
	}
	for _, o := range e.events {
		if !o.WaitFor(time.Until(deadline)) {
			return false
		}
	}
	return true
}

// Stream implements [core.Event]: the end of a work is on no one stream.
func (e *event) Stream() core.Stream { return nil }

// A Works is a list of them.
type Works []*Work

// Wait waits for all of them and returns their errors.
func (w Works) Wait() error {
	var errs []error
	for _, x := range w {
		errs = append(errs, x.Wait())
	}
	return errors.Join(errs...)
}
