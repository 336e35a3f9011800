package bind

import (
	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// ForwardEnter opens a level of forward-mode derivatives inside those of the calling thread. Close it with [ForwardExit] on the same thread,
// and release it.
func ForwardEnter() (status Object) {
	defer protect("forward_ad", &status)
	l, err := core.EnterForward()
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(l)
}

// ForwardExit closes a level, the innermost of its thread. Tensors lose their tangents at it.
func ForwardExit(level Object) (status Status) {
	defer protect("forward_ad", &status)
	l, err := forwardLevel(level)
	if err == nil {
		err = l.Exit()
	}
	if err != nil {
		return failure(err)
	}
	return 0
}

func forwardLevel(level Object) (*core.ForwardLevel, error) {
	l, ok := handle.Object[*core.ForwardLevel](level)
	if !ok {
		return nil, core.Errorf(core.TypeError, "forward_ad", "%d is not the handle of a level", level)
	}
	return l, nil
}

// ForwardDual returns a tensor over t's elements, in t's place in the graph, with a tangent at a level; without one for the tangent 0. For the
// tangent 0 and the level 0 it returns one with t's tangents at all levels.
func ForwardDual(t Tensor, tangent Tensor, level Object) (status Tensor) {
	defer protect("make_dual", &status)
	if level == 0 && tangent == 0 {
		return result(op.Dual(tensor(t), nil, nil))
	}
	l, err := forwardLevel(level)
	if err != nil {
		return failure(err)
	}
	var v *core.Tensor
	if tangent != 0 {
		v = tensor(tangent)
	}
	return result(op.Dual(tensor(t), v, l))
}

// ForwardTangent returns the tangent of t at a level, or 0.
func ForwardTangent(t Tensor, level Object) (status Tensor) {
	defer protect("unpack_dual", &status)
	l, err := forwardLevel(level)
	if err != nil {
		return failure(err)
	}
	v := tensor(t)
	if err := v.Present("unpack_dual"); err != nil {
		return failure(err)
	}
	_, tangent := autograd.Unpack(v, l)
	if tangent == nil {
		return 0
	}
	return result(tangent)
}

// ForwardTangentSet gives t, which a function of the caller's has made, its tangent at a level.
func ForwardTangentSet(t Tensor, tangent Tensor, level Object) (status Status) {
	defer protect("jvp", &status)
	l, err := forwardLevel(level)
	if err != nil {
		return failure(err)
	}
	v, w := tensor(t), tensor(tangent)
	if err := v.Usable("jvp"); err != nil {
		return failure(err)
	}
	if err := w.Usable("jvp"); err != nil {
		return failure(err)
	}
	if err := op.SetTangent(v, l, w); err != nil {
		return failure(err)
	}
	return 0
}

// ForwardBelow makes operations of the calling thread see only tangents at levels around the given one, or none for the level 0, and
// returns the mode before.
func ForwardBelow(level Object) (status int64) {
	defer protect("forward_ad", &status)
	m := core.CurrentMode()
	if level == 0 {
		return int64(core.SwapMode(m.WithoutTangents()))
	}
	l, err := forwardLevel(level)
	if err != nil {
		return failure(err)
	}
	return int64(core.SwapMode(m.Below(l)))
}
