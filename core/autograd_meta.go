package core

import (
	"sync"
	"sync/atomic"
)

// A History is a tensor's place in the graph: a leaf that collects its gradient, or an output of a node. Aliases of a
// tensor share it; an operation in place moves it to the operation's node.
type History struct {
	refs   atomicCount
	wanted flag // a gradient is: it is a leaf that requires one, or a node's output
	// refused is the error of recorded operations on a leaf: see Refuse.
	refused atomic.Pointer[error]
	rare    atomic.Pointer[rareHistory]

	mu         sync.Mutex // guards what follows
	node       *Node      // the node that made the value; nil for a leaf
	index      int        // which of its outputs
	rebased    uint32     // counts operations in place, for views
	requires   bool       // a leaf that wants a gradient
	guarded    bool       // an output of a foreign function that has the memory of another tensor
	keeps      bool       // keeps its gradient although not a leaf: node knows of it
	dtype      DType
	shape      []int
	grad       *Tensor
	accumulate *Node      // the leaf's node that receives its gradient
	leaf       *leafHooks // made when a hook is registered on a leaf
}

// rareHistory is what few histories have: every node has a history, and stays small.
type rareHistory struct {
	division atomic.Pointer[Division] // of a tensor that is a part of a larger one
	borrowed int                      // how many use the gradient now: see BorrowGrad; mu guards this and the next
	replaced []*Tensor                // gradients to release when nobody does
	stands   *History                 // the leaf on which hooks are registered in the place of this one: see StandFor

	accumulating sync.Mutex // see Accumulating
}

// extended returns the history's rare part, which it makes.
func (h *History) extended() *rareHistory {
	if h.rare.Load() == nil {
		h.rare.CompareAndSwap(nil, new(rareHistory))
	}
	return h.rare.Load()
}

func (h *History) retain() { h.refs.inc() }

// Retain adds a reference.
func (h *History) Retain() { h.retain() }

// Release drops a reference.
func (h *History) Release() { h.release() }

// PlaceShared reports whether others than t may know its place in the graph: aliases, or nodes whose gradients go there. If not, the
// place and the hooks that are registered there end with t.
func (t *Tensor) PlaceShared() bool {
	h := t.history.Load()
	if h == nil || t.view.Load() != nil || h.refs.load() > 1 {
		return true
	}
	if r := h.rare.Load(); r != nil && (r.stands != nil || r.division.Load() != nil) {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rebased > 0 || h.node != nil && h.node.refs.load() > 1
}

// At returns a tensor over t's memory whose place in the graph is h.
func (t *Tensor) At(h *History) *Tensor {
	a := t.Alias(false)
	if a.other == nil {
		h.retain()
		a.history.Store(h)
	}
	return a
}

func (h *History) release() {
	if h.refs.dec() != 0 {
		return
	}
	h.mu.Lock()
	n, leaf, accumulate := h.node, h.leaf, h.accumulate
	h.node, h.leaf = nil, nil
	h.mu.Unlock()
	h.SetGrad(nil)
	if leaf != nil {
		leaf.arrive.clear()
		leaf.post.clear()
	}
	if accumulate != nil {
		accumulate.dropHooks()
	}
	if n != nil {
		if h.keeps {
			n.forgetGrad(h)
		}
		n.Release()
	}
}

// EnsureHistory returns the tensor's history, making one if need be.
func (t *Tensor) EnsureHistory() *History {
	if h := t.history.Load(); h != nil {
		return h
	}
	h := &History{dtype: t.dtype, shape: t.shape}
	h.refs.set(1)
	if t.history.CompareAndSwap(nil, h) {
		return h
	}
	return t.history.Load()
}

// RequiresGrad reports whether operations on t record gradients.
func (t *Tensor) RequiresGrad() bool {
	h := t.current()
	return h != nil && h.wanted.load()
}

// IsLeaf reports whether t was made by the user and not by a recorded operation.
func (t *Tensor) IsLeaf() bool {
	h := t.current()
	if h == nil {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.node == nil
}

// SetRequiresGrad makes t a leaf that collects its gradient, or no longer one. It returns t; if t is not a leaf or not
// of a floating-point dtype, a tensor that carries the error.
func (t *Tensor) SetRequiresGrad(on bool) *Tensor {
	if err := t.Usable("requires_grad"); err != nil {
		return ErrorTensor(err)
	}
	if on && (!t.dtype.IsFloat() || t.isNumber) {
		return ErrorTensor(Errorf(DTypeError, "requires_grad", "only tensors of a floating-point dtype can require gradients, got %v", t))
	}
	if on && t.storage.inference && !CurrentMode().Inference() {
		return ErrorTensor(Errorf(StateError, "requires_grad", "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed; clone it first"))
	}
	h := t.EnsureHistory()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.node != nil && !on {
		return ErrorTensor(Errorf(StateError, "requires_grad", "can only be turned off for leaves; detach the result of %s instead", h.node.Name))
	}
	h.requires = h.node == nil && on
	h.wanted.store(on)
	return t
}

// Accumulating runs fn, which adds to the gradient, while no other backward pass does. The lock is the history's own: fn may wait for
// room in a queue, and so for another rank, which must not wait for it in turn.
func (h *History) Accumulating(fn func() error) error {
	mu := &h.extended().accumulating
	Lock(mu)
	defer mu.Unlock()
	return fn()
}

// Shape returns the shape of the tensor the history belongs to.
func (h *History) Shape() []int { return h.shape }

// History returns the tensor's place in the graph, or nil if it has none.
func (t *Tensor) History() *History { return t.current() }

// Detach returns a view of t without its history.
func (t *Tensor) Detach() *Tensor { return t.Alias(false) }

// Rebase makes output index of n the value that the history stands for, after an operation in place.
func (h *History) Rebase(n *Node, index int) {
	n.retain()
	h.mu.Lock()
	old := h.node
	h.node, h.index = n, index
	h.wanted.store(true)
	h.rebased++
	if h.keeps {
		old.forgetGrad(h)
		n.keepGrad(h)
	}
	h.mu.Unlock()
	if old != nil {
		old.Release()
	}
}

// Wanted reports whether a gradient is.
func (h *History) Wanted() bool { return h.wanted.load() }

// Guard makes operations in place on h's tensor, and its views, an error while gradients are recorded.
func (h *History) Guard() { h.guarded = true }

// Guarded returns the node and the number of its output if [History.Guard] was called, else nil.
func (h *History) Guarded() (*Node, int) {
	if !h.guarded {
		return nil, 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.node, h.index
}

// NeedsGradLeaf reports whether the history is a leaf that collects a gradient.
func (h *History) NeedsGradLeaf() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.node == nil && h.requires
}

// Edge returns the edge along which h's gradient flows, with a reference of its own: to the node that made it, or to the
// node that accumulates a leaf's gradient. The edge is empty if no gradient is wanted.
func (h *History) Edge() Edge {
	if h == nil || !h.wanted.load() {
		return Edge{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.node != nil {
		h.node.retain()
		return Edge{h.node, h.index}
	}
	if !h.requires {
		return Edge{}
	}
	h.refs.inc()
	if h.accumulate == nil {
		h.accumulate = newAccumulate(h)
	}
	return Edge{h.accumulate, 0}
}

// newAccumulate returns the node that receives the gradient of a leaf.
func newAccumulate(leaf *History) *Node {
	n := &Node{ID: nodeIDs.Add(1), Name: "accumulate_grad", leaf: leaf}
	n.DeclareOutput(0, leaf.dtype, leaf.shape)
	return n
}
