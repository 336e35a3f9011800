package bind

import (
	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
)

// A lifetime is saved by a node of the caller's: when the node goes, so does the caller's value.
type lifetime struct{ key int64 }

// Release says that the node has gone.
func (l *lifetime) Release() { drop(l.key) }

// NodeNew returns a node whose derivative is the caller's function with the given key: a backward pass asks for the
// gradients of the n inputs, 0 for those that are no tensors, of which one at least requires a gradient. [Dropped] returns
// key when the node has gone. Attach its outputs with [NodeAttach], and release it. Of distributed tensors the node has this rank's parts, and
// their gradients.
func NodeNew(name string, key int64, inputs Tensors, n int64) (status Object) {
	defer protect(name, &status)
	list := tensors(inputs, n)
	var some *core.Tensor
	for i, t := range list {
		if t == nil {
			continue
		}
		if t.IsSparse() {
			if t.RequiresGrad() {
				return failf(core.NotImplemented, name, "a sparse input that requires a gradient: pass its values, and make the sparse tensor inside")
			}
			list[i] = nil
			continue
		}
		t = onRank(t)
		list[i] = t
		if err := t.Usable(name); err != nil {
			return failure(err)
		}
		if !t.IsNumber() && t.RequiresGrad() {
			some = t
		}
	}
	if some == nil {
		return failf(core.StateError, name, "no input requires a gradient")
	}
	var node *core.Node
	hooks := &core.SavedHooks{
		Pack:   func(*core.Tensor) any { return &lifetime{key} },
		Unpack: func(any) *core.Tensor { return nil },
	}
	core.WithSavedHooks(hooks, func() {
		node = core.NewNode(core.CurrentMode(), name, nil, list...)
		node.External = uint64(key)
		node.Save(some)
	})
	return handle.AddObject(node)
}

// How an output of a caller's node came to be.
const (
	outputMade    = iota // by the function itself
	outputShares         // it has the memory of another tensor, which an operation in place on it would change behind the node's back
	outputChanged        // it is an input that the function has changed in place
)

// NodeAttach makes t output index of a node, of which gradients come if differentiable says so. how is 0 for a tensor that
// the function made, 1 for one with the memory of an input, which operations in place then refuse, and 2 for an input that
// was changed in place.
func NodeAttach(node Object, t Tensor, index int64, differentiable bool, how int64) (status Status) {
	defer protect("function", &status)
	n, ok := handle.Object[*core.Node](node)
	if !ok {
		return failf(core.TypeError, "function", "%d is not the handle of a node", node)
	}
	v := onRank(tensor(t))
	if err := v.Usable(n.Name); err != nil {
		return failure(err)
	}
	base, _, _, _, _ := v.Base()
	if how == outputChanged && base != nil && base.Wanted() {
		return failf(core.NotImplemented, n.Name, "it changes a view of another tensor that requires a gradient in place; clone the view first")
	}
	n.DeclareOutput(int(index), v.DType(), v.Shape())
	switch {
	case !differentiable:
	case how == outputChanged:
		v.EnsureAutogradMeta().Rebase(n, int(index))
	default:
		n.Attach(v, int(index))
		if how == outputShares || base != nil {
			v.AutogradMeta().Guard()
		}
	}
	return 0
}

// BackwardOutput returns a tensor with the memory of t that is output index of the node which a pass stands at.
func BackwardOutput(h Object, t Tensor, index int64) (status Tensor) {
	defer protect("backward", &status)
	p, ok := handle.Object[*pass](h)
	if !ok || p.request == nil {
		return failf(core.StateError, "backward", "nothing was asked for")
	}
	out := tensor(t).Alias(false)
	if err := out.Err(); err != nil {
		return failure(err)
	}
	p.request.Node.Attach(onRank(out), int(index))
	return handle.Tensors.Add(out)
}

// BackwardMode returns the mode in which to do what a pass asks for, for [ModeSet].
func BackwardMode(h Object) int64 {
	if p, ok := handle.Object[*pass](h); ok && p.request != nil {
		return int64(p.request.Mode)
	}
	return ModeGet()
}
