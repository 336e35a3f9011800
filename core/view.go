package core

import (
	"sync"
	"sync/atomic"
)

// viewOf describes the base of a view, so that in-place operations through either are visible through the other.
type viewOf struct {
	base        *AutogradMeta
	baseDType   DType
	baseShape   []int
	baseStrides []int
	baseOffset  int
	rebased     uint32     // atomic: base.rebased when the view's metadata was created
	mu          sync.Mutex // held while the metadata is created again
}

func (v *viewOf) clone() *viewOf {
	return &viewOf{base: v.base, baseDType: v.baseDType, baseShape: v.baseShape, baseStrides: v.baseStrides, baseOffset: v.baseOffset,
		rebased: v.rebasedAt()}
}

// rebasedAt returns base.rebased at the time when the view's metadata was created.
func (v *viewOf) rebasedAt() uint32 { return atomic.LoadUint32(&v.rebased) }

// current returns the metadata of t. If t is a view whose base was changed in place, it brings the metadata up to date first.
func (t *Tensor) current() *AutogradMeta {
	t = t.here()
	v := t.view.Load()
	if v == nil {
		return t.autograd.Load()
	}
	if !v.stale() {
		return t.autograd.Load()
	}
	// Several threads may find the view stale; one of them creates the new metadata.
	v.mu.Lock()
	defer v.mu.Unlock()
	v.base.mu.Lock()
	node, index, rebased := v.base.node, v.base.index, v.base.rebased
	if node == nil || rebased == v.rebasedAt() {
		v.base.mu.Unlock()
		return t.autograd.Load()
	}
	node.retain()
	v.base.mu.Unlock()
	// The base was changed, so the view's value is now a part of the base's new value.
	n := viewNode(node, index, v.baseDType, v.baseShape, v.baseStrides, v.baseOffset, t)
	node.Release()
	fresh := &AutogradMeta{dtype: t.dtype, shape: t.shape, node: n}
	fresh.refs.set(1)
	fresh.wanted.set(true)
	n.DeclareOutput(0, t.dtype, t.shape)
	meta := t.autograd.Swap(fresh)
	atomic.StoreUint32(&v.rebased, rebased)
	if meta != nil {
		meta.mu.Lock()
		if meta.retains {
			fresh.retains, fresh.grad = true, meta.grad
			meta.grad = nil
			n.keepGrad(fresh)
		}
		meta.mu.Unlock()
		meta.release()
	}
	return fresh
}

// stale reports whether the base was changed in place since the view's metadata was created.
func (v *viewOf) stale() bool {
	v.base.mu.Lock()
	defer v.base.mu.Unlock()
	return v.base.node != nil && v.base.rebased != v.rebasedAt()
}

// A ViewNode creates the node that takes view out of output index of base.
type ViewNode func(base *Node, index int, dtype DType, shape, strides []int, offset int, view *Tensor) *Node

var viewNode ViewNode

// SetViewNode sets the function that creates those nodes. Package op calls it once, since their derivative is made of operations.
func SetViewNode(fn ViewNode) { viewNode = fn }

// MarkView records that t is a view of u, so that in-place operations through one are visible through the other.
func (t *Tensor) MarkView(u *Tensor) {
	if t.other != nil || u.other != nil || t == u {
		return
	}
	if w := u.view.Load(); w != nil {
		w.base.retain()
		v := w.clone()
		v.base.mu.Lock()
		v.rebased = v.base.rebased
		v.base.mu.Unlock()
		t.view.Store(v)
		return
	}
	b := u.EnsureAutogradMeta()
	b.retain()
	v := &viewOf{base: b, baseDType: u.dtype, baseShape: u.shape, baseStrides: u.strides, baseOffset: u.offset}
	b.mu.Lock()
	v.rebased = b.rebased
	b.mu.Unlock()
	t.view.Store(v)
}

// viewRecording says whether the graph would learn of an in-place operation on a view.
type viewRecording uint8

const (
	viewRecorded       viewRecording = iota
	viewUnrecorded                   // the view was taken while no gradients were recorded
	viewUnrecordedGrad               // and from a tensor that requires a gradient
)

// MarkUnrecorded records that t is a view of u that was taken while no gradients were recorded, or a view of such a view: the graph
// would not learn of in-place operations on it. The output of a custom function is attached to a node and is no such view.
func (t *Tensor) MarkUnrecorded(u *Tensor) {
	t.recording = max(u.recording, viewUnrecorded)
	if u.RequiresGrad() {
		t.recording = viewUnrecordedGrad
	}
}

// Unrecorded reports whether an in-place operation on t would be missing in the graph, because of how [Tensor.MarkUnrecorded] marked
// it. wanted says whether the operation itself is to be recorded.
func (t *Tensor) Unrecorded(wanted bool) bool {
	return t.recording == viewUnrecordedGrad || wanted && t.recording != viewRecorded
}

// Base returns the metadata and layout of the tensor that t is a view of, or nil.
func (t *Tensor) Base() (meta *AutogradMeta, dtype DType, shape, strides []int, offset int) {
	v := t.view.Load()
	if v == nil {
		return nil, 0, nil, nil, 0
	}
	return v.base, v.baseDType, v.baseShape, v.baseStrides, v.baseOffset
}
