package fsdp

import "github.com/plait-ml/plait/core"

// A unitForward is one forward pass of a unit. A unit that is used twice has two of them in one pass of the model.
type unitForward struct {
	unit          *Unit
	pendingInputs int  // number of inputs whose gradients are not known yet
	hasInputHooks bool // some input has a hook
}

// PreForward starts a forward pass of the unit. It all-gathers the parameters and makes the module's tensors the full parameters. inputs are
// the inputs that are tensors. [Unit.PostForward] must follow; after an error, without outputs. PreForward does not wait for the device. It
// may wait for other ranks, and reports errors of the previous step.
func (u *Unit) PreForward(inputs []*core.Tensor) (err error) {
	g, err := u.enterGuard()
	if err != nil {
		return err
	}
	defer g.Leave()
	t := u.tree
	if t == nil {
		return core.Errorf(core.StateError, "fsdp", "the unit %q is in no tree", u.Name())
	}
	outermost := t.forwardDepth == 0
	t.forwardDepth++
	t.guard.Begin()
	u.activeForwards++
	defer func() { t.setForwardErr(err) }()
	if outermost && !t.recomputing() {
		if err := t.beginForward(u); err != nil {
			return err
		}
	}
	if err := u.checkNoCopiesShown(); err != nil {
		return err
	}
	if err := u.writeBack(); err != nil {
		return err
	}
	u.manualUnshard = u.summoned
	recompute := u.inBackward // activation checkpointing recomputes the unit during its backward
	if err := u.allGather(); err != nil {
		return err
	}
	if err := u.useFull(); err != nil {
		return err
	}
	if recompute {
		return nil
	}
	fwd := &unitForward{unit: u}
	u.lastForward = fwd
	if core.CurrentMode().GradEnabled() && u != t.root() && u.group != nil && !t.recomputing() {
		for _, x := range inputs {
			fwd.hookInput(x)
		}
	}
	if t.recomputing() {
		return nil
	}
	return t.prefetch(t.nextInForward(u))
}

// hookInput adds a hook on an input. Once the gradients of all inputs are known, the unit's backward is done.
func (fwd *unitForward) hookInput(x *core.Tensor) {
	if x.Err() != nil || !x.RequiresGrad() || x.IsLeaf() {
		return
	}
	fwd.pendingInputs++
	fwd.hasInputHooks = true
	done := false
	gradientReady := func() error {
		if done {
			return nil
		}
		done = true
		fwd.pendingInputs--
		return fwd.unit.postBackwardIfDone()
	}
	t := fwd.unit.tree
	t.inputGradHooks[x.AutogradMeta()] = append(t.inputGradHooks[x.AutogradMeta()], gradientReady)
	x.TensorHooks().Add(core.Hook{Blind: true, Fn: func(*core.Tensor) *core.Tensor {
		g, err := fwd.unit.enterGuard()
		if err == nil {
			defer g.Leave()
			err = gradientReady()
		}
		if err != nil {
			return core.ErrorTensor(err)
		}
		return nil
	}})
}

// PostForward ends a forward pass of the unit. It reshards the parameters, and adds hooks on the outputs that unshard them in backward.
// outputs are the outputs that are tensors.
func (u *Unit) PostForward(outputs []*core.Tensor) error {
	g, err := u.enterGuard()
	if err != nil {
		return nil // PreForward has returned the same error and has started nothing
	}
	defer g.Leave()
	t := u.tree
	if t == nil || t.forwardDepth == 0 {
		return nil
	}
	t.forwardDepth--
	defer t.guard.End()
	u.activeForwards--
	if u.inBackward {
		return nil
	}
	grad := false
	fwd := u.lastForward
	for _, y := range outputs {
		if err := y.Err(); err != nil {
			if t.forwardDepth == 0 {
				t.setForwardErr(err)
			}
		} else if y.RequiresGrad() && !y.IsLeaf() {
			grad = true
			meta := y.AutogradMeta()
			y.TensorHooks().Add(core.Hook{Blind: true, Fn: func(*core.Tensor) *core.Tensor {
				g, err := u.enterGuard()
				if err != nil {
					return core.ErrorTensor(err)
				}
				defer g.Leave()
				// Units that take this output as an input are done. They reshard first, so that their slots are free for this unit.
				for _, inputGradientReady := range t.inputGradHooks[meta] {
					if err := inputGradientReady(); err != nil {
						return core.ErrorTensor(err)
					}
				}
				delete(t.inputGradHooks, meta)
				if err := u.preBackward(fwd); err != nil {
					return core.ErrorTensor(err)
				}
				return nil
			}})
		}
	}
	if grad && !t.recomputing() {
		t.recordPostForward(u)
	}
	if u.activeForwards == 0 && !u.manualUnshard {
		u.useShards()
		if u.options.KeepAfterForward && grad {
			u.reshardSkipped = true
		} else {
			if grad && u.postForwardGroup != nil && u.gathered && !t.recomputing() {
				err = u.savePostForwardShards()
			}
			u.freeFull()
			if e := t.prefetchDeferred(); err == nil {
				err = e
			}
		}
	}
	t.setForwardErr(err)
	if t.forwardDepth == 0 && !t.recomputing() {
		t.endForward()
		if !grad { // otherwise backward reports it
			t.setForwardErr(t.revoked())
		}
		if t.forwardErr != nil {
			t.failStep(t.forwardErr)
		}
	}
	return err
}
