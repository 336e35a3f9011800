package fsdp

import (
	"github.com/plait-ml/plait/core"
)

// beginForward starts a forward pass of unit u. It does something only for the root, whose forward pass is that of the model.
func (t *Tree) beginForward(u *Unit) error {
	if err := t.goOn(u); err != nil {
		return err
	}
	defer func() { t.stepErr = nil }()
	grad := core.CurrentMode().GradEnabled()
	if u != t.root() {
		return nil
	}
	if err := t.revoked(); err != nil && len(t.postForwardOrder) > 0 && t.completedRun == nil {
		t.failStep(err) // the results of the last forward pass have reported it
	}
	if err := t.meetLate(); err != nil {
		return err
	}
	if err := t.checkWorks(); err != nil {
		return err
	}
	t.preForwardOrder, t.newPreForwardOrder, t.preForwardIndex = t.newPreForwardOrder, nil, 0
	for _, u := range t.units {
		u.recordShards()
	}
	if grad {
		t.completedRun, t.postForwardOrder = nil, nil
		clear(t.inputGradHooks)
	}
	return nil
}

// InStep runs fn, a step of several passes, such as those of micro-batches. A pass does not begin it anew if it has failed, on this rank or on
// another; otherwise every forward pass does. If fn returns an error, the step fails on all ranks.
func (t *Tree) InStep(fn func() error) error {
	t.BeginStep()
	err := fn()
	t.EndStep(err)
	return err
}

// BeginStep begins what [Tree.InStep] runs.
func (t *Tree) BeginStep() { t.inStep, t.stepPasses, t.stepErr = true, 0, nil }

// EndStep ends what [Tree.BeginStep] has begun, with its error if it has failed.
func (t *Tree) EndStep(err error) {
	t.inStep = false
	if err != nil {
		_ = t.root().FailStep(err)
	}
}

// goOn returns the error with which a step of several passes has failed before this one.
func (t *Tree) goOn(u *Unit) error {
	if !t.inStep {
		return nil
	}
	if t.stepErr != nil {
		return t.stepErr
	}
	if u == t.root() {
		t.stepPasses++
	}
	if t.stepPasses > 1 {
		return t.revoked()
	}
	return nil
}

// endForward ends a forward pass of the model. It reshards units that were prefetched but not used.
func (t *Tree) endForward() {
	t.deferredPrefetches = t.deferredPrefetches[:0]
	for _, u := range t.units {
		if u.gathered && u.idle() && !u.reshardSkipped {
			u.freeFull()
		}
	}
	t.postForwardIndex = len(t.postForwardOrder)
}

// recomputing reports whether a forward pass runs inside a backward pass, because activation checkpointing recomputes it.
func (t *Tree) recomputing() bool { return len(t.backwardRuns) > 0 }

// abandonBackward drops a backward pass that has failed. It reshards all units and drops gradients that were not reduced.
// Gradients accumulated without synchronisation stay.
func (t *Tree) abandonBackward() {
	twoPart := len(t.pausedRuns) > 0
	t.backwardRuns, t.pausedRuns, t.deferredPrefetches, t.onDemand = nil, nil, nil, nil
	for _, u := range t.units {
		for _, p := range u.params {
			p.held.Release()
			p.held = nil
		}
		if (u.inBackward || twoPart) && u.reduceGradients {
			for _, p := range u.params {
				if !u.replicated() {
					p.full().SetGrad(nil)
				} else if p.reducedGradient != nil {
					p.full().SetGrad(p.reducedGradient)
					p.reducedGradient, p.unreduced = nil, false
				}
			}
		}
		u.inBackward, u.backwardRun, u.forwards, u.pendingGradients = false, nil, nil, 0
		if u.activeForwards == 0 && !u.manualUnshard {
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
	t.heldGradients = held
	if t.root().options.BackwardPrefetch == PrefetchNever {
		t.releaseHeld()
	}
}

// releaseHeld releases the full gradients that the tree holds.
func (t *Tree) releaseHeld() {
	for _, g := range t.heldGradients {
		g.Release()
	}
	t.heldGradients = nil
}
