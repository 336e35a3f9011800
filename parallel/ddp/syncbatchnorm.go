package ddp

import (
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// A SyncBatchNorm is a [nn.BatchNorm] whose training statistics are those of the global batch of all ranks. The ranks' batches
// may differ in size.
type SyncBatchNorm struct {
	nn.BatchNorm

	group   *collective.Group
	name    string  // in its model, for messages
	samples float64 // by which the rank's gradients will count, with [Options.Weighted]; otherwise 0
}

// NewSyncBatchNorm returns a layer with the parameters, buffers and options of l, which it takes over.
func NewSyncBatchNorm(l *nn.BatchNorm, g *collective.Group) *SyncBatchNorm {
	return &SyncBatchNorm{BatchNorm: *l, group: g}
}

// Forward maps [n, channels, ...] to the same shape. In training every rank calls it; n may differ, and be 0.
func (l *SyncBatchNorm) Forward(x *core.Tensor) *core.Tensor {
	if !l.Training() {
		return l.BatchNorm.Forward(x)
	}
	momentum := l.Momentum
	if n := l.NumBatchesTracked; n != nil {
		var err error
		core.NoGrad(func() { err = op.AddInPlace(n, core.IntNum(1)).Err() })
		if err == nil && l.Cumulative {
			var count int64
			count, err = n.Int()
			momentum = 1 / float64(count)
		}
		if err != nil {
			return core.ErrorTensor(err)
		}
	}
	return SyncBatchNormTrain(l.group.For(l.purpose()), x, l.RunningMean, l.RunningVar, l.Weight, l.Bias, momentum, l.Eps, l.samples)
}

// purpose tells the layer's collectives from those of others, which may have the same shapes.
func (l *SyncBatchNorm) purpose() string { return strings.TrimSpace("SyncBatchNorm " + l.name) }

// SyncBatchNormTrain is [op.BatchNorm] in training with the mean and variance of each channel over the batches of all
// ranks, which are joined from each rank's own (Chan, Golub and LeVeque 1979). One collective goes forward and one
// backward.
//
// The gradient is that of the sum of the ranks' losses, or where samples is not 0 that of the sum of samples times loss, divided by this
// rank's samples: the ranks' gradients shall then be summed with these weights, as by [Options.Weighted].
func SyncBatchNormTrain(g *collective.Group, x, runningMean, runningVar, weight, bias *core.Tensor, momentum, eps, samples float64) *core.Tensor {
	const name = "sync_batch_norm"
	if err := x.Usable(name); err != nil {
		return core.ErrorTensor(err)
	}
	if x.Dim() < 2 {
		return core.ErrorTensor(core.Errorf(core.ShapeError, name, "got an input of shape %v, want [n, channels, ...]", x.Shape()))
	}
	channels := x.Size(1)
	count := 1
	over := []int{}
	stretch := []int{1, channels} // the shape of one value a channel beside x
	for i, n := range x.Shape() {
		if i != 1 {
			count *= n
			over = append(over, i)
		}
		if i > 1 {
			stretch = append(stretch, 1)
		}
	}
	if g.Size() == 1 && count <= 1 {
		return core.ErrorTensor(core.Errorf(core.ShapeError, name, "training needs more than one value per channel, got an input of shape %v", x.Shape()))
	}
	g = g.ForBackward() // forward too: a checkpoint repeats it in backward
	out := core.RunScope(func() []*core.Tensor {
		in := op.To(x, x.DType().Compute())
		mean := op.Div(op.Sum(in, over, false), core.Num(float64(max(count, 1))))
		centred := op.Sub(in, op.Reshape(mean, stretch...))
		squares := op.Sum(op.Mul(centred, centred), over, false)
		d := in.DType()
		number := op.Full([]int{1}, core.Num(float64(count)), op.TensorOptions{DType: &d, Device: x.Device()})
		own := scaleGrad(op.Cat([]*core.Tensor{mean, squares, number}, 0), samples, true)
		all := scaleGrad(AllGather(g, own), samples, false) // [ranks, 2*channels + 1]

		means, counts := op.Narrow(all, 1, 0, channels), op.Narrow(all, 1, 2*channels, 1).Detach()
		total := op.Sum(counts, nil, false)
		joint := op.Div(op.Sum(op.Mul(means, counts), []int{0}, false), total)
		apart := op.Sub(means, joint)
		spread := op.Add(op.Sum(op.Narrow(all, 1, channels, channels), []int{0}, false),
			op.Sum(op.Mul(op.Mul(apart, apart), counts), []int{0}, false))
		variance := op.Div(spread, total)
		y := op.Mul(op.Sub(in, op.Reshape(joint, stretch...)), op.Reshape(op.Rsqrt(op.Add(variance, core.Num(eps))), stretch...))
		if weight != nil {
			y = op.Mul(y, op.Reshape(weight, stretch...))
		}
		if bias != nil {
			y = op.Add(y, op.Reshape(bias, stretch...))
		}
		if runningMean != nil {
			var err error
			core.NoGrad(func() {
				unbiased := op.Div(spread, op.Sub(total, core.Num(1)))
				err = firstError(op.LerpInPlace(runningMean, op.To(joint, runningMean.DType()), core.Num(momentum)),
					op.LerpInPlace(runningVar, op.To(unbiased, runningVar.DType()), core.Num(momentum)))
			})
			if err != nil && y.Err() == nil {
				y = core.ErrorTensor(err)
			}
		}
		return []*core.Tensor{op.To(y, x.DType())}
	})
	return out[0]
}

// scaleGrad returns x with a gradient that is multiplied or divided by samples. It returns x itself if samples is 0.
func scaleGrad(x *core.Tensor, samples float64, divide bool) *core.Tensor {
	m := core.CurrentMode()
	if samples == 0 || x.Err() != nil || !m.GradEnabled() || !x.RequiresGrad() {
		return x
	}
	out := x.Detach()
	n := core.NewNode(m, "weigh", func(ctx *core.BackwardContext) {
		if divide {
			ctx.Set(0, op.Div(ctx.Grad(), core.Num(samples)))
		} else {
			ctx.Set(0, op.Mul(ctx.Grad(), core.Num(samples)))
		}
	}, x)
	n.AttachLast(out, 0)
	return out
}

func firstError(list ...*core.Tensor) error {
	for _, t := range list {
		if err := t.Err(); err != nil {
			return err
		}
	}
	return nil
}

// AllGather returns the ranks' tensors, of one shape, stacked along a new first dimension. The gradient of a rank's own is
// the sum of all ranks' gradients of its part, so every rank must go backward through it.
func AllGather(g *collective.Group, x *core.Tensor) *core.Tensor {
	const name = "all_gather"
	if err := x.Usable(name); err != nil {
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

// gradientGroup returns the group for collectives of the backward pass of an operation on g.
func gradientGroup(g *collective.Group) *collective.Group {
	return g.ForBackward().For(strings.TrimSpace("the gradient of " + g.Purpose()))
}

// AllReduce returns the sum, or the average, of the ranks' tensors of one shape. Every rank must go backward through it:
// the gradient is reduced in the same way.
func AllReduce(g *collective.Group, x *core.Tensor, o collective.ReduceOp) *core.Tensor {
	const name = "all_reduce"
	if err := x.Usable(name); err != nil {
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
