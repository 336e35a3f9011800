package fsdp

import (
	"slices"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
)

// A pass that was made with [autograd.Options.First], such as one of a pipeline without bubbles, has two parts, between which other
// passes run, forward and backward. The first is like any pass, but that gradients of parameters are not waited for. Derivatives
// for weights alone seldom read other weights, so that nothing is gathered for the second part as a whole: what a derivative comes to
// and does not find is gathered then.

// enter makes run, or its second part, one that goes through the model.
func (t *Tree) enter(run *autograd.Run) error {
	if t.failure != nil {
		return t.failure
	}
	if slices.Contains(t.runs, run) {
		return nil
	}
	t.done = len(t.ended)
	t.runs = append(t.runs, run)
	if slices.Contains(t.resting, run) {
		t.resting = without(t.resting, run)
		return nil
	}
	if run.FirstPart() {
		if err := autograd.QueuePartCallback(func() error { return t.rest(run) }); err != nil {
			return err
		}
		run.RefillWith(t.fetch)
	}
	if run.CreatesGraph() {
		for _, u := range t.units {
			u.refillAlways(t.fetch)
		}
	}
	if err := autograd.OnClose(func() { t.guard.Later(func() { t.backwardClosed(run) }) }); err != nil {
		return err
	}
	t.guard.Begin()
	t.open = append(t.open, run)
	if err := autograd.QueueCallback(func() error { return t.backwardEnded(run) }); err != nil {
		return err
	}
	return autograd.QueueWait(func(limit time.Duration) (bool, error) { return t.meet(run, limit) })
}

// rest is told that the first part of a backward pass has ended.
func (t *Tree) rest(run *autograd.Run) error {
	t.runs = without(t.runs, run)
	t.resting = append(t.resting, run)
	return t.partEnded(run)
}

// fetched is a unit that was gathered for a derivative of a second part.
type fetched struct {
	unit *Unit
	node uint64
}

// refillAlways makes fn gather the unit where recorded derivatives come to it, in later passes too; nil ends that.
func (u *Unit) refillAlways(fn func(s *core.Storage, node uint64) (bool, error)) {
	for _, p := range u.params {
		if f := p.full(); f != nil && !u.replicated() {
			autograd.RefillAlways(f.Storage(), fn)
		}
	}
}

// fetch gathers the unit of an emptied storage that the derivative of a node comes to. Units that were gathered for other derivatives
// make room for it, the oldest first.
func (t *Tree) fetch(s *core.Storage, node uint64) (bool, error) {
	if err := t.guard.Enter("fsdp"); err != nil {
		return false, err
	}
	defer t.guard.Leave()
	i := slices.IndexFunc(t.units, func(u *Unit) bool {
		return slices.ContainsFunc(u.params, func(p *parameter) bool { f := p.full(); return f != nil && f.Storage() == s })
	})
	if i < 0 {
		return false, nil
	}
	for len(t.fetched) > 0 && t.fetched[0].node != node && t.slotsInUse() >= t.slots() {
		if u := t.fetched[0].unit; !u.open && !u.manual {
			u.freeFull()
		}
		t.fetched = t.fetched[1:]
	}
	if run := autograd.CurrentRun(); run != nil {
		if err := t.enter(run); err != nil {
			return false, err
		}
	}
	t.fetched = append(t.fetched, fetched{t.units[i], node})
	return true, t.units[i].gather()
}
