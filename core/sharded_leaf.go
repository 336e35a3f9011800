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
