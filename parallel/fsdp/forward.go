package fsdp

import "github.com/plait-ml/plait/core"

// A use is one forward pass of a unit.
type use struct {
	unit   *Unit
	inputs int // whose gradients are still to come
	hooked bool
}

// PreForward gathers the unit's parameters, for a forward pass on the inputs that are tensors, and makes the module's tensors
// the full ones. [Unit.PostForward] must follow, also after an error, then without outputs. It waits for nothing but, every so
// often, other ranks. An error of the step before comes out here.
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
	defer func() { t.faulty(err) }()
	if first && !t.again() {
		if err := t.begin(u); err != nil {
			return err
		}
	}
	if err := u.computes(); err != nil {
		return err
	}
	again := u.back // computed again, in the midst of the unit's backward
	if err := u.fill(); err != nil {
		return err
	}
	if err := u.show(); err != nil {
		return err
	}
	if again {
		return nil
	}
	w := &use{unit: u}
	u.latest = w
	if core.CurrentMode().GradEnabled() && u != t.root() && !u.whole() && !t.again() {
		for _, x := range inputs {
			w.watch(x)
		}
	}
	if t.again() {
		return nil
	}
	return t.prefetch(t.entered(u))
}

// watch waits for the gradient of an input, after which the unit's own backward is done.
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

// PostForward ends a forward pass with the outputs that are tensors: it frees what was gathered, and makes the backward pass
// through the outputs gather it again.
func (u *Unit) PostForward(outputs []*core.Tensor) error {
	g, err := u.use()
	if err != nil {
		return nil // PreForward has told this thread, which has nothing to end
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
				t.faulty(err)
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
				// The units that this was an input of are done, and free their slots before this one takes another.
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
	if grad && !t.again() {
		t.left(u)
	}
	if u.using == 0 && !u.manual {
		u.shut()
		if u.options.KeepAfterForward && grad {
			u.holds = true
		} else {
			if grad && u.nearby != nil && u.filled && !t.again() {
				err = u.scatter()
			}
			u.empty()
			if e := t.freed(); err == nil {
				err = e
			}
		}
	}
	t.faulty(err)
	if t.depth == 0 && !t.again() {
		t.finish()
		if !grad { // otherwise backward tells
			t.faulty(t.revoked())
		}
		if t.fault != nil {
			t.giveUp(t.fault)
		}
	}
	return err
}
