package autograd

import (
	"time"

	"github.com/plait-ml/plait/core"
)

// Options say how a backward pass runs. The zero value frees the graph on the way and does not record itself.
type Options struct {
	// RetainGraph keeps what nodes saved, so that the graph can be gone through again.
	RetainGraph bool
	// CreateGraph records the derivatives, so that they can be differentiated; it implies RetainGraph.
	CreateGraph bool
	// AllowUnused makes Grad return nil for an input that the outputs do not depend on, where it would be an error.
	AllowUnused bool
	// Inputs restricts Backward to these tensors: only they collect gradients.
	Inputs []*core.Tensor
	// First are tensors whose gradients come first: see [Run.Rest].
	First []*core.Tensor
}

// Backward adds the gradient of each output, which must have one element, to the gradients of the leaves it depends on.
func Backward(outputs ...*core.Tensor) error {
	return BackwardWith(outputs, nil, Options{})
}

// BackwardWith is [Backward] for outputs of any shape with the given gradients, each of its output's shape; a nil
// gradient means ones and is for outputs with one element.
func BackwardWith(outputs, grads []*core.Tensor, o Options) error {
	r, err := NewRun(outputs, grads, o)
	if err != nil {
		return err
	}
	defer r.Close()
	return finish(r)
}

// Grad returns the gradients of the outputs, summed, with respect to the inputs, without touching the leaves' own. The
// inputs may be any tensors in the graph. grads are as for [BackwardWith].
func Grad(outputs, inputs, grads []*core.Tensor, o Options) ([]*core.Tensor, error) {
	r, err := NewGradRun(outputs, inputs, grads, o)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if err := finish(r); err != nil {
		return nil, err
	}
	return r.Captured()
}

func finish(r *Run) error {
	q, err := r.Step()
	if err == nil && q != nil {
		name := "a hook"
		if q.Node != nil {
			name = q.Node.Name
		}
		err = core.Errorf(core.StateError, "backward", "%s belongs to another language, whose backward must be used", name)
	}
	return err
}

// NoGrad runs fn without recording gradients.
func NoGrad(fn func()) { core.NoGrad(fn) }

// EnableGrad runs fn recording gradients, for use inside [NoGrad].
func EnableGrad(fn func()) { core.EnableGrad(fn) }

// DetectAnomaly runs fn in anomaly mode: every operation, and every derivative run in it, waits for its result and fails
// with the operation's name if it made a NaN; nodes remember where they were recorded.
func DetectAnomaly(fn func()) {
	core.WithMode(func(m core.Mode) core.Mode { return m.WithAnomaly(true).WithCheckGrads(true) }, fn)
}

// QueueCallback makes fn run when the backward pass in which it is called, from a hook or a derivative, has ended.
func QueueCallback(fn func() error) error {
	r := CurrentRun()
	if r == nil {
		return core.Errorf(core.StateError, "queue_callback", "no backward pass is running on this thread")
	}
	r.callbacks = append(r.callbacks, atOnce(fn))
	return nil
}

// A callback runs when a backward pass has run its last node. It waits for at most the limit, or for as long as it takes if that is
// negative; over says that it need not be called again.
type callback func(limit time.Duration) (over bool, err error)

// atOnce is the callback of a function that does not wait.
func atOnce(fn func() error) callback {
	return func(time.Duration) (bool, error) { return true, fn() }
}

// QueueWait is [QueueCallback] of a function that waits for somebody, such as other ranks: see [callback]. Meanwhile the caller of
// [Run.StepFor] gets its thread back.
func QueueWait(fn func(limit time.Duration) (over bool, err error)) error {
	r := CurrentRun()
	if r == nil {
		return core.Errorf(core.StateError, "queue_callback", "no backward pass is running on this thread")
	}
	r.callbacks = append(r.callbacks, fn)
	return nil
}

// OnClose makes fn run when the backward pass in which it is called is over, also if an error has ended it.
func OnClose(fn func()) error {
	r := CurrentRun()
	if r == nil {
		return core.Errorf(core.StateError, "on_close", "no backward pass is running on this thread")
	}
	r.closers = append(r.closers, fn)
	return nil
}

// CurrentRun returns the backward pass that runs on the calling thread, or nil.
func CurrentRun() *Run {
	r, _ := core.CurrentTask().(*Run)
	return r
}

// Ask makes the backward pass in which it is called, from a hook or a callback, ask its caller for q, in the order of the
// calls, before it goes on. then gets the answer, whose tensors are its own.
func Ask(q *Request, then func(answer []*core.Tensor) error) error {
	r := CurrentRun()
	if r == nil {
		return core.Errorf(core.StateError, "backward", "no backward pass is running on this thread")
	}
	q.What = WantAsked
	r.asked = append(r.asked, func(p *pending) (*Request, error) {
		if !p.asked {
			q.Node = p.node
			return q, nil
		}
		p.asked = false
		return nil, then(p.answer)
	})
	return nil
}

// RunHook makes the backward pass in which it is called, from a hook or a callback, run h in the order of the calls before it goes on,
// as a hook of a leaf: want says of which kind. grad returns what it runs on, then, or nil to leave it out; then gets the tensor, of
// its own, that h puts in its place, or nil.
func RunHook(h core.Hook, want Want, grad func() *core.Tensor, then func(replacement *core.Tensor) error) error {
	r := CurrentRun()
	if r == nil {
		return core.Errorf(core.StateError, "backward", "no backward pass is running on this thread")
	}
	r.asked = append(r.asked, func(p *pending) (*Request, error) {
		var out *core.Tensor
		switch {
		case p.asked:
			p.asked = false
			if len(p.answer) > 0 {
				out = p.answer[0]
			}
			p.answer = nil
		default:
			g := grad()
			if g == nil {
				return nil, nil
			}
			if h.Fn == nil {
				return &Request{Node: p.node, ID: h.External, What: want, Grads: []*core.Tensor{g}}, nil
			}
			if out = h.Fn(g); out != nil {
				out.Keep()
			}
		}
		return nil, then(out)
	})
	return nil
}
