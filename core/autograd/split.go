package autograd

import (
	"sync"

	"github.com/plait-ml/plait/core"
)

// Rest starts the second part of a pass with [Options.First]. The first part ends when [Run.Step] first returns nil. It runs derivatives
// only as far as the gradients of the First tensors need them. The second part runs the rest, perhaps much later; until then derivatives
// keep their saved tensors and output gradients. Some nodes are not split and run in the first part: those of another language, those with
// hooks on all input gradients, and those with saved-tensor hooks, such as a checkpoint's.
func (r *Run) Rest() {
	if !r.split {
		return
	}
	r.split = false
	for _, n := range r.deferred {
		r.enqueue(n)
	}
	r.deferred = nil
}

// FirstPart reports whether the pass has two parts and is in the first.
func (r *Run) FirstPart() bool { return r.split }

// SecondPart reports whether the pass has two parts and is in the second.
func (r *Run) SecondPart() bool { return r.options.First != nil && !r.split }

// QueuePartCallback makes fn run at the end of the first part of the current backward pass. If the pass is not split, or is in its second
// part, fn never runs.
func QueuePartCallback(fn func() error) error {
	r := CurrentRun()
	if r == nil {
		return core.Errorf(core.StateError, "queue_part_callback", "no backward pass is running on this thread")
	}
	if r.split {
		r.partCallbacks = append(r.partCallbacks, nonblocking(fn))
	}
	return nil
}

// RefillWith sets a function that refills storages emptied after the first part, when the second part needs them. fn gets the storage and
// the ID of the node whose derivative needs it, and reports whether it has refilled the storage.
func (r *Run) RefillWith(fn func(s *core.Storage, node uint64) (bool, error)) {
	if fn != nil {
		r.refillers = append(r.refillers, fn)
	}
}

// refillable maps emptied storages to the functions of [RefillAlways].
var refillable sync.Map // from *core.Storage to func(s *core.Storage, node uint64) (bool, error)

// RefillAlways makes fn refill one storage as [Run.RefillWith] does, in any pass on the calling thread: derivatives recorded with
// [Options.CreateGraph] may need it again. Nil removes the function.
func RefillAlways(s *core.Storage, fn func(s *core.Storage, node uint64) (bool, error)) {
	if fn == nil {
		refillable.Delete(s)
	} else {
		refillable.Store(s, fn)
	}
}

// CreatesGraph reports whether the pass records its derivatives.
func (r *Run) CreatesGraph() bool { return r.options.CreateGraph }

// Refill is called by operations on an emptied storage.
func (r *Run) Refill(s *core.Storage) (bool, error) {
	if r.current == nil || r.current.node == nil {
		return false, nil
	}
	if fn, ok := refillable.Load(s); ok {
		return fn.(func(*core.Storage, uint64) (bool, error))(s, r.current.node.ID)
	}
	if !r.SecondPart() {
		return false, nil
	}
	for _, fn := range r.refillers {
		if filled, err := fn(s, r.current.node.ID); filled || err != nil {
			return filled, err
		}
	}
	return false, nil
}

// divide marks the nodes that lead to the tensors of Options.First.
func (r *Run) divide(order []*core.Node) {
	r.split = true
	for _, t := range r.options.First {
		if t == nil || !t.RequiresGrad() {
			continue
		}
		e := t.AutogradMeta().Edge()
		if s := r.states[e.Node]; s != nil {
			s.first = s.needed
		}
		e.Node.Release()
	}
	r.reverseOrder(order, func(n *core.Node, s *nodeState) {
		s.first = s.first || s.needed && r.leadsTo(n, func(behind *nodeState) bool { return behind.first })
	})
}

// divisible reports whether n's derivative may run twice, for some of its inputs each time.
func divisible(n *core.Node) bool {
	return n.External == 0 && n.Leaf() == nil && !n.Packed() && !(n.HasHooks() && n.PostHooks().Len() > 0)
}

// runsAgain reports whether n, which runs now, must run again in the second part for other inputs.
func (r *Run) runsAgain(n *core.Node) bool {
	if !r.split || r.states[n].undivided {
		return false
	}
	for _, e := range n.Edges() {
		if s := r.states[e.Node]; e.Node != nil && s != nil && s.needed && !s.first {
			return true
		}
	}
	return false
}

// wants reports whether the current part needs the gradient of n's input along e.
func (r *Run) wants(n *core.Node, e core.Edge) bool {
	s := r.states[e.Node]
	if e.Node == nil || s == nil || !s.needed {
		return false
	}
	switch {
	case r.split && !r.states[n].undivided:
		return s.first
	case r.states[n].partial:
		return !s.first
	}
	return true
}

// deferRest keeps the gradients of n's outputs and defers n to the second part. The extra reference prevents changes in place.
func (r *Run) deferRest(n *core.Node, grads []*core.Tensor) {
	s := r.states[n]
	s.partial = true
	s.grads = make([]*core.Tensor, len(grads))
	for i, g := range grads {
		if g != nil {
			s.grads[i] = g.Alias(true).Keep()
		}
	}
	r.deferred = append(r.deferred, n)
}
