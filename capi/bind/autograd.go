package bind

import (
	"sync"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/plait-ml/plait/parallel/fsdp"
)

// RequiresGrad returns 1 if gradients flow to the tensor, else 0.
func RequiresGrad(t Tensor) Status {
	v := tensor(t)
	if err := v.Present("requires_grad"); err != nil {
		return failure(err)
	}
	return truth(v.RequiresGrad())
}

// RequiresGradSet makes a leaf collect its gradient, or not.
func RequiresGradSet(t Tensor, on bool) (status Status) {
	defer protect("requires_grad_", &status)
	return changed(tensor(t).SetRequiresGrad(on))
}

// IsLeaf returns 1 if no recorded operation made the tensor, else 0.
func IsLeaf(t Tensor) Status {
	v := tensor(t)
	if err := v.Present("is_leaf"); err != nil {
		return failure(err)
	}
	return truth(v.IsLeaf())
}

// RetainGrad makes the tensor, the result of an operation, keep its gradient.
func RetainGrad(t Tensor) Status {
	v := tensor(t)
	if err := v.Present("retain_grad"); err != nil {
		return failure(err)
	}
	if !v.RequiresGrad() {
		return failf(core.StateError, "retain_grad", "the tensor does not require a gradient")
	}
	v.RetainGrad()
	return 0
}

// GradGet returns the gradient that the tensor has collected, or 0.
func GradGet(t Tensor) (status Tensor) {
	defer protect("grad", &status)
	v := tensor(t)
	if err := v.Present("grad"); err != nil {
		return failure(err)
	}
	g, lender := v.BorrowGrad()
	defer lender.ReturnGrad()
	if g == nil {
		return 0
	}
	if v.Parts() != nil { // made for the caller
		return result(g)
	}
	return result(g.Alias(true))
}

// GradReplace sets the gradient of the tensor; 0 drops it.
func GradReplace(t Tensor, grad Tensor) (status Status) {
	defer protect("grad", &status)
	v := tensor(t)
	if err := v.Present("grad"); err != nil {
		return failure(err)
	}
	if grad == 0 {
		v.DropGrad()
		return 0
	}
	g, err := v.LocalGrad(tensor(grad))
	if err != nil {
		return failure(err)
	}
	g = g.Alias(true)
	if err := g.Err(); err != nil {
		return failure(err)
	}
	v.EnsureAutogradMeta().SetGrad(g)
	return 0
}

// RetainsGrad returns 1 if the tensor, the result of an operation, keeps its gradient, else 0.
func RetainsGrad(t Tensor) Status {
	v := tensor(t)
	if err := v.Present("retains_grad"); err != nil {
		return failure(err)
	}
	return truth(v.RetainsGrad())
}

// A pass is a backward pass on its way, and what it has asked its caller for.
type pass struct {
	run      *autograd.Run
	request  *autograd.Request
	borrowed bool // somebody else ends it
	stepping sync.Mutex
}

func (p *pass) Close() {
	if !p.borrowed {
		p.run.Close()
	}
}

// BackwardNew prepares a backward pass from n outputs. grads are their gradients, 0 for ones; the address 0 means all
// ones. inputs, of inputsLen, restricts it to these tensors; an inputsLen of -1 means every leaf. Run it with
// [BackwardStep], and release it.
func BackwardNew(outputs Tensors, grads Tensors, n int64, inputs Tensors, inputsLen int64, retainGraph bool, createGraph bool) (status Object) {
	defer protect("backward", &status)
	o := autograd.Options{RetainGraph: retainGraph || createGraph, CreateGraph: createGraph}
	if inputsLen >= 0 {
		o.Inputs = tensors(inputs, inputsLen)
	}
	r, err := autograd.NewRun(tensors(outputs, n), gradients(grads, n), o)
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(&pass{run: r})
}

// BackwardGradNew prepares a pass that returns the gradients of the inputs, with [BackwardTake], and leaves those of the
// leaves alone; see [BackwardNew].
func BackwardGradNew(outputs Tensors, grads Tensors, n int64, inputs Tensors, inputsLen int64, retainGraph bool, createGraph bool, allowUnused bool) (status Object) {
	defer protect("grad", &status)
	o := autograd.Options{RetainGraph: retainGraph || createGraph, CreateGraph: createGraph, AllowUnused: allowUnused}
	r, err := autograd.NewGradRun(tensors(outputs, n), tensors(inputs, inputsLen), gradients(grads, n), o)
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(&pass{run: r})
}

// ReachesOthers returns 1 if gradients of n outputs flow to leaves by other ways than through the inputs, of inputsLen, else 0.
func ReachesOthers(outputs Tensors, n int64, inputs Tensors, inputsLen int64) (status Status) {
	defer protect("grad", &status)
	return truth(autograd.ReachesOthers(tensors(outputs, n), tensors(inputs, inputsLen)))
}

func gradients(a Tensors, n int64) []*core.Tensor {
	if a == 0 {
		return nil
	}
	return tensors(a, n)
}

// BackwardStep goes on with a pass. It returns 0 when the pass has ended, and otherwise 1 more than what it wants of the
// caller: 1 the gradients of a node's inputs, 2 the answer of a hook on one gradient, 3 that of a hook before a node, 4
// nothing but that a hook after a leaf's accumulation runs, 5 what the function makes of the bucket of [BackwardBucket], 6 the
// answer of a hook after a node, 7 the values with the keys
// that [PackDone] got. [BackwardKey] and [BackwardGrads] say of which function and on what, [BackwardAfter] what else a hook
// after a node gets, and [BackwardSaved] which values; [BackwardAnswer] gives the answer. It returns [Busy] about every
// twentieth of a second, and where it would wait for room in a queue: call it again.
//
//plait:waits
func BackwardStep(h Object) (status Status) {
	defer protect("backward", &status)
	p, ok := handle.Object[*pass](h)
	if !ok {
		return failf(core.TypeError, "backward", "%d is not the handle of a pass", h)
	}
	if !p.stepping.TryLock() {
		return failf(core.StateError, "backward", "another thread is running this pass")
	}
	defer p.stepping.Unlock()
	q, more, err := p.run.StepFor(slice)
	if err != nil {
		return failure(err)
	}
	if more {
		return Busy
	}
	p.request = q
	if q == nil {
		return packed(0)
	}
	return packed(int64(q.What) + 1)
}

// BackwardFail says why the caller gives a pass up, before it releases it: memory says that memory was lacking. Other ranks are told.
func BackwardFail(h Object, why string, memory bool) (status Status) {
	defer protect("backward", &status)
	p, ok := handle.Object[*pass](h)
	if !ok {
		return failf(core.TypeError, "backward", "%d is not the handle of a pass", h)
	}
	kind := core.StateError
	if memory {
		kind = core.MemoryError
	}
	p.run.Fail(core.Errorf(kind, "backward", "%s", why))
	return 0
}

// BackwardKey returns the key of the function that a pass asks for.
func BackwardKey(h Object) int64 {
	if p, ok := handle.Object[*pass](h); ok && p.request != nil {
		return int64(p.request.ID)
	}
	return 0
}

// BackwardSavedCount returns how many saved values a pass asks for.
func BackwardSavedCount(h Object) int64 {
	if p, ok := handle.Object[*pass](h); ok && p.request != nil {
		return int64(len(p.request.IDs))
	}
	return 0
}

// BackwardSaved writes the keys of the saved values that a pass asks for to keys.
func BackwardSaved(h Object, keys IntsOut) Status {
	p, ok := handle.Object[*pass](h)
	if !ok || p.request == nil {
		return failf(core.StateError, "backward", "nothing was asked for")
	}
	to := handle.Slice[int64](keys, int64(len(p.request.IDs)))
	for i, id := range p.request.IDs {
		to[i] = int64(id)
	}
	return 0
}

// BackwardGradCount returns how many gradients the function gets.
func BackwardGradCount(h Object) int64 {
	if p, ok := handle.Object[*pass](h); ok && p.request != nil {
		return int64(len(p.request.Grads))
	}
	return 0
}

// BackwardGrads writes the handles of the gradients that the function gets to out, 0 for absent ones. They are the
// caller's.
func BackwardGrads(h Object, out TensorsOut) (status Status) {
	defer protect("backward", &status)
	p, ok := handle.Object[*pass](h)
	if !ok || p.request == nil {
		return failf(core.StateError, "backward", "nothing was asked for")
	}
	return p.give(p.request.Grads, out)
}

// give writes new handles of gradients to out.
func (p *pass) give(grads []*core.Tensor, out TensorsOut) Status {
	to := handle.Slice[int64](out, int64(len(grads)))
	for i, g := range grads {
		to[i] = 0
		if g == nil {
			continue
		}
		a := g.Alias(true)
		if err := a.Err(); err != nil {
			return failure(err)
		}
		to[i] = handle.Tensors.Add(a)
	}
	return 0
}

// BackwardAnswer gives a pass the gradients that it asked for, 0 for absent ones; n 0 keeps those it has.
func BackwardAnswer(h Object, grads Tensors, n int64) (status Status) {
	defer protect("backward", &status)
	p, ok := handle.Object[*pass](h)
	if !ok {
		return failf(core.TypeError, "backward", "%d is not the handle of a pass", h)
	}
	answer := answers(grads, n)
	for _, g := range answer {
		if g != nil && g.Err() != nil {
			return failure(g.Err())
		}
	}
	p.request = nil
	return failure(p.run.Resume(answer))
}

// answers returns tensors of the caller's as the engine's own.
func answers(a Tensors, n int64) (list []*core.Tensor) {
	for _, t := range tensors(a, n) {
		if t != nil {
			t = t.Alias(true).Keep()
		}
		list = append(list, t)
	}
	return list
}

// BackwardBucket returns the gradients that a pass asks to be reduced: a bucket, or what [FsdpReduction] takes.
func BackwardBucket(h Object) Object {
	if p, ok := handle.Object[*pass](h); ok && p.request != nil {
		switch b := p.request.Payload.(type) {
		case *ddp.Bucket:
			return handle.AddObject(b)
		case *fsdp.Reduction:
			return handle.AddObject(b)
		}
	}
	return failf(core.StateError, "backward", "no bucket was asked for")
}

// BackwardTake writes the handles of the gradients of a pass made by [BackwardGradNew] to out, 0 for inputs that the
// outputs do not depend on.
func BackwardTake(h Object, out TensorsOut) (status Status) {
	defer protect("grad", &status)
	p, ok := handle.Object[*pass](h)
	if !ok {
		return failf(core.TypeError, "grad", "%d is not the handle of a pass", h)
	}
	grads, err := p.run.Captured()
	if err != nil {
		return failure(err)
	}
	for _, g := range grads {
		if g != nil && g.Err() != nil {
			return failure(g.Err())
		}
	}
	to := handle.Slice[int64](out, int64(len(grads)))
	for i, g := range grads {
		to[i] = 0
		if g != nil {
			to[i] = handle.Tensors.Add(g)
		}
	}
	return 0
}

// A hook is a function of the caller's that a tensor knows, until it is removed.
type hook struct{ remove func() }

// hookable returns an error for a tensor that a vmap has batched: a hook would get the gradients of all parts as one.
func hookable(name string, t *core.Tensor) error {
	if p := t.Parts(); p != nil && p.Depth() > 0 {
		return t.Usable(name)
	}
	return t.Present(name)
}

// HookAdd makes backward call the function with the given key on the gradient of the tensor; see [BackwardStep].
func HookAdd(t Tensor, key int64) (status Object) {
	defer protect("register_hook", &status)
	v := tensor(t)
	if err := hookable("register_hook", v); err != nil {
		return failure(err)
	}
	hooks := v.TensorHooks()
	if hooks == nil {
		return failf(core.StateError, "register_hook", "the tensor does not require a gradient")
	}
	return handle.AddObject(&hook{hooks.Add(core.Hook{External: uint64(key), Drop: func() { drop(key) }})})
}

// HookAddPost makes backward call the function with the given key once the gradient of a leaf is final.
func HookAddPost(t Tensor, key int64) (status Object) {
	defer protect("register_post_accumulate_grad_hook", &status)
	v := tensor(t)
	if err := hookable("register_post_accumulate_grad_hook", v); err != nil {
		return failure(err)
	}
	return handle.AddObject(&hook{v.PostAccumulateHooks().Add(core.Hook{External: uint64(key), Drop: func() { drop(key) }})})
}

// HooksOutlive returns 1 if hooks that were registered on a tensor may be called after it was released, because others know its place
// in the graph, and 0 if they go with it.
func HooksOutlive(t Tensor) Status {
	v := handle.Tensors.Get(t)
	return truth(v == nil || v.PlaceShared())
}

// HookRemove takes a hook away.
func HookRemove(h Object) Status {
	v, ok := handle.Object[*hook](h)
	if !ok {
		return failf(core.TypeError, "hook", "%d is not the handle of a hook", h)
	}
	handle.Objects.Take(h)
	v.remove()
	return 0
}
