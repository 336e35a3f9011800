package fsdp

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
)

// preBackward starts the unit's backward. It runs when the gradient of an output is known. It unshards the unit and prefetches the next one.
func (u *Unit) preBackward(w *use) error {
	run := autograd.CurrentRun()
	if run == nil || u.closed {
		return nil
	}
	if !slices.Contains(u.uses, w) {
		u.uses = append(u.uses, w)
	}
	if u.back {
		return nil
	}
	if err := u.enter(run); err != nil {
		return err
	}
	if err := u.gather(); err != nil {
		return err
	}
	if err := u.useFull(); err != nil {
		return err
	}
	t := u.tree
	if next := t.nextInBackward(u); next != nil && t.root().options.BackwardPrefetch == PrefetchBefore {
		return t.prefetch(next)
	} else if next != nil {
		t.deferred = next
	}
	return nil
}

// enter registers that backward pass run goes through the unit, and counts the gradients that the pass will produce.
func (u *Unit) enter(run *autograd.Run) error {
	if err := u.computes(); err != nil {
		return err
	}
	if err := u.tree.enter(run); err != nil {
		return err
	}
	u.back, u.run, u.reduced, u.expecting = true, run, false, 0
	for _, p := range u.params {
		p.waits = run.Awaits(p.full())
		if p.waits {
			u.expecting++
		}
	}
	return nil
}

// arrived runs when the gradient of a parameter is final. After the unit's last gradient it starts the reduce-scatter.
func (u *Unit) arrived(p *parameter) error {
	run := autograd.CurrentRun()
	if run == nil {
		return nil
	}
	g, err := u.use()
	if err != nil {
		return err
	}
	defer g.Leave()
	if !u.back {
		// The gradient did not come through the unit's outputs, so no hook has started the unit's backward.
		if err := u.enter(run); err != nil {
			return err
		}
	}
	u.touched = true
	if !p.waits {
		return nil
	}
	p.waits = false
	if u.expecting--; u.expecting > 0 {
		return nil
	}
	if u.sync {
		if err := u.reduce(); err != nil {
			return err
		}
	}
	if run.SecondPart() && len(u.uses) == 0 && !u.open {
		return u.leave()
	}
	return u.release()
}

// release reshards the unit if its backward is done. It does not wait for gradients in the first part of a two-part pass, since the second
// part computes them.
func (u *Unit) release() error {
	if !u.back || u.expecting > 0 && !u.run.FirstPart() || len(u.uses) == 0 {
		return nil
	}
	trained := true
	for _, p := range u.params {
		trained = trained && p.full().RequiresGrad()
	}
	for _, w := range u.uses {
		// If no input has a hook, backward of the unit has ended when all its parameters have gradients.
		if w.inputs > 0 || !w.hooked && (!trained || !u.reduced && u.sync) {
			return nil
		}
	}
	return u.leave()
}

// leave ends the unit's backward and reshards the unit, unless [Unit.SetReshardAfterBackward] has turned that off.
func (u *Unit) leave() error {
	u.back, u.run, u.uses = false, nil, nil
	if u.using > 0 || u.manual || u.replicated() {
		return nil
	}
	u.useShards()
	if u.keep {
		u.holds = true
		return nil
	}
	u.freeFull()
	return u.tree.prefetchDeferred()
}

// backwardEnded runs after the last node of a backward pass.
func (t *Tree) backwardEnded(run *autograd.Run) error {
	t.runs, t.resting = without(t.runs, run), without(t.resting, run)
	// Gradients that did not come in the whole, or came in passes without synchronisation, in an order that all ranks know.
	for _, u := range t.units {
		if u.sync && !u.reduced && u.pending() && (u.run == run || u.run == nil && len(t.runs)+len(t.resting) == 0) {
			if err := u.reduce(); err != nil {
				return err
			}
		}
	}
	return t.partEnded(run)
}

// partEnded is told that a backward pass, or a part of it, has run its last node.
func (t *Tree) partEnded(run *autograd.Run) error {
	t.deferred, t.fetched = t.deferred[:0], t.fetched[:0]
	for _, u := range t.units {
		if u.run == run {
			if err := u.leave(); err != nil {
				return err
			}
		}
	}
	if len(t.runs) > 0 {
		return nil
	}
	for _, u := range t.units {
		if u.filled && u.idle() && !(u.holds && u.keep) {
			u.freeFull()
		}
	}
	t.releaseHeld()
	return t.settleAbsent()
}

// backwardClosed runs when a backward pass is over. If an error has ended the pass it fails the step, so that the module's tensors are the
// shards again for the code that follows, such as an optimiser's ZeroGrad.
func (t *Tree) backwardClosed(run *autograd.Run) {
	defer t.guard.End()
	rests, err := slices.Contains(t.resting, run), run.Err()
	if rests || slices.Contains(t.runs, run) {
		t.abandon()
	}
	open := slices.Contains(t.open, run)
	t.open = without(t.open, run)
	switch {
	case !open || t.failure != nil:
	case err != nil:
		t.fail(err)
	case !rests: // between its parts all ranks may give it up
		t.fail(core.Errorf(core.StateError, "backward", "the backward pass was given up"))
	}
}

func without(list []*autograd.Run, run *autograd.Run) []*autograd.Run {
	return slices.DeleteFunc(list, func(r *autograd.Run) bool { return r == run })
}

// pending reports whether some of the unit's parameters have a gradient that was not reduced.
func (u *Unit) pending() bool {
	if u.replicated() {
		return u.touched
	}
	return slices.ContainsFunc(u.params, func(p *parameter) bool { return p.full().Grad() != nil })
}
