package core

import (
	"sync"
	"sync/atomic"
)

// An AutogradMeta is a tensor's place in the graph: a leaf that collects its gradient, or an output of a node. Aliases of a
// tensor share it; an operation in place moves it to the operation's node.
type AutogradMeta struct {
	refs   atomicCount
	wanted flag // a gradient is: it is a leaf that requires one, or a node's output
	// refused is the error of recorded operations on a leaf: see Refuse.
	refused atomic.Pointer[error]
	rare    atomic.Pointer[rareMeta]

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

// rareMeta is what few tensors have: every node has autograd metadata, and stays small.
type rareMeta struct {
	division atomic.Pointer[Division] // of a tensor that is a part of a larger one
	borrowed int                      // how many use the gradient now: see BorrowGrad; mu guards this and the next
	replaced []*Tensor                // gradients to release when nobody does
	stands   *AutogradMeta            // the leaf on which hooks are registered in the place of this one: see StandFor

	accumulating sync.Mutex // see Accumulating
}

// extended returns the autograd metadata's rare part, which it makes.
func (meta *AutogradMeta) extended() *rareMeta {
	if meta.rare.Load() == nil {
		meta.rare.CompareAndSwap(nil, new(rareMeta))
	}
	return meta.rare.Load()
}

func (meta *AutogradMeta) retain() { meta.refs.inc() }

// Retain adds a reference.
func (meta *AutogradMeta) Retain() { meta.retain() }

// Release drops a reference.
func (meta *AutogradMeta) Release() { meta.release() }

// PlaceShared reports whether others than t may know its place in the graph: aliases, or nodes whose gradients go there. If not, the
// place and the hooks that are registered there end with t.
func (t *Tensor) PlaceShared() bool {
	meta := t.autograd.Load()
	if meta == nil || t.view.Load() != nil || meta.refs.load() > 1 {
		return true
	}
	if r := meta.rare.Load(); r != nil && (r.stands != nil || r.division.Load() != nil) {
		return true
	}
	meta.mu.Lock()
	defer meta.mu.Unlock()
	return meta.rebased > 0 || meta.node != nil && meta.node.refs.load() > 1
}

// At returns a tensor over t's memory whose place in the graph is h.
func (t *Tensor) At(meta *AutogradMeta) *Tensor {
	a := t.Alias(false)
	if a.other == nil {
		meta.retain()
		a.autograd.Store(meta)
	}
	return a
}

func (meta *AutogradMeta) release() {
	if meta.refs.dec() != 0 {
		return
	}
	meta.mu.Lock()
	n, leaf, accumulate := meta.node, meta.leaf, meta.accumulate
	meta.node, meta.leaf = nil, nil
	meta.mu.Unlock()
	meta.SetGrad(nil)
	if leaf != nil {
		leaf.arrive.clear()
		leaf.post.clear()
	}
	if accumulate != nil {
		accumulate.dropHooks()
	}
	if n != nil {
		if meta.keeps {
			n.forgetGrad(meta)
		}
		n.Release()
	}
}

// EnsureAutogradMeta returns the metadata of the tensor, which it makes if need be.
func (t *Tensor) EnsureAutogradMeta() *AutogradMeta {
	if meta := t.autograd.Load(); meta != nil {
		return meta
	}
	meta := &AutogradMeta{dtype: t.dtype, shape: t.shape}
	meta.refs.set(1)
	if t.autograd.CompareAndSwap(nil, meta) {
		return meta
	}
	return t.autograd.Load()
}

// RequiresGrad reports whether operations on t record gradients.
func (t *Tensor) RequiresGrad() bool {
	meta := t.current()
	return meta != nil && meta.wanted.load()
}

// IsLeaf reports whether t was made by the user and not by a recorded operation.
func (t *Tensor) IsLeaf() bool {
	meta := t.current()
	if meta == nil {
		return true
	}
	meta.mu.Lock()
	defer meta.mu.Unlock()
	return meta.node == nil
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
	meta := t.EnsureAutogradMeta()
	meta.mu.Lock()
	defer meta.mu.Unlock()
	if meta.node != nil && !on {
		return ErrorTensor(Errorf(StateError, "requires_grad", "can only be turned off for leaves; detach the result of %s instead", meta.node.Name))
	}
	meta.requires = meta.node == nil && on
	meta.wanted.store(on)
	return t
}

// Accumulating runs fn, which adds to the gradient, while no other backward pass does. The lock is the autograd metadata's own: fn may wait for
// room in a queue, and so for another rank, which must not wait for it in turn.
func (meta *AutogradMeta) Accumulating(fn func() error) error {
	mu := &meta.extended().accumulating
	Lock(mu)
	defer mu.Unlock()
	return fn()
}

// Shape returns the shape of the tensor the autograd metadata belongs to.
func (meta *AutogradMeta) Shape() []int { return meta.shape }

// AutogradMeta returns the tensor's place in the graph, or nil if it has none.
func (t *Tensor) AutogradMeta() *AutogradMeta { return t.current() }

// Detach returns a view of t without its autograd metadata.
func (t *Tensor) Detach() *Tensor { return t.Alias(false) }

// Rebase makes output index of n the value that the autograd metadata stands for, after an operation in place.
func (meta *AutogradMeta) Rebase(n *Node, index int) {
	n.retain()
	meta.mu.Lock()
	old := meta.node
	meta.node, meta.index = n, index
	meta.wanted.store(true)
	meta.rebased++
	if meta.keeps {
		old.forgetGrad(meta)
		n.keepGrad(meta)
	}
	meta.mu.Unlock()
	if old != nil {
		old.Release()
	}
}

// Wanted reports whether a gradient is.
func (meta *AutogradMeta) Wanted() bool { return meta.wanted.load() }

// Guard makes operations in place on h's tensor, and its views, an error while gradients are recorded.
func (meta *AutogradMeta) Guard() { meta.guarded = true }

// Guarded returns the node and the number of its output if [AutogradMeta.Guard] was called, else nil.
func (meta *AutogradMeta) Guarded() (*Node, int) {
	if !meta.guarded {
		return nil, 0
	}
	meta.mu.Lock()
	defer meta.mu.Unlock()
	return meta.node, meta.index
}

// NeedsGradLeaf reports whether the autograd metadata is a leaf that collects a gradient.
func (meta *AutogradMeta) NeedsGradLeaf() bool {
	meta.mu.Lock()
	defer meta.mu.Unlock()
	return meta.node == nil && meta.requires
}

// Edge returns the edge along which h's gradient flows, with a reference of its own: to the node that made it, or to the
// node that accumulates a leaf's gradient. The edge is empty if no gradient is wanted.
func (meta *AutogradMeta) Edge() Edge {
	if meta == nil || !meta.wanted.load() {
		return Edge{}
	}
	meta.mu.Lock()
	defer meta.mu.Unlock()
	if meta.node != nil {
		meta.node.retain()
		return Edge{meta.node, meta.index}
	}
	if !meta.requires {
		return Edge{}
	}
	meta.refs.inc()
	if meta.accumulate == nil {
		meta.accumulate = newAccumulate(meta)
	}
	return Edge{meta.accumulate, 0}
}

// newAccumulate returns the node that receives the gradient of a leaf.
func newAccumulate(leaf *AutogradMeta) *Node {
	n := &Node{ID: nodeIDs.Add(1), Name: "accumulate_grad", leaf: leaf}
	n.DeclareOutput(0, leaf.dtype, leaf.shape)
	return n
}
