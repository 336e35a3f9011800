package bind

import (
	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
)

// held is a reference to a node.
type held struct{ *core.Node }

func hold(n *core.Node) Object {
	if n == nil {
		return 0
	}
	return handle.AddObject(held{n})
}

func node(h Object) *core.Node {
	v, _ := handle.Object[held](h)
	return v.Node
}

// GradNode returns the node that made the tensor, to be released; 0 for a leaf.
func GradNode(t Tensor) Object {
	v := tensor(t)
	if err := v.Present("grad_fn"); err != nil {
		return failure(err)
	}
	e := v.AutogradMeta().Edge()
	if e.Node != nil && e.Node.Leaf() != nil {
		e.Node.Release()
		return 0
	}
	return hold(e.Node)
}

// GradEdge returns the node to which the gradient of the tensor flows, which for a leaf is the one that accumulates it; 0 if
// it requires none. Release it. [GradIndex] returns which of the node's outputs the tensor is.
func GradEdge(t Tensor) Object {
	v := tensor(t)
	if err := v.Present("grad_fn"); err != nil {
		return failure(err)
	}
	return hold(v.AutogradMeta().Edge().Node)
}

// GradIndex returns which of the results of its operation the tensor is.
func GradIndex(t Tensor) int64 {
	v := tensor(t)
	if err := v.Present("output_nr"); err != nil {
		return failure(err)
	}
	e := v.AutogradMeta().Edge()
	if e.Node != nil {
		e.Node.Release()
	}
	return int64(e.Index)
}

// EdgeTensor returns a tensor without elements of its own that stands for output index of a node in the functions that
// begin backward passes.
func EdgeTensor(h Object, index int64) (status Tensor) {
	defer protect("gradient_edge", &status)
	n := node(h)
	if n == nil || index < 0 || index >= int64(n.Outputs()) {
		return failf(core.ValueError, "gradient_edge", "there is no output %d of such a node", index)
	}
	t, err := n.Placeholder(int(index))
	if err != nil {
		return failure(err)
	}
	return handle.Tensors.Add(t)
}

// NodeName returns the name of the operation that a node records.
func NodeName(h Object) string {
	if n := node(h); n != nil {
		return n.Name
	}
	return ""
}

// NodeID returns a number that no other node has.
func NodeID(h Object) int64 {
	if n := node(h); n != nil {
		return int64(n.ID)
	}
	return 0
}

// NodeKey returns the key of the function that is the node's derivative, as [NodeNew] got it, or 0.
func NodeKey(h Object) int64 {
	if n := node(h); n != nil {
		return int64(n.External)
	}
	return 0
}

// NodeEdges returns how many inputs the node has.
func NodeEdges(h Object) int64 {
	if n := node(h); n != nil {
		return int64(len(n.Edges()))
	}
	return 0
}

// NodeEdge returns the node that made input i of a node, to be released; 0 if no gradient flows there.
func NodeEdge(h Object, i int64) Object {
	n := node(h)
	if n == nil || i < 0 || i >= int64(len(n.Edges())) || n.Edges()[i].Node == nil {
		return 0
	}
	next := n.Edges()[i].Node
	next.Retain()
	return hold(next)
}

// NodeEdgeIndex returns which output of the node that made it input i is.
func NodeEdgeIndex(h Object, i int64) int64 {
	if n := node(h); n != nil && i >= 0 && i < int64(len(n.Edges())) {
		return int64(n.Edges()[i].Index)
	}
	return 0
}

// NodeOwn ties a value of the caller's to a node: [Dropped] returns its key when the node has gone.
func NodeOwn(h Object, key int64) Status {
	n := node(h)
	if n == nil {
		return failf(core.TypeError, "node", "%d is not the handle of a node", h)
	}
	n.Own(&lifetime{key})
	return 0
}

// NodeHookAdd makes backward call the function with the given key before a node, on the gradients of its outputs, or after
// it, on those of its inputs; see [BackwardStep].
func NodeHookAdd(h Object, key int64, after bool) Object {
	n := node(h)
	if n == nil {
		return failf(core.TypeError, "register_hook", "%d is not the handle of a node", h)
	}
	list := n.PreHooks()
	if after {
		list = n.PostHooks()
	}
	return handle.AddObject(&hook{list.Add(core.NodeHook{External: uint64(key), Drop: func() { drop(key) }})})
}

// BackwardRuns returns 1 if a pass comes to a node, or has, else 0.
func BackwardRuns(h Object, n Object) int64 {
	p, ok := handle.Object[*pass](h)
	v := node(n)
	return truth(ok && v != nil && p.run.Visits(v))
}

// BackwardAfterCount returns how many gradients of outputs a hook that runs after a node gets.
func BackwardAfterCount(h Object) int64 {
	if p, ok := handle.Object[*pass](h); ok && p.request != nil {
		return int64(len(p.request.After))
	}
	return 0
}

// BackwardAfter writes the handles of the gradients of outputs that a hook which runs after a node gets to out, 0 for absent
// ones. They are the caller's.
func BackwardAfter(h Object, out TensorsOut) (status Status) {
	defer protect("backward", &status)
	p, ok := handle.Object[*pass](h)
	if !ok || p.request == nil {
		return failf(core.StateError, "backward", "nothing was asked for")
	}
	return p.give(p.request.After, out)
}
