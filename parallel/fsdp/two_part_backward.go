package fsdp

import (
	"slices"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
)

// A backward pass with [autograd.Options.First], such as in a zero-bubble pipeline, has two parts: the first computes the gradients of
// inputs, the second those of parameters. Other passes, forward and backward, may run between them. The first part unshards and reshards
// units like any backward pass. The second part rarely reads parameters, so it unshards no unit in advance. If a node reads a freed full
// parameter, its unit is all-gathered on demand.

// enterBackward registers that backward pass run, or its second part, goes through the model. A new pass gets callbacks for its
// end.
func (t *Tree) enterBackward(run *autograd.Run) error {
	if t.stepErr != nil {
		return t.stepErr
	}
	if slices.Contains(t.backwardRuns, run) {
		return nil
	}
	t.postForwardIndex = len(t.postForwardOrder)
	t.backwardRuns = append(t.backwardRuns, run)
	if slices.Contains(t.pausedRuns, run) {
		t.pausedRuns = without(t.pausedRuns, run)
		return nil
	}
	if run.FirstPart() {
		if err := autograd.QueuePartCallback(func() error { return t.pause(run) }); err != nil {
			return err
		}
		run.RefillWith(t.gatherOnDemand)
	}
	if run.CreatesGraph() {
		for _, u := range t.units {
			u.refillAlways(t.gatherOnDemand)
		}
	}
	if err := autograd.OnClose(func() { t.guard.Later(func() { t.backwardClosed(run) }) }); err != nil {
		return err
	}
	t.guard.Begin()
	t.openRuns = append(t.openRuns, run)
	if err := autograd.QueueCallback(func() error { return t.backwardEnded(run) }); err != nil {
		return err
	}
	return autograd.QueueWait(func(limit time.Duration) (bool, error) { return t.meet(run, limit) })
}

// pause runs after the last node of the first part of a two-part pass.
func (t *Tree) pause(run *autograd.Run) error {
	t.backwardRuns = without(t.backwardRuns, run)
	t.pausedRuns = append(t.pausedRuns, run)
	return t.partEnded(run)
}

// An onDemandGather is a unit that was all-gathered for a node of a second part.
type onDemandGather struct {
	unit *Unit
	node uint64 // number of the node
}

// refillAlways makes fn unshard the unit whenever a node of any backward pass reads its freed full parameters. A nil fn turns
// that off.
func (u *Unit) refillAlways(fn func(s *core.Storage, node uint64) (bool, error)) {
	for _, p := range u.params {
		if f := p.full(); f != nil && u.group != nil {
			autograd.RefillAlways(f.Storage(), fn)
		}
	}
}

// gatherOnDemand all-gathers the unit of a freed storage that a node of a backward pass is about to read. If there is no free
// slot, it first frees the units that were gathered for other nodes, the oldest first.
func (t *Tree) gatherOnDemand(s *core.Storage, node uint64) (bool, error) {
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
	for len(t.onDemand) > 0 && t.onDemand[0].node != node && t.slotsInUse() >= t.slots() {
		if u := t.onDemand[0].unit; !u.usesFull && !u.manualUnshard {
			u.freeFull()
		}
		t.onDemand = t.onDemand[1:]
	}
	if run := autograd.CurrentRun(); run != nil {
		if err := t.enterBackward(run); err != nil {
			return false, err
		}
	}
	t.onDemand = append(t.onDemand, onDemandGather{t.units[i], node})
	return true, t.units[i].allGather()
}
