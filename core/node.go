package core

import (
	"sync"
	"sync/atomic"
)

// A Deriv computes the gradients of a node's inputs from the gradients of its outputs. See [BackwardContext].
type Deriv func(ctx *BackwardContext)

// A Node is one recorded operation. Its edges lead to the nodes of its inputs, and it saves the tensors that its derivative needs. Nodes
// are reference-counted: when no tensor and no other node refers to one, it frees its saved tensors and drops its edges.
type Node struct {
	ID   uint64 // unique in the process and increasing
	Name string // of the operation

	// Prompt makes backward run the node as soon as its gradients are ready, before other nodes, because it starts asynchronous work.
	Prompt bool

	// Ints, Floats and Any hold further arguments of the derivative.
	Ints   []int
	Floats []float64
	Any    any

	// External identifies a derivative of another language. Backward hands it to its caller.
	External uint64

	deriv   Deriv
	leaf    *AutogradMeta // of the accumulate_grad node of a leaf
	inner   *Node         // the node whose derivative this node's derivative calls
	context *Context
	edges   []Edge
	metas   []valueMeta // of the inputs, then of the outputs from 1 on; output 0's is in autograd
	mu      sync.Mutex
	saved   []saved
	problem *error
	extra   *nodeExtra

	refs    atomicCount
	outputs int32
	freed   bool
	// externalSaved says that some saved tensors may be packed by another language.
	externalSaved bool

	edgeBuf  [2]Edge
	metaBuf  [2]valueMeta
	autograd AutogradMeta // of output 0, to save an allocation
}

// nodeExtra holds the fields that few nodes need.
type nodeExtra struct {
	trace    string // stack where the node was recorded, in anomaly mode
	before   NodeHookList
	after    NodeHookList
	grads    map[int]*HookList // by output, on its gradient
	retained []*AutogradMeta   // outputs that retain their gradients; each removes itself when it is released
	owned    []interface{ Release() }
	tangents map[int]tangents // of outputs that are saved: see Node.ShareTangents
}

// An Edge leads to output Index of Node, which requires a gradient. The zero Edge leads nowhere.
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

// NewNode returns a node for an operation on inputs, with one reference that the caller drops after attaching the outputs. Inputs may be
// nil.
func NewNode(m Mode, name string, deriv Deriv, inputs ...*Tensor) *Node {
	n := newNode(name, deriv)
	n.context = m.Context()
	n.edges, n.metas = n.edgeBuf[:0], n.metaBuf[:0]
	for _, t := range inputs {
		if t == nil {
			n.edges, n.metas = append(n.edges, Edge{}), append(n.metas, valueMeta{})
			continue
		}
		n.edges = append(n.edges, t.current().Edge())
		n.metas = append(n.metas, valueMeta{t.dtype, t.shape})
	}
	if m.Anomaly() {
		n.extras().trace = stack()
	}
	return n
}

// NewNodeWithEdges is [NewNode] with the edges given. It takes over their references.
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

// AttachLast is [Node.Attach] for the last output: it also drops the reference that [NewNode] returned.
func (n *Node) AttachLast(t *Tensor, index int) {
	n.DeclareOutput(index, t.dtype, t.shape)
	meta := &n.autograd
	if index > 0 || meta.node != nil {
		meta = new(AutogradMeta)
	}
	meta.node, meta.index, meta.dtype, meta.shape = n, index, t.dtype, t.shape
	meta.refs.set(1)
	meta.wanted.set(true)
	t.recording = viewRecorded
	if old := t.autograd.Swap(meta); old != nil {
		old.release()
	}
}

// DeclareOutput records dtype and shape of an output.
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

// The accumulate_grad node lives as long as its leaf's metadata. Its references are references to that metadata.
func (n *Node) retain() {
	if n.leaf != nil {
		n.leaf.retain()
		return
	}
	n.refs.inc()
}

// drop drops a reference and reports whether it was the last one, so that the caller must destroy the node.
func (n *Node) drop() bool {
	if n.leaf != nil {
		n.leaf.release()
		return false
	}
	return n.refs.dec() == 0
}

// Release drops a reference. The last one frees saved tensors and edges. It uses a worklist instead of recursion, because graphs may be a
// million nodes deep.
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

// Edges returns the edges along which the gradients of the inputs flow. The slice must not be changed.
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

// SetInner makes inner live as long as n. n's derivative calls inner's.
func (n *Node) SetInner(inner *Node) {
	inner.retain()
	n.inner = inner
}

// TakeEdges moves the edges from index from on, with their references, out of the node.
func (n *Node) TakeEdges(from int) []Edge {
	taken := append([]Edge(nil), n.edges[from:]...)
	clear(n.edges[from:])
	return taken
}

// Leaf returns the leaf whose gradient the node accumulates, or nil.
func (n *Node) Leaf() *AutogradMeta { return n.leaf }

// Deriv returns the node's derivative; nil for an accumulate_grad or external node.
func (n *Node) Deriv() Deriv { return n.deriv }

// Context returns the context in which the node was recorded and in which its derivative runs.
func (n *Node) Context() *Context { return n.context }

// Trace returns the stack where the node was recorded, in anomaly mode.
func (n *Node) Trace() string {
	if !n.HasHooks() {
		return ""
	}
	return n.extra.trace
}
