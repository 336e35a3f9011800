package fsdp

import "github.com/plait-ml/plait/core"

// A use is one forward pass of a unit.
type use struct {
	unit   *Unit
	inputs int  // number of inputs whose gradients are not known yet
	hooked bool // some input has a hook
}

// PreForward starts a forward pass of the unit. It all-gathers the parameters and makes the module's tensors the full parameters. inputs are
// the inputs that are tensors. [Unit.PostForward] must follow; after an error, without outputs. PreForward does not wait for the device. It
// may wait for other ranks, and reports errors of the previous step.
func (u *Unit) PreForward(inputs []*core.Tensor) (err error) {
	g, err := u.use()
	if err != nil {
		return err
	}
	defer g.Leave()
	t := u.tree
	if t == nil {
		return core.Errorf(core.StateError, "fsdp", "the unit %q is in no tree", u.Name())
	}
	first := t.depth == 0
	t.depth++
	t.guard.Begin()
	u.using++
	defer func() { t.setFault(err) }()
	if first && !t.recomputing() {
		if err := t.begin(u); err != nil {
			return err
		}
	}
	if err := u.computes(); err != nil {
		return err
	}
	again := u.back // activation checkpointing recomputes the unit during its backward
	if err := u.gather(); err != nil {
		return err
	}
	if err := u.useFull(); err != nil {
		return err
	}
	if again {
		return nil
	}
	w := &use{unit: u}
	u.latest = w
	if core.CurrentMode().GradEnabled() && u != t.root() && !u.replicated() && !t.recomputing() {
		for _, x := range inputs {
			w.watch(x)
		}
	}
	if t.recomputing() {
		return nil
	}
	return t.prefetch(t.nextInForward(u))
}

// watch adds a hook on an input. Once the gradients of all inputs are known, the unit's backward is done.
func (w *use) watch(x *core.Tensor) {
	if x.Err() != nil || !x.RequiresGrad() || x.IsLeaf() {
		return
	}
	w.inputs++
	w.hooked = true
	came := false
	arrived := func() error {
		if came {
			return nil
		}
		came = true
		w.inputs--
		return w.unit.release()
	}
	t := w.unit.tree
	t.arriving[x.AutogradMeta()] = append(t.arriving[x.AutogradMeta()], arrived)
	x.TensorHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
		g, err := w.unit.use()
		if err == nil {
			defer g.Leave()
			err = arrived()
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
	g, err := u.use()
	if err != nil {
		return nil // PreForward has returned the same error and has started nothing
	}
	defer g.Leave()
	t := u.tree
	if t == nil || t.depth == 0 {
		return nil
	}
	t.depth--
	defer t.guard.End()
	u.using--
	if u.back {
		return nil
	}
	grad := false
	w := u.latest
	for _, y := range outputs {
		if err := y.Err(); err != nil {
			if t.depth == 0 {
				t.setFault(err)
			}
		} else if y.RequiresGrad() && !y.IsLeaf() {
			grad = true
			meta := y.AutogradMeta()
			y.TensorHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
				g, err := u.use()
				if err != nil {
					return core.ErrorTensor(err)
				}
				defer g.Leave()
				// Units that take this output as an input are done. They reshard first, so that their slots are free for this unit.
				for _, arrived := range t.arriving[meta] {
					if err := arrived(); err != nil {
						return core.ErrorTensor(err)
					}
				}
				delete(t.arriving, meta)
				if err := u.preBackward(w); err != nil {
					return core.ErrorTensor(err)
				}
				return nil
			}})
		}
	}
	if grad && !t.recomputing() {
		t.left(u)
	}
	if u.using == 0 && !u.manual {
		u.useShards()
		if u.options.KeepAfterForward && grad {
			u.holds = true
		} else {
			if grad && u.nearby != nil && u.filled && !t.recomputing() {
				err = u.scatter()
			}
			u.freeFull()
			if e := t.prefetchDeferred(); err == nil {
				err = e
			}
		}
	}
	t.setFault(err)
	if t.depth == 0 && !t.recomputing() {
		t.finish()
		if !grad { // otherwise backward reports it
			t.setFault(t.revoked())
		}
		if t.fault != nil {
			t.failStep(t.fault)
		}
	}
	return err
}
