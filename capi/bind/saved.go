package bind

import (
	"slices"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	dtensor "github.com/plait-ml/plait/parallel/tensor"
)

// savedHooks are hooks of the caller's on what nodes save.
type savedHooks struct {
	foreign *core.ExternalSaver
	context *core.Context
}

// packing is the status of a function that did its work, whose nodes saved values that the caller is to pack.
type packing struct {
	of     *core.ExternalSaver
	status int64 // what the function returns
	value  *core.ExternalValue
}

func (*packing) Error() string { return "saved values wait to be packed" }

// packingKind is the kind of a packing among those of errors.
const packingKind = 100

// packed returns status, or, if values wait to be packed, one that says so.
func packed(status int64) int64 {
	if !core.ExternalWaiting() {
		return status
	}
	return handle.AddError(&packing{of: core.CurrentContext().SavedHooks().External, status: status})
}

// SavedHooksPush makes what nodes recorded by the calling thread save go through the caller: a function of which a node
// saved values returns a negative status of kind 100, for [PackNext], and a backward pass asks for the values; see
// [BackwardStep]. [Dropped] returns the keys of values that nobody needs any more. It is ended by [SavedHooksPop].
func SavedHooksPush() (status Object) {
	defer protect("saved_tensors_hooks", &status)
	f := &core.ExternalSaver{Drop: func(key uint64) { drop(int64(key)) }}
	h := &savedHooks{foreign: f, context: core.CurrentContext().Hooked(f.Hooks())}
	core.SwapMode(core.CurrentMode().WithContext(h.context))
	return handle.AddObject(h)
}

// SavedHooksPop ends what [SavedHooksPush] began, on the same thread, and the handle's life.
func SavedHooksPop(h Object) (status Status) {
	defer protect("saved_tensors_hooks", &status)
	v, ok := handle.Object[*savedHooks](h)
	if !ok || core.CurrentContext() != v.context {
		return failf(core.StateError, "saved_tensors_hooks", "ended in another order, or on another thread, than begun")
	}
	handle.Objects.Take(h)
	v.foreign.Forget()
	core.SwapMode(core.CurrentMode().WithContext(v.context.Unhook()))
	return 0
}

func packingOf(status Status) (*packing, Status) {
	if p, ok := handle.Error(status).(*packing); ok {
		return p, 0
	}
	return nil, failf(core.TypeError, "saved_tensors_hooks", "%d is not the status of a function that saved values", status)
}

// PackNext returns a tensor over the next value to pack of those that a status of kind 100 speaks of, or 0 after the last.
// Call [PackDone] for it, and [PackEnd] after the last.
func PackNext(status Status) (t Tensor) {
	defer protect("saved_tensors_hooks", &t)
	p, failed := packingOf(status)
	if p == nil {
		return failed
	}
	for p.value = p.of.Next(); p.value != nil; p.value = p.of.Next() {
		if v := p.value.Value(); v != nil { // else its node has gone
			if err := v.Err(); err != nil {
				return failure(err)
			}
			return handle.Tensors.Add(v)
		}
	}
	return 0
}

// PackDone makes key stand for the value that [PackNext] returned; its node lets go of it.
func PackDone(status Status, key int64) Status {
	p, failed := packingOf(status)
	if p == nil {
		return failed
	}
	if p.value == nil {
		return failf(core.StateError, "saved_tensors_hooks", "there is no value to pack")
	}
	p.value.Packed(uint64(key))
	p.value = nil
	return 0
}

// PackEnd frees a status of kind 100 and returns the function's own. Values that were not packed stay with their nodes.
func PackEnd(status Status) int64 {
	p, failed := packingOf(status)
	if p == nil {
		return failed
	}
	handle.TakeError(status)
	p.of.Forget()
	return p.status
}

// autogradMeta is a tensor's place in the graph without its value. It holds the tensor's node.
type autogradMeta struct {
	meta       *core.AutogradMeta // nil if it has none
	placements []core.Placement   // of a distributed tensor, of whose part on this rank it is
}

func (m *autogradMeta) Close() {
	if m.meta != nil {
		m.meta.Release()
	}
}

// AutogradMetaOf returns the place of a tensor in the graph, and how it lies if it is distributed, to be given to [AutogradMetaRestore] and
// released; 0 if it has neither.
func AutogradMetaOf(t Tensor) (status Object) {
	defer protect("saved_tensors_hooks", &status)
	v := tensor(t)
	local := onRank(v)
	if err := local.Usable("saved_tensors_hooks"); err != nil {
		return failure(err)
	}
	meta := local.AutogradMeta()
	placements := dtensor.Placements(v)
	if meta == nil && placements == nil {
		return 0
	}
	if meta != nil {
		meta.Retain()
	}
	return handle.AddObject(&autogradMeta{meta, placements})
}

// AutogradMetaRestore returns a tensor over the memory of t at a place in the graph. It moves a distributed one that lies otherwise.
func AutogradMetaRestore(t Tensor, h Object) (status Tensor) {
	defer protect("saved_tensors_hooks", &status)
	v, ok := handle.Object[*autogradMeta](h)
	if !ok {
		return failf(core.TypeError, "saved_tensors_hooks", "%d is not the handle of a place in the graph", h)
	}
	x := tensor(t)
	placements := dtensor.Placements(x)
	switch {
	case x.Err() == nil && (placements == nil) != (v.placements == nil):
		return failf(core.TypeError, "saved_tensors_hooks", "unpack_hook returned %v; only for a distributed tensor that was saved it returns one", x)
	case v.placements == nil || x.Err() != nil:
		return result(x.At(v.meta))
	case !slices.Equal(placements, v.placements):
		x = dtensor.Redistribute(x, v.placements)
		if x.Err() != nil {
			return result(x)
		}
	}
	if v.meta == nil {
		return result(x.Detach())
	}
	return result(x.Parts().With(onRank(x).At(v.meta)))
}
