package ranktest

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
)

// A LateOOM is a layer with a kernel that runs out of memory when it runs, in forward or in backward. Its launch has succeeded by then.
type LateOOM struct {
	nn.Base
	InForward, InBackward bool
}

// Forward returns a copy of x.
func (l *LateOOM) Forward(x *core.Tensor) *core.Tensor {
	if x.Err() != nil {
		return x
	}
	x = op.Mul(x, core.Num(1))
	x.TensorHooks().Add(core.Hook{Fn: func(g *core.Tensor) *core.Tensor {
		if l.InBackward {
			return copyOutOfMemory(g)
		}
		return nil
	}})
	if l.InForward {
		return op.Mul(x, copyOutOfMemory(op.OnesLike(x.Detach(), op.TensorOptions{})))
	}
	return x
}

// copyOutOfMemory returns a copy of t that fails for lack of memory when its kernel runs.
func copyOutOfMemory(t *core.Tensor) *core.Tensor {
	made := op.Clone(t)
	s := core.CurrentContext().Stream(t.Device())
	c := s.Begin(-1, "copy")
	c.Fn = func() error { return core.Errorf(core.MemoryError, "copy", "out of memory") }
	c.HostOnly = true
	c.In(t).Out(made)
	s.Launch(c)
	return made
}
