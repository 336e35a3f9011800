package core

// leafHooks are the hooks on a leaf's gradient.
type leafHooks struct {
	arrive HookList // run on each gradient that arrives
	post   HookList // run after a gradient was accumulated
}

// RetainGrad makes a tensor that is not a leaf keep its gradient.
func (t *Tensor) RetainGrad() {
	h := t.current()
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.node != nil && !h.keeps {
		h.keeps = true
		h.node.keepGrad(h)
	}
}

// RetainsGrad reports whether the tensor, which is not a leaf, keeps its gradient.
func (t *Tensor) RetainsGrad() bool {
	h := t.current()
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.keeps
}

// TensorHooks returns the hooks that run on t's gradient when it is known, or nil if t requires none.
func (t *Tensor) TensorHooks() *HookList {
	h := t.current()
	if h == nil {
		return nil
	}
	if r := h.rare.Load(); r != nil && r.stands != nil {
		h = r.stands
	}
	h.mu.Lock()
	n, index, requires := h.node, h.index, h.requires
	h.mu.Unlock()
	switch {
	case n != nil:
		return n.TensorHooks(index)
	case requires:
		return &h.hooks().arrive
	}
	return nil
}

func (h *History) hooks() *leafHooks {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leaf == nil {
		h.leaf = new(leafHooks)
	}
	return h.leaf
}

// PostAccumulateHooks returns the hooks that run, on the leaf's collected gradient, after a gradient was added to it. What
// they return, if not nil, only says that they failed.
func (t *Tensor) PostAccumulateHooks() *HookList {
	h := t.EnsureHistory()
	if r := h.rare.Load(); r != nil && r.stands != nil {
		h = r.stands
	}
	return &h.hooks().post
}

// LeafHooks returns the hooks on the gradients that arrive at a leaf and those after one was added; nil if there are
// none.
func (h *History) LeafHooks() (arrive []Hook, post []Hook) {
	h.mu.Lock()
	l := h.leaf
	h.mu.Unlock()
	if l == nil {
		return nil, nil
	}
	return l.arrive.All(), l.post.All()
}
