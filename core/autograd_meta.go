package core

import (
	"sync"
	"sync/atomic"
)

// An AutogradMeta is a tensor's place in the graph: a leaf that accumulates its gradient, or an output of a node. Aliases of a tensor share
// it. An in-place operation moves it to the operation's node.
type AutogradMeta struct {
	refs   atomicCount
	wanted flag // requires a gradient: a leaf with requires_grad, or an output of a node
	rare   atomic.Pointer[rareMeta]

	mu         sync.Mutex // guards the fields below
	node       *Node      // that computed the value; nil for a leaf
	index      int        // of the node's output
	rebased    uint32     // counts in-place operations; views compare it
	requires   bool       // a leaf with requires_grad
	guarded    bool       // an output of an external function that shares the memory of another tensor
	retains    bool       // retains its gradient although it is no leaf; node lists it
	dtype      DType
	shape      []int
	grad       *Tensor
	accumulate *Node      // the node that accumulates the leaf's gradient
	leaf       *leafHooks // created when the first hook is registered on the leaf
}

// rareMeta holds the fields that few tensors need. Every node has an AutogradMeta, so that one must stay small.
type rareMeta struct {
	explained atomic.Pointer[error] // see Explain
	borrowed  int                   // readers of the gradient: see BorrowGrad; mu guards this field and the next
	replaced  []*Tensor             // gradients to release when borrowed is 0
	standIn   *AutogradMeta         // the leaf that receives hooks in place of this one: see StandFor
	last      func(*Tensor) *Tensor // see RunLast
	tangents  tangents              // see ForwardLevel; mu guards them

	accumulating sync.Mutex // see Accumulating
}

// extended returns the rare fields and allocates them if necessary.
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

// PlaceShared reports whether anything other than t may refer to its place in the graph: an alias, or a node whose gradients flow there. If
// nothing does, the place and its hooks end with t.
func (t *Tensor) PlaceShared() bool {
	t = t.here()
	meta := t.autograd.Load()
	if meta == nil || t.view.Load() != nil || meta.refs.load() > 1 {
		return true
	}
	if r := meta.rare.Load(); r != nil && r.standIn != nil {
		return true
	}
	meta.mu.Lock()
	defer meta.mu.Unlock()
	return meta.rebased > 0 || meta.node != nil && meta.node.refs.load() > 1
}

// At returns a tensor over t's memory with the place in the graph that meta describes.
func (t *Tensor) At(meta *AutogradMeta) *Tensor {
	if p := t.Parts(); p != nil {
		return p.With(p.Local().At(meta))
	}
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
	meta.putGrad(nil)
	meta.clearTangents()
	if leaf != nil {
		leaf.pre.clear()
		leaf.post.clear()
	}
	if accumulate != nil {
		accumulate.dropHooks()
	}
	if n != nil {
		if meta.retains {
			n.forgetGrad(meta)
		}
		n.Release()
	}
}

// EnsureAutogradMeta returns the tensor's metadata, and creates it if necessary.
func (t *Tensor) EnsureAutogradMeta() *AutogradMeta {
	t = t.here()
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

// IsLeaf reports whether t was created by the user, not by a recorded operation.
func (t *Tensor) IsLeaf() bool {
	meta := t.current()
	if meta == nil {
		return true
	}
	meta.mu.Lock()
	defer meta.mu.Unlock()
	return meta.node == nil
}

// SetRequiresGrad turns requires_grad of a leaf on or off. It returns t, or a tensor that carries an error if t is not a leaf or its dtype
// is neither floating-point nor complex.
func (t *Tensor) SetRequiresGrad(on bool) *Tensor {
	if p := t.Parts(); p != nil {
		if err := p.Local().SetRequiresGrad(on).Err(); err != nil {
			return ErrorTensor(err)
		}
		return t
	}
	if err := t.Usable("requires_grad"); err != nil {
		return ErrorTensor(err)
	}
	if on && (!t.dtype.Differentiable() || t.isNumber) {
		return ErrorTensor(Errorf(DTypeError, "requires_grad", "only tensors of a floating-point or complex dtype can require gradients, got %v", t))
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

// Accumulating runs fn, which adds to the gradient, under a lock that excludes other backward passes. The lock belongs to this tensor
// alone: fn may wait until a queue has space, and therefore for another rank, and that rank must not need the same lock.
func (meta *AutogradMeta) Accumulating(fn func() error) error {
	mu := &meta.extended().accumulating
	Lock(mu)
	defer mu.Unlock()
	return fn()
}

// Shape returns the shape of the tensor.
func (meta *AutogradMeta) Shape() []int { return meta.shape }

// AutogradMeta returns the tensor's place in the graph, or nil if it has none.
func (t *Tensor) AutogradMeta() *AutogradMeta { return t.current() }

// Detach returns a view of t without its autograd metadata.
func (t *Tensor) Detach() *Tensor { return t.Alias(false) }

// Data returns a tensor on the same storage without the graph, as Detach does, which counts changes in place by itself: what was saved
// from t does not notice those made through the result or its views.
func (t *Tensor) Data() *Tensor {
	d := t.Alias(false)
	if d != t && d.storage != nil {
		d.changes = new(atomic.Uint32)
	}
	return d
}

// Changes returns how often the contents were changed in place, as far as the tensor's family counts it.
func (t *Tensor) Changes() uint32 {
	if t.changes != nil {
		return t.changes.Load()
	}
	return t.storage.version.Load() - t.storage.unseen.Load()
}

// Change records a change in place through the tensor.
func (t *Tensor) Change() {
	if t.changes != nil {
		t.changes.Add(1)
		t.storage.unseen.Add(1)
	}
	t.storage.BumpVersion()
}

// SeeAs makes t, a view of u that is not used yet, count changes as u does.
func (t *Tensor) SeeAs(u *Tensor) { t.changes = u.changes }

// Rebase makes output index of n the place in the graph, after an in-place operation.
func (meta *AutogradMeta) Rebase(n *Node, index int) {
	n.retain()
	meta.mu.Lock()
	old := meta.node
	meta.node, meta.index = n, index
	meta.wanted.store(true)
	meta.rebased++
	if meta.retains {
		old.forgetGrad(meta)
		n.keepGrad(meta)
	}
	meta.mu.Unlock()
	if old != nil {
		old.Release()
	}
}

// Wanted reports whether the tensor requires a gradient.
func (meta *AutogradMeta) Wanted() bool { return meta.wanted.load() }

// Guard makes in-place operations on the tensor and its views an error while gradients are recorded.
func (meta *AutogradMeta) Guard() { meta.guarded = true }

// Guarded returns the node and the output index if [AutogradMeta.Guard] was called, else nil.
func (meta *AutogradMeta) Guarded() (*Node, int) {
	if !meta.guarded {
		return nil, 0
	}
	meta.mu.Lock()
	defer meta.mu.Unlock()
	return meta.node, meta.index
}

// NeedsGradLeaf reports whether the tensor is a leaf that accumulates a gradient.
func (meta *AutogradMeta) NeedsGradLeaf() bool {
	meta.mu.Lock()
	defer meta.mu.Unlock()
	return meta.node == nil && meta.requires
}

// Edge returns the edge along which the gradient flows, with a reference of its own. It leads to the node that computed the value, or to
// the node that accumulates the leaf's gradient. It is empty if no gradient is required.
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

// newAccumulate returns the node that accumulates the gradient of a leaf.
func newAccumulate(leaf *AutogradMeta) *Node {
	n := &Node{ID: nodeIDs.Add(1), Name: "accumulate_grad", leaf: leaf}
	n.DeclareOutput(0, leaf.dtype, leaf.shape)
	return n
}
