package fsdp

import (
	"github.com/plait-ml/plait/core"
)

// begin starts a forward pass of unit u. It does something only for the root, whose forward pass is that of the model.
func (t *Tree) begin(u *Unit) error {
	defer func() { t.failure = nil }()
	grad := core.CurrentMode().GradEnabled()
	if u != t.root() {
		return nil
	}
	if err := t.revoked(); err != nil && len(t.ended) > 0 && t.counted == nil {
		t.failStep(err) // the results of the last forward pass have reported it
	}
	if err := t.meetLate(); err != nil {
		return err
	}
	if err := t.check(); err != nil {
		return err
	}
	t.order, t.coming, t.at = t.coming, nil, 0
	for _, u := range t.units {
		u.recordShards()
	}
	if grad {
		t.counted, t.ended = nil, nil
		clear(t.arriving)
	}
	return nil
}

// finish ends a forward pass of the model. It reshards units that were prefetched but not used.
func (t *Tree) finish() {
	t.deferred = t.deferred[:0]
	for _, u := range t.units {
		if u.filled && u.idle() && !u.holds {
			u.freeFull()
		}
	}
	t.done = len(t.ended)
}

// recomputing reports whether a forward pass runs inside a backward pass, because activation checkpointing recomputes it.
func (t *Tree) recomputing() bool { return len(t.runs) > 0 }

// abandon drops a backward pass that has failed. It reshards all units and drops gradients that were not reduced. Gradients accumulated
// without synchronisation stay.
func (t *Tree) abandon() {
	divided := len(t.resting) > 0
	t.runs, t.resting, t.deferred, t.fetched = nil, nil, nil, nil
	for _, u := range t.units {
		if (u.back || divided) && u.sync {
			for _, p := range u.params {
				if !u.replicated() {
					p.full().SetGrad(nil)
				} else if p.before != nil {
					p.tensor.SetGrad(p.before)
					p.before, p.local = nil, false
				}
			}
		}
		u.back, u.run, u.uses, u.expecting = false, nil, nil, 0
		if u.using == 0 && !u.manual {
			u.useShards()
			u.freeFull()
		}
	}
	t.releaseHeld()
}

// holdGradients moves the full gradients, which are being reduced, from the parameters to the tree. It releases those held before: at most
// one unit's gradients are held while they are reduced. Without backward prefetch none are, since reductions overlap with nothing.
func (t *Tree) holdGradients(params []*parameter) {
	var held []*core.Tensor
	for _, p := range params {
		if g := p.full().Grad(); g != nil {
			held = append(held, g.Detach().Keep())
			p.full().SetGrad(nil)
		}
	}
	t.releaseHeld()
	t.held = held
	if t.root().options.BackwardPrefetch == PrefetchNever {
		t.releaseHeld()
	}
}

// releaseHeld releases the full gradients that the tree holds.
func (t *Tree) releaseHeld() {
	for _, g := range t.held {
		g.Release()
	}
	t.held = nil
}
