package ddp

import (
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// AllGather is a differentiable all-gather. It returns the ranks' tensors, of one shape, stacked along a new first dimension. The gradient of
// a rank's tensor is the sum over the ranks of the gradients of its part, so every rank must run backward through it.
func AllGather(g *collective.Group, x *core.Tensor) *core.Tensor {
	const name = "all_gather"
	if err := x.Usable(name); err != nil {
		return core.ErrorTensor(err)
	}
	if err := core.RefuseTangent(name, x); err != nil {
		return core.ErrorTensor(err)
	}
	var out *core.Tensor
	core.NoGrad(func() {
		out = op.EmptyWith(append([]int{g.Size()}, x.Shape()...), optionsLike(x))
		if out.Err() != nil {
			return
		}
		if w := g.AllGatherInto(out, x); w.Done() && w.Err() != nil {
			out = core.ErrorTensor(w.Err())
		}
	})
	m := core.CurrentMode()
	if out.Err() != nil || !m.GradEnabled() || !x.RequiresGrad() {
		return out
	}
	n := core.NewNode(m, name, func(ctx *core.BackwardContext) {
		ctx.Set(0, op.Select(AllReduce(gradientGroup(g), ctx.Grad(), collective.Sum), 0, g.Rank()))
	}, x)
	n.AttachLast(out, 0)
	return out
}

// AllReduce is a differentiable all-reduce. It returns the sum or average of the ranks' tensors, of one shape. The gradient is reduced in the
// same way, so every rank must run backward through it.
func AllReduce(g *collective.Group, x *core.Tensor, o collective.ReduceOp) *core.Tensor {
	const name = "all_reduce"
	if err := x.Usable(name); err != nil {
		return core.ErrorTensor(err)
	}
	if err := core.RefuseTangent(name, x); err != nil {
		return core.ErrorTensor(err)
	}
	if o != collective.Sum && o != collective.Avg {
		return core.ErrorTensor(core.Errorf(core.ValueError, name, "only sums and averages have a gradient, got %v", o))
	}
	var out *core.Tensor
	core.NoGrad(func() {
		out = op.Clone(x)
		if out.Err() != nil {
			return
		}
		if w := g.AllReduce(out, o); w.Done() && w.Err() != nil {
			out = core.ErrorTensor(w.Err())
		}
	})
	m := core.CurrentMode()
	if out.Err() != nil || !m.GradEnabled() || !x.RequiresGrad() {
		return out
	}
	n := core.NewNode(m, name, func(ctx *core.BackwardContext) { ctx.Set(0, AllReduce(gradientGroup(g), ctx.Grad(), o)) }, x)
	n.AttachLast(out, 0)
	return out
}

// gradientGroup returns the group for the backward pass of a collective on g.
func gradientGroup(g *collective.Group) *collective.Group {
	return g.ForBackward().For(strings.TrimSpace("the gradient of " + g.Purpose()))
}

func optionsLike(t *core.Tensor) op.TensorOptions {
	d := t.DType()
	return op.TensorOptions{DType: &d, Device: t.Device()}
}
