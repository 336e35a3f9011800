package autograd

import (
	"sync"

	"github.com/plait-ml/plait/core"
)

// Rest begins the second part of a walk that was made with [Options.First]. The first part, which ends when [Run.Step] first
// says so, runs the derivatives on the way to those tensors, as far as their gradients need them. The second runs what is left,
// perhaps much later: derivatives keep what they saved, and their outputs' gradients, until then. What belongs to another
// language, has hooks that see all gradients of its inputs, or hooks on what it saved, such as a checkpoint's, is not divided and
// runs in the first part.
func (r *Run) Rest() {
	if !r.split {
		return
	}
	r.split = false
	for _, n := range r.later {
		r.offer(n)
	}
	r.later = nil
}

// FirstPart reports whether the walk was made with [Options.First] and is in the first part.
func (r *Run) FirstPart() bool { return r.split }

// SecondPart reports whether the walk was made with [Options.First] and is in the second part.
func (r *Run) SecondPart() bool { return r.options.First != nil && !r.split }

// QueuePartCallback makes fn run when the first part of the backward pass in which it is called has ended. Of one that is not
// divided, or is in its second part, it never runs.
func QueuePartCallback(fn func() error) error {
	r := CurrentRun()
	if r == nil {
		return core.Errorf(core.StateError, "queue_part_callback", "no backward pass is running on this thread")
	}
	if r.split {
		r.partCallbacks = append(r.partCallbacks, atOnce(fn))
	}
	return nil
}

// RefillWith makes fn give back the contents of storages that were emptied after the first part, if the second part comes to them: it
// is called with the storage and the number of the node whose derivative needs it, and reports whether the storage is one of its own.
func (r *Run) RefillWith(fn func(s *core.Storage, node uint64) (bool, error)) {
	if fn != nil {
		r.refillers = append(r.refillers, fn)
	}
}

// refillable has what gives storages back that were emptied, in any pass.
var refillable sync.Map // from *core.Storage to func(s *core.Storage, node uint64) (bool, error)

// RefillAlways makes fn do for one storage, in any pass on the thread that it belongs to, what [Run.RefillWith] does for the second
// part of one: derivatives that were recorded ([Options.CreateGraph]) may come to it again. nil ends that.
func RefillAlways(s *core.Storage, fn func(s *core.Storage, node uint64) (bool, error)) {
	if fn == nil {
		refillable.Delete(s)
	} else {
		refillable.Store(s, fn)
	}
}

// CreatesGraph reports whether the walk records what it does, so that it can be differentiated.
func (r *Run) CreatesGraph() bool { return r.options.CreateGraph }

// Refill is called by operations that come to an emptied storage.
func (r *Run) Refill(s *core.Storage) (bool, error) {
	if r.pending == nil || r.pending.node == nil {
		return false, nil
	}
	if fn, ok := refillable.Load(s); ok {
		return fn.(func(*core.Storage, uint64) (bool, error))(s, r.pending.node.ID)
	}
	if !r.SecondPart() {
		return false, nil
	}
	for _, fn := range r.refillers {
		if filled, err := fn(s, r.pending.node.ID); filled || err != nil {
			return filled, err
		}
	}
	return false, nil
}

// divide marks the nodes that lead to the tensors whose gradients come first.
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
	r.fromBehind(order, func(n *core.Node, s *state) {
		s.first = s.first || s.needed && r.leads(n, func(behind *state) bool { return behind.first })
	})
}

// divisible reports whether n's derivative may run once for some of its inputs and once for the others.
func divisible(n *core.Node) bool {
	return n.External == 0 && n.Leaf() == nil && !n.Packed() && !(n.HasHooks() && n.PostHooks().Len() > 0)
}

// halves reports whether n, which runs now, is to run again for other inputs.
func (r *Run) halves(n *core.Node) bool {
	if !r.split || r.states[n].whole {
		return false
	}
	for _, e := range n.Edges() {
		if s := r.states[e.Node]; e.Node != nil && s != nil && s.needed && !s.first {
			return true
		}
	}
	return false
}

// goes reports whether the gradient of n's input along e is wanted now.
func (r *Run) goes(n *core.Node, e core.Edge) bool {
	s := r.states[e.Node]
	if e.Node == nil || s == nil || !s.needed {
		return false
	}
	switch {
	case r.split && !r.states[n].whole:
		return s.first
	case r.states[n].half:
		return !s.first
	}
	return true
}

// keepForRest keeps the gradients of n's outputs, so that nothing changes them, and lines n up for the second part.
func (r *Run) keepForRest(n *core.Node, grads []*core.Tensor) {
	s := r.states[n]
	s.half = true
	s.grads = make([]*core.Tensor, len(grads))
	for i, g := range grads {
		if g != nil {
			s.grads[i] = g.Alias(true).Keep()
		}
	}
	r.later = append(r.later, n)
}
