package autograd

import (
	"runtime"
	"time"

	"github.com/plait-ml/plait/core"
)

// A Request asks the run's caller to run a derivative or hook of another language on some gradients.
type Request struct {
	// Node is the node that is running.
	Node *core.Node
	// ID identifies the derivative or hook.
	ID uint64
	// What is the kind of answer: gradients of the inputs (WantDerivative), or replacements for the given gradients, where nil keeps one.
	What Want
	// IDs identify the values to unpack (WantSaved).
	IDs []uint64
	// Grads are the given gradients. They belong to the run.
	Grads []*core.Tensor
	// After are the gradients of the node's outputs, for a hook after the node. They belong to the run.
	After []*core.Tensor
	// Mode is the mode for the work. Its current streams are those on which the node was recorded.
	Mode core.Mode
	// Payload is the argument of a request made by [Ask].
	Payload any
}

// A Want is the kind of a [Request].
type Want uint8

// The kinds of requests, and their answers.
const (
	WantDerivative Want = iota // run an external node: gradients of its inputs
	WantHook                   // run a hook on one gradient: its replacement
	WantPreHook                // run a hook before a node: replacements of all gradients
	WantPostHook               // run a hook after a leaf's accumulation: nothing
	WantAsked                  // a request of [Ask]
	WantAfterHook              // run a hook after a node: replacements of all gradients
	WantSaved                  // run saved-tensor hooks: the unpacked tensors
)

// Step runs nodes until the pass has ended, and then returns nil. If it needs its caller it returns a request; [Run.Resume] answers it.
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

// enterScope moves the run's modes to the caller's scope. The scope in which the pass began may have ended, and its id may belong to
// another thread's scope now.
func (r *Run) enterScope(now core.Mode) {
	if r.mode.InScopeOf(now) == r.mode {
		return
	}
	r.caller, r.mode = r.caller.InScopeOf(now), r.mode.InScopeOf(now)
	for c, m := range r.modes {
		r.modes[c] = m.InScopeOf(now)
	}
	if r.current != nil {
		r.current.mode = r.current.mode.InScopeOf(now)
	}
}

// StepFor is [Run.Step] that returns after about d, or as soon as a launch would block on a full queue. more says that the pass has not
// ended: call it again.
func (r *Run) StepFor(d time.Duration) (q *Request, more bool, err error) {
	r.until, r.paused = time.Now().Add(d), false
	q, err = r.Step()
	r.until = time.Time{}
	return q, r.paused, err
}

// pause reports whether StepFor must return before the next node. moved says that this step has run a node.
func (r *Run) pause(moved bool) bool {
	r.paused = !r.until.IsZero() && (core.QueueNearlyFull() || moved && time.Now().After(r.until))
	return r.paused
}

func (r *Run) advance() (*Request, error) {
	moved := false
	for {
		for r.current != nil {
			p := r.current
			if len(p.stages) == 0 {
				if p.node != nil {
					r.states[p.node].done = true
				}
				r.current = nil
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
			done, err := r.runCallback()
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
			r.deferred = append(r.deferred, n)
			continue
		}
		moved = true
		r.prepare(n)
	}
}

// runCallback runs the next callback after the last node of the pass, or of its first part. It reports whether none is left.
func (r *Run) runCallback() (done bool, err error) {
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
	r.current = &nodeRun{mode: r.mode, stages: r.asked}
	r.asked = nil
	return false, nil
}

// run runs the next stage of p on the streams of its node.
func (r *Run) run(p *nodeRun) (*Request, error) {
	if p.mode == r.mode {
		return p.stages[0](p)
	}
	core.SwapMode(p.mode)
	defer core.SwapMode(r.mode)
	return p.stages[0](p)
}

// Fail ends the pass with err: the caller could not answer a request.
func (r *Run) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Resume answers the request that [Run.Step] returned. The run takes over the gradients. Call Step again afterwards.
func (r *Run) Resume(grads []*core.Tensor) error {
	if r.current == nil || !r.current.asked {
		return core.Errorf(core.StateError, "backward", "resumed without a request")
	}
	r.current.answer = grads
	return nil
}
