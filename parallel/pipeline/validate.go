package pipeline

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
)

// Validate returns an error unless the schedule does everything once and in an order that ends: each stage is on one device, with
// one forward and one whole backward pass of each micro-batch, and no device waits for itself, not even if a send blocks until it
// is received. An error of the latter kind names the actions that wait for one another.
func (s *Schedule) Validate() error {
	if err := s.complete(); err != nil {
		return err
	}
	if s.sends() {
		return newWalk(s, true).run(nil)
	}
	_, err := s.WithTransfers()
	return err
}

// sends reports whether the schedule says its transfers itself.
func (s *Schedule) sends() bool {
	found := false
	s.each(func(_ int, a Action) { found = found || !a.Kind.Computes() })
	return found
}

func (s *Schedule) errorf(format string, args ...any) error {
	return core.Errorf(core.ValueError, "schedule", "%s: %s", s.Name, fmt.Sprintf(format, args...))
}

// complete returns an error unless every action is there once.
func (s *Schedule) complete() error {
	if s.Stages() == 0 {
		return s.errorf("there are no actions")
	}
	t := s.table()
	home := make([]int, t.stages)
	for i := range home {
		home[i] = -1
	}
	count := make([]int, t.len())
	var err error
	s.each(func(d int, a Action) {
		switch {
		case err != nil:
		case a.Stage < 0 || a.Micro < 0:
			err = s.errorf("got %v, want stages and micro-batches from 0", a)
		case home[a.Stage] >= 0 && home[a.Stage] != d:
			err = s.errorf("stage %d is on device %d and, with %v, on device %d", a.Stage, home[a.Stage], a, d)
		default:
			home[a.Stage] = d
			if count[t.at(a)]++; count[t.at(a)] > 1 {
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
	sends := s.sends()
	for stage := range t.stages {
		if home[stage] < 0 {
			return s.errorf("stage %d is on no device", stage)
		}
		for i := range t.micro {
			has := func(k Kind) bool { return count[t.at(Action{k, stage, i})] > 0 }
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
			// A transfer is there exactly where the stages are on two devices.
			for _, k := range []Kind{SendForward, RecvForward, SendBackward, RecvBackward} {
				a := Action{k, stage, i}
				other := a.peer().Stage
				want := other >= 0 && other < t.stages && home[other] != home[stage]
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

// table numbers the actions of a schedule.
type table struct{ stages, micro int }

func (s *Schedule) table() table { return table{s.Stages(), s.Micro()} }

func (t table) len() int { return len(kindNames) * t.stages * t.micro }

func (t table) at(a Action) int { return (int(a.Kind)*t.stages+a.Stage)*t.micro + a.Micro }

// A walk carries a schedule out, without doing anything.
type walk struct {
	s        *Schedule
	t        table
	device   []int // by stage
	explicit bool  // transfers are actions
	present  []bool
	done     []bool
	next     []int // by device
}

func newWalk(s *Schedule, explicit bool) *walk {
	t := s.table()
	w := &walk{s: s, t: t, device: s.Devices(), explicit: explicit, present: make([]bool, t.len()), done: make([]bool, t.len()), next: make([]int, len(s.Rows))}
	s.each(func(_ int, a Action) { w.present[t.at(a)] = true })
	return w
}

// needs calls fn with the actions that must have been done before a.
func (w *walk) needs(a Action, fn func(Action)) {
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
		case a.Stage == w.t.stages-1:
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

// backward returns the action that makes the gradient of a stage's input.
func (w *walk) backward(stage, micro int) Action {
	if a := (Action{Backward, stage, micro}); w.present[w.t.at(a)] {
		return a
	}
	return Action{InputGrad, stage, micro}
}

// head returns the action that device d is at.
func (w *walk) head(d int) (Action, bool) {
	if w.next[d] == len(w.s.Rows[d]) {
		return Action{}, false
	}
	return w.s.Rows[d][w.next[d]], true
}

// waits returns the action that a, at the head of its device, waits for.
func (w *walk) waits(a Action) (on Action, waiting bool) {
	w.needs(a, func(b Action) {
		if !waiting && !w.done[w.t.at(b)] {
			on, waiting = b, true
		}
	})
	if waiting || a.Kind.Computes() {
		return on, waiting
	}
	// Both sides of a transfer come together: the other one must be at the head of its device, and waiting for nothing else.
	other := a.peer()
	h, ok := w.head(w.device[other.Stage])
	if !ok || h != other {
		return other, true
	}
	ready := true
	w.needs(other, func(b Action) { ready = ready && w.done[w.t.at(b)] })
	return other, !ready
}

// run does all actions, of each of which it tells did, or returns an error that names the cycle in which they wait.
func (w *walk) run(did func(device int, a Action)) error {
	step := func(d int, a Action) {
		w.done[w.t.at(a)] = true
		w.next[d]++
		if did != nil {
			did(d, a)
		}
	}
	for moved := true; moved; {
		moved = false
		for d := range w.s.Rows {
			for {
				a, ok := w.head(d)
				if !ok {
					break
				}
				if _, waiting := w.waits(a); waiting {
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
		if _, ok := w.head(d); ok {
			return w.cycle(d)
		}
	}
	return nil
}

// cycle returns the error that device d is part of, or waits for, devices that wait for one another.
func (w *walk) cycle(d int) error {
	seen := make([]int, len(w.s.Rows))
	var path []int
	for seen[d] == 0 {
		path = append(path, d)
		seen[d] = len(path)
		a, _ := w.head(d)
		on, _ := w.waits(a)
		d = w.device[on.Stage]
	}
	var b strings.Builder
	for i, d := range path[seen[d]-1:] {
		a, _ := w.head(d)
		on, _ := w.waits(a)
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
