package collective

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
)

// A waiter spins before it parks, because waking a parked thread takes longer than a small collective. It spins longer if every rank can
// have its own core, so that ranks in step never park.
const (
	shortSpin = 10 * time.Microsecond
	longSpin  = 100 * time.Microsecond
	// acrossSpin is how long a waiter spins after the last message of a transfer in which all processes take part already. While ranks are
	// still to come it spins no longer than others, since the rank itself may have to compute before they can go on.
	acrossSpin = 5 * time.Millisecond
)

// spinOf returns the spin time in a group of the given size.
func spinOf(ranks int) time.Duration {
	if ranks <= runtime.NumCPU() {
		return longSpin
	}
	return shortSpin
}

// A Work is a collective in progress. Later calls on its tensors, on any stream, wait for it automatically. Callers need to wait for a Work
// only to learn its error.
type Work struct {
	*outcome
	label   string
	group   string // name of the group
	purpose string // purpose, or empty
	local   *local // backend of the rank; nil for a work that did not start

	met    atomic.Bool // all ranks have arrived, or the work has failed
	yields atomic.Bool // WaitForRanksUnlessCrossed waits for it, and stops waiting when another rank needs this one in another call
	waited time.Time   // when the rank began to wait
	times  times

	cancelled atomic.Pointer[error] // why a part of it was cancelled after its start, or nil

	mu       sync.Mutex
	after    core.Event       // end of the write-back of the result, if any
	borrowed []*core.Borrowed // the rank's tensors
	written  []*core.Borrowed // those that the collective writes
	payloads [][]byte         // of an exchange
	source   int              // of a recv: the sender
}

// times say what became of a call and when, on [clockNow]'s clock; 0 means not yet, or not known.
type times struct {
	called  int64
	started atomic.Int64 // all ranks had arrived
	ended   atomic.Int64 // no rank used the memory any more
}

// end records the end, if it is not known yet.
func (t *times) end(now int64) { t.ended.CompareAndSwap(0, now) }

// An outcome is the part of a Work that a storage keeps while its memory may be in use. It must not refer to storages: a storage that its
// own cleanup can reach is never collected.
type outcome struct {
	settled atomic.Bool   // launched on the streams, or failed
	ready   chan struct{} // closed when settled
	err     error         // set before settled
	spin    time.Duration // how long a waiter spins
	world   *world        // of several processes, whose messages a waiter moves along, or nil
	events  []core.Event  // set before settled: done when no rank uses the memory any more
	over    atomic.Bool   // all of them were done when somebody asked: works of empty tensors end with others, which do so in turn
}

func newWork(label string) *Work {
	return &Work{outcome: &outcome{ready: make(chan struct{})}, label: label}
}

// failedWork returns a work that never started.
func failedWork(label string, err error) *Work {
	w := newWork(label)
	w.settle(nil, err)
	return w
}

// settle ends the wait for other ranks. Without an error the work was launched and is done when events are. With an error it has not started.
func (w *Work) settle(events []core.Event, err error) {
	w.met.Store(true)
	w.events, w.err = events, err
	if err != nil || len(events) == 0 {
		w.times.end(clockNow())
	}
	if err != nil {
		w.events = w.failOutputs(err)
	}
	w.settled.Store(true)
	close(w.ready)
}

// failOutputs marks the outputs of a work that has not started as failed, and returns the event that is done when they are marked. Calls
// launched before the work read the outputs' old contents, which are valid, so the outputs are marked after those calls. A goroutine waits
// for them: on a communication stream the mark could be queued behind a collective that waits for calls behind this work, and so for the mark.
func (w *Work) failOutputs(err error) []core.Event {
	var before []core.Event
	for _, l := range w.written {
		before = append(before, pending(l.Waits())...)
	}
	mark := func() {
		for _, e := range before {
			e.Wait()
		}
		for _, l := range w.written {
			l.FailUnchanged(err)
		}
	}
	if len(before) == 0 {
		mark()
		return nil
	}
	marked := newDeferredEvent()
	marked.before = before
	go func() {
		mark()
		marked.resolve()
	}()
	return []core.Event{marked}
}

// String returns the collective's name and sequence number, such as "all_reduce #5".
func (w *Work) String() string { return w.label }

// Group returns the name of the group; empty for a work that did not start.
func (w *Work) Group() string { return w.group }

// Arrived waits until every rank has arrived and all agree. If the memory is shared with code outside the engine, such as a NumPy array, it
// waits until the work is done. If the ranks disagree it returns the error, and the tensors are unchanged.
func (w *Work) Arrived() error {
	w.arriveOn(-1)
	if err := w.restoreOutputs(); err != nil || !w.shared() {
		return err
	}
	return w.Wait()
}

// ArrivedFor is [Work.Arrived] with the timeout d. It reports whether the wait is over.
func (w *Work) ArrivedFor(d time.Duration) (bool, error) {
	if !w.arrivedWithin(max(d, 0)) {
		return false, nil
	}
	if err := w.restoreOutputs(); err != nil || !w.shared() {
		return true, err
	}
	return w.WaitFor(d)
}

// ArrivedOn is [Work.ArrivedFor] for a rank that does nothing else until the other ranks arrive. If all ranks do so, and none can go on,
// they get an error.
func (w *Work) ArrivedOn(d time.Duration) (bool, error) {
	if !w.arriveOn(max(d, 0)) {
		return false, nil
	}
	return w.ArrivedFor(d)
}

// WaitForRanks waits until every rank has arrived, or the work has failed. Unlike [Work.Arrived] it leaves tensors of a failed work failed.
func (w *Work) WaitForRanks() { w.arriveOn(-1) }

func (w *Work) shared() bool {
	for _, l := range w.borrowed {
		if l.Shared() {
			return true
		}
	}
	return false
}

// restoreOutputs returns the error of a work that did not start, or nil. It makes the outputs of such a work valid again, since their contents
// are unchanged.
func (w *Work) restoreOutputs() error {
	if w.err != nil {
		for _, l := range w.written {
			l.Restore(w.err, !allDone(w.events))
		}
	}
	return w.err
}

// arrivedWithin waits until the work is settled, at most for d unless d is negative.
func (w *outcome) arrivedWithin(d time.Duration) bool {
	start := time.Now()
	moved := w.world != nil && w.world.move(&w.settled, func() time.Duration { return w.spin }, d)
	for i := 1; !moved && !w.settled.Load(); i++ {
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

// Wait waits until the collective is done and returns its error. The group's timeout limits the wait for other ranks.
func (w *Work) Wait() error {
	w.arriveOn(-1)
	if err := w.restoreOutputs(); err != nil {
		return err
	}
	for _, e := range w.all() {
		e.Wait()
	}
	w.noteEnd()
	return w.executed()
}

// WaitFor is [Work.Wait] with the timeout d. It reports whether the collective is done or has failed.
func (w *Work) WaitFor(d time.Duration) (bool, error) {
	deadline := time.Now().Add(d)
	if !w.arrivedWithin(max(d, 0)) {
		return false, nil
	}
	if err := w.restoreOutputs(); err != nil {
		return true, err
	}
	for _, e := range w.all() {
		if !e.WaitFor(time.Until(deadline)) {
			return false, nil
		}
	}
	w.noteEnd()
	return true, w.executed()
}

// WaitOn is [Work.WaitFor] for a rank that does nothing else until the end: see [Work.ArrivedOn].
func (w *Work) WaitOn(d time.Duration) (bool, error) {
	deadline := time.Now().Add(d)
	if arrived, err := w.ArrivedOn(d); !arrived || err != nil {
		return arrived, err
	}
	return w.WaitFor(time.Until(deadline))
}

// noteEnd records that the work was seen to be done, unless its end is known better.
func (w *Work) noteEnd() {
	if w.times.ended.Load() == 0 {
		w.times.end(clockNow())
	}
}

// Done reports whether the collective is done or has failed.
func (w *Work) Done() bool {
	return w.settled.Load() && (w.err != nil || allDone(w.all()))
}

// Err returns the error known so far. It does not wait.
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

// executed returns the execution error of the rank's tensors, or why a part of the collective was cancelled.
func (w *Work) executed() error {
	for _, l := range w.borrowed {
		if err := l.Err(); err != nil {
			return err
		}
	}
	if err := w.cancelled.Load(); err != nil {
		return *err
	}
	return nil
}

// An event is the end of a work. It exists before the streams of the work are known.
type event outcome

// Done implements [core.Event].
func (e *event) Done() bool {
	if e.over.Load() {
		return true
	}
	done := e.settled.Load() && allDone(e.events)
	if done {
		e.over.Store(true)
	}
	return done
}

// Wait implements [core.Event].
func (e *event) Wait() {
	if e.Done() {
		return
	}
	for _, o := range e.Parts() {
		o.Wait()
	}
}

// Parts implements [core.Joint].
func (e *event) Parts() []core.Event {
	(*outcome)(e).arrivedWithin(-1)
	return e.events
}

// Known implements [core.Joint].
func (e *event) Known(d time.Duration) bool { return (*outcome)(e).arrivedWithin(max(d, 0)) }

// waitsFor returns events that must be done before e can be: see the function of that name.
func (e *event) waitsFor() []core.Event {
	if !e.settled.Load() {
		return nil
	}
	return e.events
}

// WaitFor implements [core.Event].
func (e *event) WaitFor(d time.Duration) bool {
	if e.Done() {
		return true
	}
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

// Stream implements [core.Event]. The end of a work is not on a single stream.
func (e *event) Stream() core.Stream { return nil }

// A Works is a list of works.
type Works []*Work

// Wait waits for all works and returns their errors.
func (w Works) Wait() error {
	var errs []error
	for _, x := range w {
		errs = append(errs, x.Wait())
	}
	return errors.Join(errs...)
}
