package core

import "slices"

// Adopt makes t share u's memory, dtype and layout, as an assignment to a tensor's data does. What t is in the graph it
// stays: a leaf keeps its gradient and its hooks. t is no view afterwards. It is an error for the result of an
// operation if its shape or dtype would change. It waits for those who [Tensor.Use] t.
func (t *Tensor) Adopt(u *Tensor) error {
	const name = "set_"
	for _, x := range [...]*Tensor{t, u} {
		if x == nil || x.isNumber {
			return Errorf(TypeError, name, "want two tensors, got %v and %v", t, u)
		}
		if err := x.failed(); err != nil {
			return err
		}
	}
	if !holdUnused(t, u, false) {
		return errReleased(name)
	}
	defer letGoBoth(t, u)
	same := t.dtype == u.dtype && slices.Equal(t.shape, u.shape)
	if meta := t.autograd.Load(); meta != nil && !same {
		if err := meta.reshape(name, u.dtype, u.shape); err != nil {
			return err
		}
	}
	if v := t.view.Swap(nil); v != nil {
		defer v.base.release()
	}
	old := t.storage
	u.storage.Retain()
	t.storage, t.dtype, t.offset = u.storage, u.dtype, u.offset
	t.shape, t.strides = slices.Clone(u.shape), slices.Clone(u.strides) // calls on their way may look at the old ones
	old.Release()
	return nil
}

// reshape makes a leaf's autograd metadata one of another shape and dtype.
func (meta *AutogradMeta) reshape(name string, d DType, shape []int) error {
	meta.mu.Lock()
	defer meta.mu.Unlock()
	if meta.node != nil {
		return Errorf(StateError, name, "the shape and dtype of the result of an operation cannot change, got %v%v, want %v%v", d, shape, meta.dtype, meta.shape)
	}
	meta.dtype, meta.shape = d, slices.Clone(shape)
	if old := meta.accumulate; old != nil { // a backward pass may be looking at that one
		old.mu.Lock()
		extra := old.extra
		old.mu.Unlock()
		meta.accumulate = newAccumulate(meta)
		meta.accumulate.extra = extra
	}
	return nil
}

// Exchange gives t and u each other's memory, dtype, layout and place in the graph: whoever holds t finds what u was. A
// sharded parameter becomes the gathered one so, and back, under every name it has. Neither may be a view. It waits for those who
// [Tensor.Use] one of them.
func (t *Tensor) Exchange(u *Tensor) error {
	const op = "exchange"
	for _, x := range [...]*Tensor{t, u} {
		switch {
		case x == nil || x.isNumber:
			return Errorf(TypeError, op, "want two tensors, got %v and %v", t, u)
		case x.failed() != nil:
			return x.failed()
		}
	}
	if !holdUnused(t, u, true) {
		return errReleased(op)
	}
	defer letGoBoth(t, u)
	if t.view.Load() != nil || u.view.Load() != nil {
		return Errorf(ValueError, op, "got a view of another tensor, %v and %v", t, u)
	}
	t.storage, u.storage = u.storage, t.storage
	t.dtype, u.dtype = u.dtype, t.dtype
	t.offset, u.offset = u.offset, t.offset
	// The slices themselves are never written to, so calls on their way may go on looking at them.
	t.shape, u.shape = u.shape, t.shape
	t.strides, u.strides = u.strides, t.strides
	t.autograd.Store(u.autograd.Swap(t.autograd.Load()))
	return nil
}
