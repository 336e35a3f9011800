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
	if h := t.history.Load(); h != nil && !same {
		if err := h.reshape(name, u.dtype, u.shape); err != nil {
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

// reshape makes a leaf's history one of another shape and dtype.
func (h *History) reshape(name string, d DType, shape []int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.node != nil {
		return Errorf(StateError, name, "the shape and dtype of the result of an operation cannot change, got %v%v, want %v%v", d, shape, h.dtype, h.shape)
	}
	h.dtype, h.shape = d, slices.Clone(shape)
	if old := h.accumulate; old != nil { // a backward pass may be looking at that one
		old.mu.Lock()
		extra := old.extra
		old.mu.Unlock()
		h.accumulate = newAccumulate(h)
		h.accumulate.extra = extra
	}
	return nil
}
