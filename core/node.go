package core

import (
	"sync"
	"sync/atomic"
)

// A Deriv computes the gradients of a node's inputs from those of its outputs. See [BackwardContext].
type Deriv func(ctx *BackwardContext)

// A Node is one recorded operation. It knows the nodes that made its inputs, and what its derivative needs of their
// values. Nodes are counted: when no tensor and no other node needs one, it frees what it saved and lets go of its
// inputs.
type Node struct {
	ID   uint64 // unique in the process; later nodes have higher ids
	Name string // of the operation

	// Prompt makes backward run the node as soon as its gradients are there, before others: it starts work that goes on beside
	// theirs.
	Prompt bool

	// Ints, Floats and Any hold what else the derivative needs to know.
	Ints   []int
	Floats []float64
	Any    any

	// External names a derivative that belongs to another language: backward hands it to its caller.
	External uint64

	deriv   Deriv
	leaf    *AutogradMeta // of an accumulating node
	inner   *Node         // whose derivative this one's calls
	context *Context
	edges   []Edge
	metas   []valueMeta // of the inputs, then of the outputs but the first, which is autograd metadata's
	mu      sync.Mutex
	saved   []saved
	problem *error
	extra   *nodeExtra

	refs    atomicCount
	outputs int32
	freed   bool
	// externalSaved says that some of saved may be another language's.
	externalSaved bool

	edgeBuf  [2]Edge
	metaBuf  [2]valueMeta
	autograd AutogradMeta // of output 0, to save an allocation
}

// nodeExtra is what few nodes have.
type nodeExtra struct {
	trace  string // where the node was made, in anomaly mode
	before NodeHookList
	after  NodeHookList
	grads  map[int]*HookList // on the gradients of the outputs
	keep   []*AutogradMeta   // of outputs that keep their gradients; they take themselves out when they go
	owned  []interface{ Release() }
}

// An Edge leads to output Index of Node, which wants a gradient; the zero Edge to nothing.
type Edge struct {
	Node  *Node
	Index int
}

type valueMeta struct {
	dtype DType
	shape []int
}

var nodeIDs atomic.Uint64

func newNode(name string, deriv Deriv) *Node {
	n := &Node{ID: nodeIDs.Add(1), Name: name, deriv: deriv}
	n.refs.set(1)
	return n
}

// NewNode returns a node for an operation on inputs, with one reference that the caller gives up after attaching the
// outputs. Nil inputs are allowed.
func NewNode(m Mode, name string, deriv Deriv, inputs ...*Tensor) *Node {
	n := newNode(name, deriv)
	n.context = m.Context()
	n.edges, n.metas = n.edgeBuf[:0], n.metaBuf[:0]
	for _, t := range inputs {
		if t == nil {
			n.edges, n.metas = append(n.edges, Edge{}), append(n.metas, valueMeta{})
			continue
		}
		meta := t.current()
		if meta != nil {
			if err := meta.refused.Load(); err != nil {
				n.problem = err
			}
		}
		n.edges = append(n.edges, meta.Edge())
		n.metas = append(n.metas, valueMeta{t.dtype, t.shape})
	}
	if m.Anomaly() {
		n.extras().trace = stack()
	}
	return n
}

// NewNodeWithEdges returns a node like [NewNode] whose edges, with the references they hold, are given.
func NewNodeWithEdges(m Mode, name string, deriv Deriv, edges []Edge) *Node {
	n := newNode(name, deriv)
	n.context = m.Context()
	n.edges = edges
	n.metas = make([]valueMeta, len(edges))
	for i, e := range edges {
		if e.Node != nil && e.Index < e.Node.Outputs() {
			d, shape := e.Node.OutputMeta(e.Index)
			n.metas[i] = valueMeta{d, shape}
		}
	}
	return n
}

// Attach makes t output index of the node.
func (n *Node) Attach(t *Tensor, index int) {
	n.retain()
	n.AttachLast(t, index)
}

// AttachLast is [Node.Attach] for the last output: it also gives up the reference that [NewNode] returned.
func (n *Node) AttachLast(t *Tensor, index int) {
	n.DeclareOutput(index, t.dtype, t.shape)
	meta := &n.autograd
	if index > 0 || meta.node != nil {
		meta = new(AutogradMeta)
	}
	meta.node, meta.index, meta.dtype, meta.shape = n, index, t.dtype, t.shape
	meta.refs.set(1)
	meta.wanted.set(true)
	if old := t.autograd.Swap(meta); old != nil {
		old.release()
	}
}

// DeclareOutput tells the node what its output index looks like.
func (n *Node) DeclareOutput(index int, d DType, shape []int) {
	n.outputs = max(n.outputs, int32(index)+1)
	if index == 0 {
		n.autograd.dtype, n.autograd.shape = d, shape
		return
	}
	i := len(n.edges) + index - 1
	for len(n.metas) <= i {
		n.metas = append(n.metas, valueMeta{})
	}
	n.metas[i] = valueMeta{d, shape}
}

// Retain adds a reference.
func (n *Node) Retain() { n.retain() }

// The node that accumulates a leaf's gradient lives as long as the leaf's autograd metadata, and its references are references to
// that.
func (n *Node) retain() {
	if n.leaf != nil {
		n.leaf.retain()
		return
	}
	n.refs.inc()
}

// drop gives up a reference and reports whether it was the last one and the node is to be taken apart.
func (n *Node) drop() bool {
	if n.leaf != nil {
		n.leaf.release()
		return false
	}
	return n.refs.dec() == 0
}

// Release drops a reference. The last one frees what the node saved and drops its references to other nodes, without
// recursion: graphs may be a million nodes deep.
func (n *Node) Release() {
	if !n.drop() {
		return
	}
	work := []*Node{n}
	for len(work) > 0 {
		n := work[len(work)-1]
		work = work[:len(work)-1]
		n.FreeSaved()
		n.dropHooks()
		if n.inner != nil {
			n.inner.Release()
		}
		for i, e := range n.edges {
			if e.Node != nil && e.Node.drop() {
				work = append(work, e.Node)
			}
			n.edges[i] = Edge{}
		}
	}
}

// Edges returns where the gradients of the inputs go. The slice must not be changed.
func (n *Node) Edges() []Edge { return n.edges }

// Outputs returns the number of outputs.
func (n *Node) Outputs() int { return int(n.outputs) }

// OutputMeta returns dtype and shape of an output.
func (n *Node) OutputMeta(i int) (DType, []int) {
	if i == 0 {
		return n.autograd.dtype, n.autograd.shape
	}
	m := n.metas[len(n.edges)+i-1]
	return m.dtype, m.shape
}

// InputMeta returns dtype and shape of an input.
func (n *Node) InputMeta(i int) (DType, []int) { return n.metas[i].dtype, n.metas[i].shape }

// SetInputMeta sets dtype and shape of an input.
func (n *Node) SetInputMeta(i int, d DType, shape []int) { n.metas[i] = valueMeta{d, shape} }

// SetInner makes inner, whose derivative n's derivative calls, live as long as n.
func (n *Node) SetInner(inner *Node) {
	inner.retain()
	n.inner = inner
}

// TakeEdges moves the edges from number from on, with their references, out of the node.
func (n *Node) TakeEdges(from int) []Edge {
	taken := append([]Edge(nil), n.edges[from:]...)
	clear(n.edges[from:])
	return taken
}

// Leaf returns the autograd metadata of the leaf whose gradient the node accumulates, or nil.
func (n *Node) Leaf() *AutogradMeta { return n.leaf }

// Deriv returns the node's derivative; nil for an accumulating or foreign node.
func (n *Node) Deriv() Deriv { return n.deriv }

// Context returns the context in which the node was recorded, and its derivative runs.
func (n *Node) Context() *Context { return n.context }

// Trace returns where the node was recorded, in anomaly mode.
func (n *Node) Trace() string {
	if !n.HasHooks() {
		return ""
	}
	return n.extra.trace
}
