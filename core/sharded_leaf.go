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

// Explain sets the error of operations on ordinary tensors and the leaf, a rank's part of a distributed tensor, such as that a parameter is
// not gathered. Nil leaves the error to the operations.
func (meta *AutogradMeta) Explain(err error) {
	if err == nil {
		meta.extended().explained.Store(nil)
		return
	}
	meta.extended().explained.Store(&err)
}

// StandFor redirects hooks registered on meta from now on to leaf. meta takes the leaf's place in the graph while a pass runs.
func (meta *AutogradMeta) StandFor(leaf *AutogradMeta) { meta.extended().standIn = leaf }

// RunLast makes backward passes run the leaf after all other nodes. add gets the leaf's gradient, nil if it has none, before its hooks do. It
// returns what takes its place, or an error.
func (meta *AutogradMeta) RunLast(add func(grad *Tensor) *Tensor) { meta.extended().last = add }

// Last returns the function of [AutogradMeta.RunLast], or nil.
func (meta *AutogradMeta) Last() func(grad *Tensor) *Tensor {
	if r := meta.rare.Load(); r != nil {
		return r.last
	}
	return nil
}

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

// Explained returns the error of [AutogradMeta.Explain], or nil.
func (meta *AutogradMeta) Explained() error {
	if r := meta.rare.Load(); r != nil {
		if err := r.explained.Load(); err != nil {
			return *err
		}
	}
	return nil
}
