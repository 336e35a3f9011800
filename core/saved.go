package core

import (
	"runtime/debug"
	"slices"
	"sync/atomic"
)

// saved is a saved tensor of a node. It refers to the storage, not to the tensor.
type saved struct {
	storage  *Storage
	version  uint32
	changes  *atomic.Uint32 // the tensor's own count
	dtype    DType
	output   bool // an output of the node itself, whose metadata is rebuilt from the node
	absent   bool
	index    int
	shape    []int
	strides  []int
	offset   int
	number   *Number
	autograd *AutogradMeta
	view     *viewOf // of a view, which may have tangents
	hooks    *SavedHooks
	packed   any
	isPacked bool
}

// Save saves tensors for the derivative. [BackwardContext.Saved] returns them by index, in the order of saving. Nil is allowed.
func (n *Node) Save(tensors ...*Tensor) *Node {
	if n.saved == nil {
		n.saved = make([]saved, 0, len(tensors))
	}
	for _, t := range tensors {
		n.save(t, false, 0)
	}
	return n
}

// SaveOutput saves t, which is or becomes output index of the node.
func (n *Node) SaveOutput(t *Tensor, index int) *Node {
	n.save(t, true, index)
	return n
}

func (n *Node) save(t *Tensor, output bool, index int) {
	n.saved = append(n.saved, saved{})
	s := &n.saved[len(n.saved)-1]
	if t == nil {
		s.absent = true
		return
	}
	s.dtype, s.output, s.index = t.dtype, output, index
	if t.isNumber {
		v := t.other.number
		s.number = &v
		return
	}
	if t.storage.inference {
		err := errInference(n.Name)
		n.problem, s.absent = &err, true
		return
	}
	if !output {
		if meta := t.current(); meta != nil {
			meta.retain()
			s.autograd = meta
		}
		if v := t.view.Load(); v != nil && ForwardActive() {
			v.base.retain()
			s.view = v.clone()
		}
	}
	if n.context != nil {
		if hooks := n.context.hooks; hooks != nil {
			s.hooks = hooks
			v := t.Detach().Keep()
			s.packed, s.isPacked = hooks.Pack(v), true
			n.externalSaved = n.externalSaved || hooks.External != nil
			if s.packed != any(v) {
				v.Release()
			}
			s.shape = t.shape
			return
		}
	}
	t.storage.Retain()
	s.storage, s.version, s.changes = t.storage, t.Changes(), t.changes
	s.shape, s.strides, s.offset = t.shape, t.strides, t.offset
}

func errInference(name string) error {
	return Errorf(StateError, name, "Inference tensors cannot be saved for backward: a tensor made in inference mode takes part in an "+
		"operation whose gradient needs it; clone it first, or make it under no_grad")
}

// Problem returns the error that makes the recorded operation fail, or nil.
func (n *Node) Problem() error {
	if n.problem == nil {
		return nil
	}
	return *n.problem
}

// FreeSaved frees the node's saved tensors. Its derivative cannot run any more.
func (n *Node) FreeSaved() {
	if n.inner != nil {
		n.inner.FreeSaved()
	}
	n.mu.Lock()
	values := n.saved
	n.saved = nil
	n.freed = n.freed || len(values) > 0
	n.mu.Unlock()
	for i := range values {
		s := &values[i]
		if s.storage != nil {
			s.storage.Release()
		}
		if s.autograd != nil {
			s.autograd.release()
		}
		if s.view != nil {
			s.view.base.release()
		}
		if r, ok := s.packed.(interface{ Release() }); ok {
			r.Release()
		}
	}
}

// Packed reports whether saved-tensor hooks packed some of the node's saved tensors.
func (n *Node) Packed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.ContainsFunc(n.saved, func(s saved) bool { return s.isPacked }) {
		return true
	}
	return n.inner != nil && n.inner.Packed()
}

// unpack returns saved tensor i. It attaches the tensor's place in the graph if the derivative itself is recorded. given holds values
// unpacked by another language.
func (n *Node) unpack(i int, m Mode, given map[*ExternalValue]*Tensor) (*Tensor, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.freed {
		return nil, Errorf(StateError, "backward", "the saved values of %s have been freed by an earlier backward; pass retain_graph to go through the graph again", n.Name)
	}
	if i >= len(n.saved) {
		return nil, Errorf(StateError, "backward", "%s saved %d values, its derivative asked for number %d", n.Name, len(n.saved), i)
	}
	s := &n.saved[i]
	if n.problem != nil {
		return nil, *n.problem
	}
	if s.absent {
		return nil, nil
	}
	if s.number != nil {
		return numberTensor(*s.number, s.dtype), nil
	}
	var t *Tensor
	if s.isPacked {
		var u *Tensor
		if f, ok := s.packed.(*ExternalValue); ok && given[f] != nil {
			u = given[f].Alias(false)
		} else {
			u = s.hooks.Unpack(s.packed)
		}
		if err := u.Usable("saved_tensors_hooks"); err != nil {
			return nil, err
		}
		defer u.Release()
		t = WrapTensor(m, u.storage, u.dtype, u.shape, u.strides, u.offset)
	} else {
		t = WrapTensor(m, s.storage, s.dtype, s.shape, s.strides, s.offset)
		t.changes = s.changes
		if v := t.Changes(); v != s.version {
			t.Release()
			return nil, Errorf(StateError, n.Name, "a saved tensor of shape %v was modified by an in-place operation before backward: it is at version %d, expected version %d", s.shape, v, s.version)
		}
	}
	if m.GradEnabled() || ForwardActive() { // which finds tangents at the place
		switch {
		case s.output:
			meta := &AutogradMeta{node: n, index: s.index, dtype: s.dtype, shape: s.shape}
			n.retain()
			meta.refs.set(1)
			meta.wanted.set(true)
			n.restore(meta, s.index)
			t.autograd.Store(meta)
		case s.autograd != nil:
			s.autograd.retain()
			t.autograd.Store(s.autograd)
		}
		if s.view != nil {
			s.view.base.retain()
			t.view.Store(s.view.clone())
		}
	}
	return t, nil
}

func stack() string { return string(debug.Stack()) }
