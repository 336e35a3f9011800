package core

// NewEmptied returns a contiguous tensor whose storage, of stream s, has no memory until [Storage.Refill].
func NewEmptied(m Mode, s Stream, d DType, shape []int, cat Category) *Tensor {
	t := new(Tensor)
	t.dtype = d
	n := t.setShape(shape)
	ContiguousStrides(t.shape, t.strides)
	st := newHeader()
	st.held.size, st.held.home, st.held.category = n*d.Size(), s, cat
	st.refs.set(1)
	t.storage = st
	m.register(t)
	return t
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
	t.history.Store(u.history.Swap(t.history.Load()))
	return nil
}

// Refuse makes recorded operations on a leaf fail with err, because its values are not what they would have to be; nil
// allows them again. What the history is asked for otherwise is not affected.
func (h *History) Refuse(err error) {
	if err == nil {
		h.refused.Store(nil)
		return
	}
	h.refused.Store(&err)
}

// StandFor makes hooks that are registered on h from now on those of another leaf, which takes part in no graph: h stands for it while a
// pass runs.
func (h *History) StandFor(leaf *History) { h.extended().stands = leaf }

// TakeHooks moves the hooks on a leaf's gradient from another leaf to h.
func (h *History) TakeHooks(from *History) {
	from.mu.Lock()
	l := from.leaf
	from.leaf = nil
	from.mu.Unlock()
	if l != nil {
		h.mu.Lock()
		h.leaf = l
		h.mu.Unlock()
	}
}

// Refused returns the error of [History.Refuse], or nil.
func (h *History) Refused() error {
	if err := h.refused.Load(); err != nil {
		return *err
	}
	return nil
}
