package autograd

import (
	"runtime"
	"time"

	"github.com/plait-ml/plait/core"
)

// A Request is work that a run asks of its caller: to run a foreign derivative or hook on some gradients.
type Request struct {
	// Node is where the run stands.
	Node *core.Node
	// ID names the foreign derivative or hook.
	ID uint64
	// What is wanted: the gradients of the inputs (Derivative), or gradients in place of those given, where nil keeps
	// one.
	What Want
	// IDs name the values that are wanted, of WantSaved.
	IDs []uint64
	// Grads are the gradients given. They belong to the run.
	Grads []*core.Tensor
	// After are, for a hook that runs after its node, the gradients of the node's outputs. They belong to the run.
	After []*core.Tensor
	// Mode is the mode to do it in: its current streams are those on which the node was recorded.
	Mode core.Mode
	// Payload is what the work is about, of a request made by [Ask].
	Payload any
}

// A Want says what a [Request] wants.
type Want uint8

// What a run can want.
const (
	WantDerivative Want = iota // of a foreign node: the gradients of its inputs
	WantHook                   // of a hook on one gradient: one gradient
	WantPreHook                // of a hook before a node: as many gradients as given
	WantPostHook               // of a hook after a leaf's accumulation: nothing
	WantAsked                  // what [Ask] was called for
	WantAfterHook              // of a hook after a node: as many gradients as given
	WantSaved                  // of hooks on saved values: the values that they packed
)

// Step runs nodes until the walk has ended, which it reports by returning nil, or the caller is asked for something, which
// [Run.Resume] answers.
func (r *Run) Step() (q *Request, err error) {
	if r.err != nil || r.closed {
		return nil, r.err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r.enterScope(core.CurrentMode())
	old := core.SwapMode(r.mode)
	defer core.SwapMode(old)
	core.WithTask(r, func() { q, err = r.advance() })
	r.err = err
	return q, err
}

// enterScope makes the modes of the walk be of the caller's scope. The one in which the walk began may have ended, and its number
// be that of another thread's.
func (r *Run) enterScope(now core.Mode) {
	if r.mode.InScopeOf(now) == r.mode {
		return
	}
	r.caller, r.mode = r.caller.InScopeOf(now), r.mode.InScopeOf(now)
	for c, m := range r.modes {
		r.modes[c] = m.InScopeOf(now)
	}
	if r.pending != nil {
		r.pending.mode = r.pending.mode.InScopeOf(now)
	}
}

// StepFor is [Run.Step] that returns after about d, and where it would wait for room in a queue. more says that the walk
// has not ended: call it again.
func (r *Run) StepFor(d time.Duration) (q *Request, more bool, err error) {
	r.until, r.paused = time.Now().Add(d), false
	q, err = r.Step()
	r.until = time.Time{}
	return q, r.paused, err
}

// pause reports whether the walk stands still for its caller, before the next node; moved says that this step has run one.
func (r *Run) pause(moved bool) bool {
	r.paused = !r.until.IsZero() && (core.Crowded() || moved && time.Now().After(r.until))
	return r.paused
}

func (r *Run) advance() (*Request, error) {
	moved := false
	for {
		for r.pending != nil {
			p := r.pending
			if len(p.stages) == 0 {
				if p.node != nil {
					r.states[p.node].done = true
				}
				r.pending = nil
				break
			}
			q, err := r.run(p)
			if err != nil {
				return nil, err
			}
			if q != nil {
				p.asked, q.Mode = true, p.mode.WithAutocastOf(r.caller)
				return q, nil
			}
			p.stages = append(r.asked, p.stages[1:]...)
			r.asked = nil
		}
		if r.ready.count == 0 {
			done, err := r.end()
			if done || err != nil || r.paused {
				return nil, err
			}
			continue
		}
		if r.pause(moved) {
			return nil, nil
		}
		n := r.ready.next()
		if r.split && !r.states[n].first {
			r.later = append(r.later, n)
			continue
		}
		moved = true
		r.begin(n)
	}
}

// end runs the next callback after the last node of the walk, or of its first part, and reports whether there are no more.
func (r *Run) end() (done bool, err error) {
	r.joinStreams()
	list := &r.callbacks
	if r.split {
		list = &r.partCallbacks
	}
	if len(*list) == 0 {
		r.ended = !r.split
		return true, nil
	}
	limit := time.Duration(-1)
	if !r.until.IsZero() {
		limit = max(time.Until(r.until), 0)
	}
	over, err := (*list)[0](limit)
	if err != nil {
		return false, err
	}
	if !over {
		r.paused = !r.until.IsZero()
		return false, nil
	}
	*list = (*list)[1:]
	r.pending = &pending{mode: r.mode, stages: r.asked}
	r.asked = nil
	return false, nil
}

// run runs the next stage of p, on the streams of its node.
func (r *Run) run(p *pending) (*Request, error) {
	if p.mode == r.mode {
		return p.stages[0](p)
	}
	core.SwapMode(p.mode)
	defer core.SwapMode(r.mode)
	return p.stages[0](p)
}

// Fail ends the walk because of err: the caller could not do what it was asked for.
func (r *Run) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Resume answers the request that [Run.Step] returned; the run takes the gradients over. Call Step again after it.
func (r *Run) Resume(grads []*core.Tensor) error {
	if r.pending == nil || !r.pending.asked {
		return core.Errorf(core.StateError, "backward", "resumed without a request")
	}
	r.pending.answer = grads
	return nil
}
