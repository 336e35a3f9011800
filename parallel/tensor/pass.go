package tensor

import (
	"time"
	"weak"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/parallel/mesh"
)

// PassOutput returns x, the output of the current pass of a model over a mesh. A backward pass through it succeeds on all ranks or fails on
// all: at its end the ranks wait for each other.
func PassOutput(m *mesh.Mesh, x *core.Tensor) *core.Tensor {
	p := m.Pass()
	if p == nil {
		return core.ErrorTensor(core.Errorf(core.StateError, "pass", "no pass of a model over the mesh %v has begun", m))
	}
	return moved("pass", x, func(x *core.Tensor) *core.Tensor { return x.Alias(false) }, &ending{pass: p})
}

// An ending is the derivative of an output of a pass.
type ending struct {
	pass *mesh.Pass
	run  *autograd.Run // that has begun to wait for the other ranks at its end
}

func (e *ending) backward(x *core.Tensor) *core.Tensor {
	if run := autograd.CurrentRun(); run != nil && run != e.run {
		e.run = run
		e.pass.Reopen()
		// After the callbacks of others, which may launch the last exchanges.
		if err := autograd.QueueCallback(func() error {
			return autograd.QueueWait(func(limit time.Duration) (bool, error) { return e.pass.End(limit) })
		}); err != nil {
			return core.ErrorTensor(err)
		}
	}
	return itself(x)
}

// Abandoned is called when a backward pass through the output has failed.
func (e *ending) Abandoned(cause error) { e.pass.Fail(cause) }

// WatchPasses makes tensors valid again after a pass of a model over a mesh has failed on some rank, and drops their gradients: the parameters
// and buffers of the model. It does not keep them.
func WatchPasses(m *mesh.Mesh, list []*core.Tensor) {
	var watched []weak.Pointer[core.Tensor]
	for _, t := range list {
		watched = append(watched, weak.Make(t))
	}
	m.OnFailedPass(func(cause error) {
		for _, w := range watched {
			if t := w.Value(); t != nil && t.Present("pass") == nil {
				recoverFrom(t, cause)
			}
		}
	})
}

func recoverFrom(t *core.Tensor, cause error) {
	if t.IsLeaf() && t.RequiresGrad() {
		t.SetGrad(nil)
	}
	if p, ok := t.Parts().(*parts); ok {
		t = p.here
	}
	t.Recover()
	core.TakeReported(core.CurrentContext().Stream(t.Device()), cause)
}
