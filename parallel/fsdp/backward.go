package fsdp

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
)

// preBackward starts the unit's backward: it unshards the unit and prefetches the next one. It runs when the gradient of an
// output is known.
func (u *Unit) preBackward(fwd *unitForward) error {
	run := autograd.CurrentRun()
	if run == nil || u.closed {
		return nil
	}
	if !slices.Contains(u.forwards, fwd) {
		u.forwards = append(u.forwards, fwd)
	}
	if u.inBackward {
		return nil
	}
	if err := u.enterBackward(run); err != nil {
		return err
	}
	if err := u.allGather(); err != nil {
		return err
	}
	if err := u.useFull(); err != nil {
		return err
	}
	t := u.tree
	if next := t.nextInBackward(u); next != nil && t.root().options.BackwardPrefetch == PrefetchBefore {
		return t.prefetch(next)
	} else if next != nil {
		t.deferredPrefetches = next
	}
	return nil
}

// enterBackward registers that backward pass run goes through the unit, and counts the gradients that the pass will produce.
func (u *Unit) enterBackward(run *autograd.Run) error {
	if err := u.checkNoCopiesShown(); err != nil {
		return err
	}
	if err := u.writeBack(); err != nil {
		return err
	}
	if err := u.tree.enterBackward(run); err != nil {
		return err
	}
	u.inBackward, u.backwardRun, u.reduceStarted, u.pendingGradients, u.inPart = true, run, false, 0, false
	for _, p := range u.params {
		p.gradientPending = run.Awaits(p.full())
		if p.gradientPending {
			u.pendingGradients++
		} else if p.full().RequiresGrad() {
			u.inPart = true
		}
	}
	return nil
}

// gradientReady is the hook after accumulation of each full parameter's gradient. After the unit's last gradient it starts the
// reduce-scatter.
func (u *Unit) gradientReady(p *parameter) error {
	run := autograd.CurrentRun()
	if run == nil {
		return nil
	}
	g, err := u.enterGuard()
	if err != nil {
		return err
	}
	defer g.Leave()
	if !u.inBackward {
		// The gradient did not come through the unit's outputs, so no hook has started the unit's backward.
		if err := u.enterBackward(run); err != nil {
			return err
		}
	}
	u.unreduced = true
	if !p.gradientPending {
		return nil
	}
	p.gradientPending = false
	if u.pendingGradients--; u.pendingGradients > 0 {
		return nil
	}
	if u.reduceGradients {
		if err := u.reduce(); err != nil {
			return err
		}
	}
	if run.SecondPart() && len(u.forwards) == 0 && !u.usesFull {
		return u.postBackward()
	}
	return u.postBackwardIfDone()
}

// postBackwardIfDone calls postBackward if the unit's backward is done. In the first part of a two-part pass, it does not wait
// for gradients of parameters, since the second part computes them.
func (u *Unit) postBackwardIfDone() error {
	if !u.inBackward || u.pendingGradients > 0 && !u.backwardRun.FirstPart() || len(u.forwards) == 0 {
		return nil
	}
	trained := true
	for _, p := range u.params {
		trained = trained && p.full().RequiresGrad()
	}
	for _, fwd := range u.forwards {
		// If no input has a hook, backward of the unit has ended when all its parameters have gradients. Those that this pass does not
		// reach may be used by a reentrant checkpoint.
		if fwd.pendingInputs > 0 || !fwd.hasInputHooks && (!trained || !u.reduceStarted && u.reduceGradients || u.inPart && u.backwardRun.AwaitsForeign()) {
			return nil
		}
	}
	return u.postBackward()
}

// postBackward ends the unit's backward and reshards the unit, unless [Unit.SetReshardAfterBackward] has turned that off.
func (u *Unit) postBackward() error {
	u.inBackward, u.backwardRun, u.forwards = false, nil, nil
	if u.activeForwards > 0 || u.manualUnshard || u.replicated() {
		return nil
	}
	u.useShards()
	if !u.reshardAfterBackward {
		u.reshardSkipped = true
		return nil
	}
	u.freeFull()
	return u.tree.prefetchDeferred()
}

// backwardEnded runs after the last node of a backward pass. It reduces the gradients of units that have not started their
// reduce-scatter.
func (t *Tree) backwardEnded(run *autograd.Run) error {
	t.backwardRuns, t.pausedRuns = without(t.backwardRuns, run), without(t.pausedRuns, run)
	// Some parameters of a unit got no gradient, or its gradients came in earlier passes without synchronisation, or from a reentrant
	// checkpoint after the others were reduced. The order of units is the same on all ranks.
	for _, u := range t.units {
		if u.reduceGradients && u.hasUnreducedGradients() && (u.backwardRun == run || u.backwardRun == nil && len(t.backwardRuns)+len(t.pausedRuns) == 0) {
			if err := u.reduce(); err != nil {
				return err
			}
		}
	}
	return t.partEnded(run)
}

// partEnded runs after the last node of a backward pass or of its first part. It reshards the units.
func (t *Tree) partEnded(run *autograd.Run) error {
	t.deferredPrefetches, t.onDemand = t.deferredPrefetches[:0], t.onDemand[:0]
	for _, u := range t.units {
		if u.backwardRun == run {
			if err := u.postBackward(); err != nil {
				return err
			}
		}
	}
	if len(t.backwardRuns) > 0 {
		return nil
	}
	for _, u := range t.units {
		if u.gathered && u.idle() && (u.reshardAfterBackward || !u.reshardSkipped) {
			u.freeFull()
		}
	}
	t.releaseHeld()
	return t.dropMissingGradients()
}

// backwardClosed runs when a backward pass is over. If an error has ended the pass it fails the step, so that the module's tensors are the
// shards again for the code that follows, such as an optimiser's ZeroGrad.
func (t *Tree) backwardClosed(run *autograd.Run) {
	defer t.guard.End()
	paused, err := slices.Contains(t.pausedRuns, run), run.Err()
	if paused || slices.Contains(t.backwardRuns, run) {
		t.abandonBackward()
	}
	isOpen := slices.Contains(t.openRuns, run)
	t.openRuns = without(t.openRuns, run)
	switch {
	case !isOpen || t.stepErr != nil:
	case err != nil:
		t.fail(err)
	case !paused: // a pass may be given up between its parts, if all ranks do so
		t.fail(core.Errorf(core.StateError, "backward", "the backward pass was given up"))
	}
}

func without(list []*autograd.Run, run *autograd.Run) []*autograd.Run {
	return slices.DeleteFunc(list, func(r *autograd.Run) bool { return r == run })
}

// hasUnreducedGradients reports whether some of the unit's parameters have a gradient that was not reduced.
func (u *Unit) hasUnreducedGradients() bool {
	if u.replicated() {
		return u.unreduced
	}
	return slices.ContainsFunc(u.params, func(p *parameter) bool { return p.full().Grad() != nil })
}
