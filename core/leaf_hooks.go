package core

// leafHooks are the hooks on a leaf.
type leafHooks struct {
	pre  HookList // run on each gradient before it is accumulated
	post HookList // run after a gradient was accumulated
}

// RetainGrad makes a non-leaf tensor keep its gradient.
func (t *Tensor) RetainGrad() {
	meta := t.current()
	if meta == nil {
		return
	}
	meta.mu.Lock()
	defer meta.mu.Unlock()
	if meta.node != nil && !meta.retains {
		meta.retains = true
		meta.node.keepGrad(meta)
	}
}

// RetainsGrad reports whether a non-leaf tensor keeps its gradient.
func (t *Tensor) RetainsGrad() bool {
	meta := t.current()
	if meta == nil {
		return false
	}
	meta.mu.Lock()
	defer meta.mu.Unlock()
	return meta.retains
}

// TensorHooks returns the hooks that run on t's gradient when it is complete, or nil if t requires no gradient.
func (t *Tensor) TensorHooks() *HookList {
	meta := t.current()
	if meta == nil {
		return nil
	}
	if r := meta.rare.Load(); r != nil && r.standIn != nil {
		meta = r.standIn
	}
	meta.mu.Lock()
	n, index, requires := meta.node, meta.index, meta.requires
	meta.mu.Unlock()
	switch {
	case n != nil:
		return n.TensorHooks(index)
	case requires:
		return &meta.hooks().pre
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

// PostAccumulateHooks returns the hooks that run on a leaf's gradient after a backward pass has added to it. A non-nil result is only an
// error.
func (t *Tensor) PostAccumulateHooks() *HookList {
	meta := t.EnsureAutogradMeta()
	if r := meta.rare.Load(); r != nil && r.standIn != nil {
		meta = r.standIn
	}
	return &meta.hooks().post
}

// LeafHooks returns a leaf's hooks on incoming gradients and its hooks after accumulation; nil if there are none.
func (meta *AutogradMeta) LeafHooks() (arrive []Hook, post []Hook) {
	meta.mu.Lock()
	l := meta.leaf
	meta.mu.Unlock()
	if l == nil {
		return nil, nil
	}
	return l.pre.All(), l.post.All()
}
