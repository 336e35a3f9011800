package pipeline

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
)

// Validate returns an error unless the schedule is complete and cannot deadlock. Each stage is on one device, and has one forward
// pass and one backward pass for each micro-batch. A schedule must not deadlock even if sends block until they are received; the
// error names the actions that wait for each other.
func (s *Schedule) Validate() error {
	if err := s.checkActions(); err != nil {
		return err
	}
	if s.hasTransfers() {
		return newDryRun(s, true).run(nil)
	}
	_, err := s.WithTransfers()
	return err
}

// hasTransfers reports whether the schedule contains sends or receives.
func (s *Schedule) hasTransfers() bool {
	found := false
	s.each(func(_ int, a Action) { found = found || !a.Kind.Computes() })
	return found
}

func (s *Schedule) errorf(format string, args ...any) error {
	return core.Errorf(core.ValueError, "schedule", "%s: %s", s.Name, fmt.Sprintf(format, args...))
}

// checkActions returns an error unless every action is present exactly once.
func (s *Schedule) checkActions() error {
	if s.Stages() == 0 {
		return s.errorf("there are no actions")
	}
	t := s.table()
	device := make([]int, t.stages)
	for i := range device {
		device[i] = -1
	}
	count := make([]int, t.size())
	var err error
	s.each(func(d int, a Action) {
		switch {
		case err != nil:
		case a.Stage < 0 || a.Micro < 0:
			err = s.errorf("got %v, want stages and micro-batches from 0", a)
		case device[a.Stage] >= 0 && device[a.Stage] != d:
			err = s.errorf("stage %d is on device %d and, with %v, on device %d", a.Stage, device[a.Stage], a, d)
		default:
			device[a.Stage] = d
			if count[t.index(a)]++; count[t.index(a)] > 1 {
				err = s.errorf("%v stands there twice", a)
			}
		}
	})
	if err != nil {
		return err
	}
	for d, row := range s.Rows {
		if len(row) == 0 {
			return s.errorf("device %d has no stage", d)
		}
	}
	sends := s.hasTransfers()
	for stage := range t.stages {
		if device[stage] < 0 {
			return s.errorf("stage %d is on no device", stage)
		}
		for i := range t.micros {
			has := func(k Kind) bool { return count[t.index(Action{k, stage, i})] > 0 }
			f, b, ig, w := has(Forward), has(Backward), has(InputGrad), has(WeightGrad)
			switch {
			case !f:
				return s.errorf("%v is missing", Action{Forward, stage, i})
			case b && (ig || w):
				return s.errorf("%v and its parts %v or %v are both there", Action{Backward, stage, i}, Action{InputGrad, stage, i}, Action{WeightGrad, stage, i})
			case !b && !ig && !w:
				return s.errorf("the backward pass %v is missing", Action{Backward, stage, i})
			case !b && !ig:
				return s.errorf("%v is missing", Action{InputGrad, stage, i})
			case !b && !w:
				return s.errorf("%v is missing", Action{WeightGrad, stage, i})
			}
			if !sends {
				continue
			}
			// Transfers are needed exactly between stages on different devices.
			for _, k := range []Kind{SendForward, RecvForward, SendBackward, RecvBackward} {
				a := Action{k, stage, i}
				other := a.peer().Stage
				want := other >= 0 && other < t.stages && device[other] != device[stage]
				if want != has(k) {
					if want {
						return s.errorf("%v is missing", a)
					}
					return s.errorf("%v sends nothing to another device", a)
				}
			}
		}
	}
	return nil
}

// An actionTable numbers the actions of a schedule, as indices of slices.
type actionTable struct{ stages, micros int }

func (s *Schedule) table() actionTable { return actionTable{s.Stages(), s.Micro()} }

func (t actionTable) size() int { return len(kindNames) * t.stages * t.micros }

func (t actionTable) index(a Action) int { return (int(a.Kind)*t.stages+a.Stage)*t.micros + a.Micro }

// A dryRun goes through a schedule in an order in which its actions can run, and finds deadlocks. It computes nothing.
type dryRun struct {
	s        *Schedule
	table    actionTable
	device   []int // by stage
	explicit bool  // the schedule contains sends and receives
	present  []bool
	done     []bool
	next     []int // index of the next action, by device
}

func newDryRun(s *Schedule, explicit bool) *dryRun {
	t := s.table()
	w := &dryRun{s: s, table: t, device: s.Devices(), explicit: explicit, present: make([]bool, t.size()), done: make([]bool, t.size()), next: make([]int, len(s.Rows))}
	s.each(func(_ int, a Action) { w.present[t.index(a)] = true })
	return w
}

// dependencies calls fn with each action that must run before a.
func (w *dryRun) dependencies(a Action, fn func(Action)) {
	remote := func(stage int) bool { return w.explicit && w.device[stage] != w.device[a.Stage] }
	switch a.Kind {
	case Forward:
		switch {
		case a.Stage == 0:
		case remote(a.Stage - 1):
			fn(Action{RecvForward, a.Stage, a.Micro})
		default:
			fn(Action{Forward, a.Stage - 1, a.Micro})
		}
	case Backward, InputGrad:
		fn(Action{Forward, a.Stage, a.Micro})
		switch {
		case a.Stage == w.table.stages-1:
		case remote(a.Stage + 1):
			fn(Action{RecvBackward, a.Stage, a.Micro})
		default:
			fn(w.backward(a.Stage+1, a.Micro))
		}
	case WeightGrad:
		fn(Action{InputGrad, a.Stage, a.Micro})
	case SendForward:
		fn(Action{Forward, a.Stage, a.Micro})
	case SendBackward:
		fn(w.backward(a.Stage, a.Micro))
	}
}

// backward returns the action that computes the gradient of a stage's input.
func (w *dryRun) backward(stage, micro int) Action {
	if a := (Action{Backward, stage, micro}); w.present[w.table.index(a)] {
		return a
	}
	return Action{InputGrad, stage, micro}
}

// current returns the next action of device d.
func (w *dryRun) current(d int) (Action, bool) {
	if w.next[d] == len(w.s.Rows[d]) {
		return Action{}, false
	}
	return w.s.Rows[d][w.next[d]], true
}

// blockedOn returns an action that a, the next action of its device, waits for.
func (w *dryRun) blockedOn(a Action) (on Action, waiting bool) {
	w.dependencies(a, func(b Action) {
		if !waiting && !w.done[w.table.index(b)] {
			on, waiting = b, true
		}
	})
	if waiting || a.Kind.Computes() {
		return on, waiting
	}
	// A send and its receive run together: the other one must be the next action of its device, with its dependencies done.
	other := a.peer()
	h, ok := w.current(w.device[other.Stage])
	if !ok || h != other {
		return other, true
	}
	ready := true
	w.dependencies(other, func(b Action) { ready = ready && w.done[w.table.index(b)] })
	return other, !ready
}

// run visits all actions in an order that respects their dependencies, or returns an error that names a deadlock.
func (w *dryRun) run(visit func(device int, a Action)) error {
	step := func(d int, a Action) {
		w.done[w.table.index(a)] = true
		w.next[d]++
		if visit != nil {
			visit(d, a)
		}
	}
	for moved := true; moved; {
		moved = false
		for d := range w.s.Rows {
			for {
				a, ok := w.current(d)
				if !ok {
					break
				}
				if _, waiting := w.blockedOn(a); waiting {
					break
				}
				moved = true
				if !a.Kind.Computes() {
					other := a.peer()
					step(w.device[other.Stage], other)
				}
				step(d, a)
			}
		}
	}
	for d := range w.s.Rows {
		if _, ok := w.current(d); ok {
			return w.deadlock(d)
		}
	}
	return nil
}

// deadlock returns an error that names the cycle of waiting devices that device d is part of or waits for.
func (w *dryRun) deadlock(d int) error {
	seen := make([]int, len(w.s.Rows))
	var path []int
	for seen[d] == 0 {
		path = append(path, d)
		seen[d] = len(path)
		a, _ := w.current(d)
		on, _ := w.blockedOn(a)
		d = w.device[on.Stage]
	}
	var b strings.Builder
	for i, d := range path[seen[d]-1:] {
		a, _ := w.current(d)
		on, _ := w.blockedOn(a)
		if i > 0 {
			b.WriteString("; ")
		}
		where := ""
		if e := w.device[on.Stage]; e == d {
			where = ", which comes later on the same device"
		}
		fmt.Fprintf(&b, "device %d waits at %v for %v%s", d, a, on, where)
	}
	return w.s.errorf("it deadlocks: %s", b.String())
}
