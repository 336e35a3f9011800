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
// allows them again. What the autograd metadata is asked for otherwise is not affected.
func (meta *AutogradMeta) Refuse(err error) {
	if err == nil {
		meta.refused.Store(nil)
		return
	}
	meta.refused.Store(&err)
}

// StandFor makes hooks that are registered on h from now on those of another leaf, which takes part in no graph: h stands for it while a
// pass runs.
func (meta *AutogradMeta) StandFor(leaf *AutogradMeta) { meta.extended().stands = leaf }

// TakeHooks moves the hooks on a leaf's gradient from another leaf to h.
func (meta *AutogradMeta) TakeHooks(from *AutogradMeta) {
	from.mu.Lock()
	l := from.leaf
	from.leaf = nil
	from.mu.Unlock()
	if l != nil {
		meta.mu.Lock()
		meta.leaf = l
		meta.mu.Unlock()
	}
}

// Refused returns the error of [AutogradMeta.Refuse], or nil.
func (meta *AutogradMeta) Refused() error {
	if err := meta.refused.Load(); err != nil {
		return *err
	}
	return nil
}
