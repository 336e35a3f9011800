package core

// NewEmptied returns a contiguous tensor on stream s whose storage has no memory until [Storage.Refill].
func NewEmptied(m Mode, s Stream, d DType, shape []int, cat Category) *Tensor {
	t := new(Tensor)
	t.dtype = d
	n := t.setShape(shape)
	ContiguousStrides(t.shape, t.strides)
	st := newHeader()
	st.alloc.size, st.alloc.home, st.alloc.category = n*d.Size(), s, cat
	st.refs.set(1)
	t.storage = st
	m.register(t)
	return t
}

// Refuse makes recorded operations on a leaf fail with err, because its values are not valid now, as of a parameter that is not gathered.
// Nil allows them again. Other uses of the metadata are not affected.
func (meta *AutogradMeta) Refuse(err error) {
	if err == nil {
		meta.refused.Store(nil)
		return
	}
	meta.refused.Store(&err)
}

// StandFor redirects hooks registered on meta from now on to leaf. meta takes the leaf's place in the graph while a pass runs.
func (meta *AutogradMeta) StandFor(leaf *AutogradMeta) { meta.extended().standIn = leaf }

// TakeHooks moves the hooks of another leaf to meta.
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
