package core

import "slices"

func (n *Node) extras() *nodeExtra {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.extra == nil {
		n.extra = &nodeExtra{grads: map[int]*HookList{}}
	}
	return n.extra
}

// Own makes v live as long as the node, which releases it at its end.
func (n *Node) Own(v interface{ Release() }) {
	x := n.extras()
	n.mu.Lock()
	defer n.mu.Unlock()
	x.owned = append(x.owned, v)
}

// PreHooks returns the hooks that run on the gradients of the outputs before the derivative.
func (n *Node) PreHooks() *NodeHookList { return &n.extras().before }

// PostHooks returns the hooks that run on the gradients of the inputs after the derivative.
func (n *Node) PostHooks() *NodeHookList { return &n.extras().after }

// TensorHooks returns the hooks that run on the gradient of output i before the derivative.
func (n *Node) TensorHooks(i int) *HookList {
	x := n.extras()
	n.mu.Lock()
	defer n.mu.Unlock()
	if x.grads[i] == nil {
		x.grads[i] = new(HookList)
	}
	return x.grads[i]
}

// HasHooks reports whether hooks were registered on the node or on the gradients of its outputs.
func (n *Node) HasHooks() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.extra != nil
}

// shows reports whether anyone but derivatives sees gradients of the node: hooks that are not blind, or tensors that retain them.
func (n *Node) shows() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.extra
	if x == nil {
		return false
	}
	seen := x.before.Len()+x.after.Len()+len(x.retained) > 0
	for _, hooks := range x.grads {
		seen = seen || slices.ContainsFunc(hooks.All(), func(h Hook) bool { return !h.Blind })
	}
	return seen
}

// dropHooks drops the node's hooks and owned objects at the node's end.
func (n *Node) dropHooks() {
	n.mu.Lock()
	x := n.extra
	var shared map[int]tangents
	if x != nil {
		shared, x.tangents = x.tangents, nil
	}
	n.mu.Unlock()
	if x == nil {
		return
	}
	for _, list := range shared {
		for _, v := range list {
			v.release()
		}
	}
	x.before.clear()
	x.after.clear()
	for _, l := range x.grads {
		l.clear()
	}
	for _, v := range x.owned {
		v.Release()
	}
	x.owned = nil
}

// keepGrad makes backward store the gradient of meta, an output of the node, until forgetGrad.
func (n *Node) keepGrad(meta *AutogradMeta) {
	x := n.extras()
	n.mu.Lock()
	defer n.mu.Unlock()
	x.retained = append(x.retained, meta)
}

func (n *Node) forgetGrad(meta *AutogradMeta) {
	x := n.extras()
	n.mu.Lock()
	defer n.mu.Unlock()
	x.retained = slices.DeleteFunc(x.retained, func(k *AutogradMeta) bool { return k == meta })
}

// Keeping calls fn for each output that retains its gradient, with the output's index.
func (n *Node) Keeping(fn func(meta *AutogradMeta, index int)) {
	n.mu.Lock()
	var alive []*AutogradMeta
	if n.extra != nil {
		for _, meta := range n.extra.retained {
			if meta.refs.incUnlessZero() {
				alive = append(alive, meta)
			}
		}
	}
	n.mu.Unlock()
	for _, meta := range alive {
		fn(meta, meta.index)
		meta.release()
	}
}

// Placeholder returns a tensor that stands for an output of the node as the root of a backward pass. It has memory for one element.
func (n *Node) Placeholder(index int) (*Tensor, error) {
	m := CurrentMode()
	dev, err := m.Context().DefaultDevice()
	if err != nil {
		return nil, err
	}
	d, shape := n.OutputMeta(index)
	one := NewTensor(m, m.Context().Stream(dev), d, []int{1})
	if err := one.Err(); err != nil {
		return nil, err
	}
	defer one.Release()
	t := WrapTensor(m, one.storage, d, shape, make([]int, len(shape)), 0)
	if n.leaf != nil {
		n.leaf.retain()
		t.autograd.Store(n.leaf)
		return t, nil
	}
	n.retain()
	meta := &AutogradMeta{node: n, index: index, dtype: d, shape: t.shape}
	meta.refs.set(1)
	meta.wanted.set(true)
	t.autograd.Store(meta)
	return t, nil
}
