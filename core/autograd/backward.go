package autograd

import (
	"time"

	"github.com/plait-ml/plait/core"
)

// Options configure a backward pass. The zero value frees the graph on the way and records nothing.
type Options struct {
	// RetainGraph keeps the saved tensors, so that another pass can use the graph.
	RetainGraph bool
	// CreateGraph records the derivatives, so that they can be differentiated. It implies RetainGraph.
	CreateGraph bool
	// AllowUnused makes Grad return nil for an input that the outputs do not depend on, instead of an error.
	AllowUnused bool
	// Inputs restricts Backward to these tensors: only they accumulate gradients.
	Inputs []*core.Tensor
	// First are tensors whose gradients the first part of a split pass computes: see [Run.Rest].
	First []*core.Tensor

	since uint64 // the pass does not go to nodes up to this ID
}

// Backward adds the gradients of the outputs to the leaves that they depend on. Each output must have one element.
func Backward(outputs ...*core.Tensor) error {
	return BackwardWith(outputs, nil, Options{})
}

// BackwardWith is [Backward] for outputs of any shape. grads are the gradients of the outputs, each of its output's shape. A nil gradient
// means ones and is only allowed for an output with one element.
func BackwardWith(outputs, grads []*core.Tensor, o Options) error {
	r, err := NewRun(outputs, grads, o)
	if err != nil {
		return err
	}
	defer r.Close()
	return finish(r)
}

// Grad returns the gradients of the sum of the outputs with respect to the inputs, which may be any tensors of the graph. It does not
// change the gradients of leaves. grads are as in [BackwardWith].
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
		err = core.Errorf(core.StateError, "backward", "%s belongs to another language; call backward from that language", name)
	}
	return err
}

// NoGrad runs fn without recording gradients.
func NoGrad(fn func()) { core.NoGrad(fn) }

// EnableGrad runs fn with gradients recorded, for use inside [NoGrad].
func EnableGrad(fn func()) { core.EnableGrad(fn) }

// DetectAnomaly runs fn in anomaly mode. Every operation and derivative waits for its result and fails with the operation's name if the
// result has a NaN. Nodes remember the stack where they were recorded.
func DetectAnomaly(fn func()) {
	core.WithMode(func(m core.Mode) core.Mode { return m.WithAnomaly(true).WithCheckGrads(true) }, fn)
}

// QueueCallback makes fn run at the end of the current backward pass. It is called from a hook or a derivative.
func QueueCallback(fn func() error) error {
	r := CurrentRun()
	if r == nil {
		return core.Errorf(core.StateError, "queue_callback", "no backward pass is running on this thread")
	}
	r.callbacks = append(r.callbacks, nonblocking(fn))
	return nil
}

// A callback runs at the end of a backward pass. It may block for at most limit; a negative limit means any time. over says that it must
// not be called again.
type callback func(limit time.Duration) (over bool, err error)

// nonblocking makes a callback of a function that does not block.
func nonblocking(fn func() error) callback {
	return func(time.Duration) (bool, error) { return true, fn() }
}

// QueueWait is [QueueCallback] for a function that blocks, for example on other ranks: see [callback]. The caller of [Run.StepFor] gets its
// thread back between calls.
func QueueWait(fn func(limit time.Duration) (over bool, err error)) error {
	r := CurrentRun()
	if r == nil {
		return core.Errorf(core.StateError, "queue_callback", "no backward pass is running on this thread")
	}
	r.callbacks = append(r.callbacks, fn)
	return nil
}

// OnClose makes fn run when the current backward pass is over, even if it ends with an error.
func OnClose(fn func()) error {
	r := CurrentRun()
	if r == nil {
		return core.Errorf(core.StateError, "on_close", "no backward pass is running on this thread")
	}
	r.closers = append(r.closers, fn)
	return nil
}

// CurrentRun returns the backward pass running on the calling thread, or nil.
func CurrentRun() *Run {
	r, _ := core.CurrentTask().(*Run)
	return r
}

// Ask makes the current backward pass send q to its caller before it goes on. It is called from a hook or a callback; several requests are
// sent in the order of the calls. then receives the answer and owns its tensors.
func Ask(q *Request, then func(answer []*core.Tensor) error) error {
	r := CurrentRun()
	if r == nil {
		return core.Errorf(core.StateError, "backward", "no backward pass is running on this thread")
	}
	q.What = WantAsked
	r.asked = append(r.asked, func(p *nodeRun) (*Request, error) {
		if !p.asked {
			q.Node = p.node
			return q, nil
		}
		p.asked = false
		return nil, then(p.answer)
	})
	return nil
}

// RunHook makes the current backward pass run h, a hook of a leaf of kind want, before it goes on. It is called from a hook or a callback;
// several hooks run in the order of the calls. grad returns the gradient for h at that time, or nil to skip h. then receives and owns the
// tensor that h returned, or nil.
func RunHook(h core.Hook, want Want, grad func() *core.Tensor, then func(replacement *core.Tensor) error) error {
	r := CurrentRun()
	if r == nil {
		return core.Errorf(core.StateError, "backward", "no backward pass is running on this thread")
	}
	r.asked = append(r.asked, func(p *nodeRun) (*Request, error) {
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
