package collective

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plait-ml/plait/core"
)

// Streams, relays and collectives wait for each other's events. These waits form a graph. It can have a cycle if ranks use the results of
// collectives in different orders: rank 0 makes the input of b from the result of a, and rank 1 the input of a from the result of b. All
// ranks have then called both, but neither can run. The world looks for cycles while collectives are under way, and cancels collectives
// of a cycle. Values that need them fail, and so does [Work.Wait] on every rank, also where the rank's own tensors are valid, such as those of
// a sender. A rank that neither waits for the work nor reads such a value is not told. Streams and groups stay usable.

// waitsFor returns events that must be done before e can be.
func waitsFor(e core.Event) []core.Event {
	if x, ok := e.(interface{ waitsFor() []core.Event }); ok {
		return x.waitsFor()
	}
	if s, ok := e.Stream().(interface{ BlockedOn(n uint64) core.Event }); ok {
		if on := s.BlockedOn(number(e)); on != nil {
			return []core.Event{on}
		}
	}
	return nil
}

// number returns the number of an event on its stream.
func number(e core.Event) uint64 {
	if n, ok := e.(interface{ Number() uint64 }); ok {
		return n.Number()
	}
	return 0
}

// node returns the node of the graph that e belongs to: its stream if e is behind the call for which that waits, otherwise e itself.
func node(e core.Event) any {
	if s := e.Stream(); s != nil && waitsFor(e) != nil {
		return s
	}
	return e
}

// unmet returns the calls at which other ranks have not arrived and without which e cannot be done.
func unmet(e core.Event) []*outcome {
	var list []*outcome
	seen := map[any]bool{}
	var visit func(e core.Event)
	visit = func(e core.Event) {
		if e.Done() || seen[node(e)] {
			return
		}
		seen[node(e)] = true
		if x, ok := e.(*event); ok && !x.settled.Load() {
			list = append(list, (*outcome)(x))
		}
		for _, o := range waitsFor(e) {
			visit(o)
		}
	}
	visit(e)
	return list
}

// findCycle returns events of which each waits for the next, and the last for the first, or nil. It looks at all that the given events
// wait for, except behind the nodes in skip.
func findCycle(from []core.Event, skip map[any]bool) []core.Event {
	seen := map[any]bool{}
	var path []core.Event
	var visit func(e core.Event) []core.Event
	visit = func(e core.Event) []core.Event {
		n := node(e)
		if e.Done() || skip[n] {
			return nil
		}
		if i := slices.IndexFunc(path, func(o core.Event) bool { return node(o) == n }); i >= 0 {
			return append(slices.Clone(path[i+1:]), e)
		}
		if seen[n] {
			return nil
		}
		seen[n] = true
		path = append(path, e)
		for _, o := range waitsFor(e) {
			if cycle := visit(o); cycle != nil {
				return cycle
			}
		}
		path = path[:len(path)-1]
		return nil
	}
	for _, e := range from {
		if cycle := visit(e); cycle != nil {
			return cycle
		}
	}
	return nil
}

// holds reports whether all waits of a cycle still stand. They were found one after the other; if none has ended since, they all stood at
// the same time, and none can ever end. A wait has ended once its event is done, even before the waiting worker has woken up.
func holds(cycle []core.Event) bool {
	for i, e := range cycle {
		next := cycle[(i+1)%len(cycle)]
		if next.Done() || !slices.Contains(waitsFor(e), next) {
			return false
		}
	}
	return true
}

// watch makes the world look for deadlocks until no collective is under way.
func (w *world) watch() {
	if w.watched.Load() || !w.watched.CompareAndSwap(false, true) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look = time.AfterFunc(deadlockDelay, w.cancelCycles)
}

// cancelCycles cancels the collectives of all cycles.
func (w *world) cancelCycles() {
	w.watched.Store(false) // before it looks: a later launch starts the next look
	ends := w.running()
	if len(ends) == 0 {
		return
	}
	w.watch()
	cancelled := map[any]bool{}
	for cycle := findCycle(ends, cancelled); cycle != nil && holds(cycle); cycle = findCycle(ends, cancelled) {
		w.cancel(cycle, cancelled)
	}
}

// running returns an event per communication stream that still has calls to run, and per transfer to other processes.
func (w *world) running() (ends []core.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.streams {
		ends = append(ends, s.running()...)
	}
	for j := range w.jobs {
		ends = append(ends, j.end)
	}
	return ends
}

// cancel cancels the calls of a cycle on communication streams, or those of relays if there are none, and adds their nodes to cancelled.
// The computation of the ranks goes on: what needs a result of these calls fails.
func (w *world) cancel(cycle []core.Event, cancelled map[any]bool) {
	found := false
	err := core.Errorf(core.DistributedError, "", "deadlock, collectives wait for each other's results: %s", strings.Join(w.describe(cycle), "; "))
	for _, e := range cycle {
		if s := e.Stream(); s != nil && w.communicates(s) {
			e.(interface{ Cancel(err error) }).Cancel(err)
			found, cancelled[node(e)] = true, true
		}
	}
	for _, e := range cycle {
		if d, ok := e.(*deferredEvent); ok && d.job != nil && !found {
			d.job.cancel(err)
			cancelled[node(e)] = true
		}
	}
}

// communicates reports whether s is a communication stream of the world.
func (w *world) communicates(s core.Stream) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for group := range w.streams {
		if group.has(s) {
			return true
		}
	}
	return false
}

// describe lists the calls of a cycle.
func (w *world) describe(cycle []core.Event) (calls []string) {
	groups := w.all()
	for i, e := range cycle {
		named := cycle[(i+len(cycle)-1)%len(cycle)].Stream() == nil // by the end of a call, which waits for e
		if s := e.Stream(); s != nil && (named || !w.communicates(s)) {
			continue
		}
		for _, m := range groups {
			for i := range m.records {
				for _, call := range m.records[i].find(e) {
					if s := call.describe(m.ranks[i]); !slices.Contains(calls, s) {
						calls = append(calls, s)
					}
				}
			}
		}
	}
	return calls
}

// endsAt reports whether e is the end of the work, or one of the events that it waits for, or a later one on the same stream.
func (w *outcome) endsAt(e core.Event) bool {
	if e == core.Event((*event)(w)) {
		return true
	}
	return w.settled.Load() && slices.ContainsFunc(w.events, func(end core.Event) bool { return endsAt(end, e) })
}

func endsAt(end, e core.Event) bool {
	if d, ok := end.(*deferredEvent); ok && d.known.Load() {
		return end == e || slices.ContainsFunc(d.events, func(part core.Event) bool { return endsAt(part, e) })
	}
	return end == e || end.Stream() != nil && end.Stream() == e.Stream() && !end.Done() && number(end) <= number(e)
}

// describe names the call of a rank for messages.
func (w *Work) describe(rank int) string {
	purpose := ""
	if w.purpose != "" {
		purpose = " for " + w.purpose
	}
	return fmt.Sprintf("rank %d in %v%s of the group %q", rank, w, purpose, w.group)
}
