package core

// leafHooks are the hooks on a leaf's gradient.
type leafHooks struct {
	arrive HookList // run on each gradient that arrives
	post   HookList // run after a gradient was accumulated
}

// RetainGrad makes a tensor that is not a leaf keep its gradient.
func (t *Tensor) RetainGrad() {
	meta := t.current()
	if meta == nil {
		return
	}
	meta.mu.Lock()
	defer meta.mu.Unlock()
	if meta.node != nil && !meta.keeps {
		meta.keeps = true
		meta.node.keepGrad(meta)
	}
}

// RetainsGrad reports whether the tensor, which is not a leaf, keeps its gradient.
func (t *Tensor) RetainsGrad() bool {
	meta := t.current()
	if meta == nil {
		return false
	}
	meta.mu.Lock()
	defer meta.mu.Unlock()
	return meta.keeps
}

// TensorHooks returns the hooks that run on t's gradient when it is known, or nil if t requires none.
func (t *Tensor) TensorHooks() *HookList {
	meta := t.current()
	if meta == nil {
		return nil
	}
	if r := meta.rare.Load(); r != nil && r.stands != nil {
		meta = r.stands
	}
	meta.mu.Lock()
	n, index, requires := meta.node, meta.index, meta.requires
	meta.mu.Unlock()
	switch {
	case n != nil:
		return n.TensorHooks(index)
	case requires:
		return &meta.hooks().arrive
	}
	return nil
}

func (meta *AutogradMeta) hooks() *leafHooks {
	meta.mu.Lock()
	defer meta.mu.Unlock()
	if meta.leaf == nil {
		meta.leaf = new(leafHooks)
	}
	return meta.leaf
}

// PostAccumulateHooks returns the hooks that run, on the leaf's collected gradient, after a gradient was added to it. What
// they return, if not nil, only says that they failed.
func (t *Tensor) PostAccumulateHooks() *HookList {
	meta := t.EnsureAutogradMeta()
	if r := meta.rare.Load(); r != nil && r.stands != nil {
		meta = r.stands
	}
	return &meta.hooks().post
}

// LeafHooks returns the hooks on the gradients that arrive at a leaf and those after one was added; nil if there are
// none.
func (meta *AutogradMeta) LeafHooks() (arrive []Hook, post []Hook) {
	meta.mu.Lock()
	l := meta.leaf
	meta.mu.Unlock()
	if l == nil {
		return nil, nil
	}
	return l.arrive.All(), l.post.All()
}
