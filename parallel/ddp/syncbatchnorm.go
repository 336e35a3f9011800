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
	name    string  // in the model, for messages
	samples float64 // the weight of the rank's gradients with [Options.Weighted]; otherwise 0
}

// NewSyncBatchNorm converts a batch norm layer. The new layer uses the parameters, buffers and options of l.
func NewSyncBatchNorm(l *nn.BatchNorm, g *collective.Group) *SyncBatchNorm {
	return &SyncBatchNorm{BatchNorm: *l, group: g}
}

// Forward maps [n, channels, ...] to the same shape. In training every rank must call it; n may differ between ranks, and may be 0.
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

// purpose names the layer's collectives in error messages.
func (l *SyncBatchNorm) purpose() string { return strings.TrimSpace("SyncBatchNorm " + l.name) }

// SyncBatchNormTrain is [op.BatchNorm] in training, with the mean and variance of each channel over the batches of all ranks. The ranks'
// statistics are combined as in Chan, Golub and LeVeque 1979. It needs one collective in forward and one in backward.
//
// The gradient is that of the sum of the ranks' losses. If samples is not 0, it is that of the sum of samples times loss, divided by this
// rank's samples, so that summing the ranks' gradients with the weights of [Options.Weighted] is right.
func SyncBatchNormTrain(g *collective.Group, x, runningMean, runningVar, weight, bias *core.Tensor, momentum, eps, samples float64) *core.Tensor {
	const name = "sync_batch_norm"
	if err := x.Usable(name); err != nil {
		return core.ErrorTensor(err)
	}
	for _, t := range []*core.Tensor{x, weight, bias} {
		if t == nil {
			continue
		}
		if err := core.RefuseTangent(name, t); err != nil {
			return core.ErrorTensor(err)
		}
	}
	if x.Dim() < 2 {
		return core.ErrorTensor(core.Errorf(core.ShapeError, name, "got an input of shape %v, want [n, channels, ...]", x.Shape()))
	}
	channels := x.Size(1)
	count := 1
	reduceDims := []int{}
	perChannel := []int{1, channels} // the shape that broadcasts a value per channel over x
	for i, n := range x.Shape() {
		if i != 1 {
			count *= n
			reduceDims = append(reduceDims, i)
		}
		if i > 1 {
			perChannel = append(perChannel, 1)
		}
	}
	if g.Size() == 1 && count <= 1 {
		return core.ErrorTensor(core.Errorf(core.ShapeError, name, "training needs more than one value per channel, got an input of shape %v", x.Shape()))
	}
	g = g.ForBackward() // also in forward, which checkpointing repeats in backward
	out := core.RunScope(func() []*core.Tensor {
		in := op.To(x, x.DType().Compute())
		mean := op.Div(op.Sum(in, reduceDims, false), core.Num(float64(max(count, 1))))
		centred := op.Sub(in, op.Reshape(mean, perChannel...))
		localSquares := op.Sum(op.Mul(centred, centred), reduceDims, false)
		d := in.DType()
		localCount := op.Full([]int{1}, core.Num(float64(count)), op.TensorOptions{DType: &d, Device: x.Device()})
		local := scaleGrad(op.Cat([]*core.Tensor{mean, localSquares, localCount}, 0), samples, true)
		all := scaleGrad(AllGather(g, local), samples, false) // [ranks, 2*channels + 1]

		means, counts := op.Narrow(all, 1, 0, channels), op.Narrow(all, 1, 2*channels, 1).Detach()
		total := op.Sum(counts, nil, false)
		globalMean := op.Div(op.Sum(op.Mul(means, counts), []int{0}, false), total)
		deviation := op.Sub(means, globalMean)
		sumSquares := op.Add(op.Sum(op.Narrow(all, 1, channels, channels), []int{0}, false),
			op.Sum(op.Mul(op.Mul(deviation, deviation), counts), []int{0}, false))
		variance := op.Div(sumSquares, total)
		y := op.Mul(op.Sub(in, op.Reshape(globalMean, perChannel...)), op.Reshape(op.Rsqrt(op.Add(variance, core.Num(eps))), perChannel...))
		if weight != nil {
			y = op.Mul(y, op.Reshape(weight, perChannel...))
		}
		if bias != nil {
			y = op.Add(y, op.Reshape(bias, perChannel...))
		}
		if runningMean != nil {
			var err error
			core.NoGrad(func() {
				unbiased := op.Div(sumSquares, op.Sub(total, core.Num(1)))
				err = firstError(op.LerpInPlace(runningMean, op.To(globalMean, runningMean.DType()), core.Num(momentum)),
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
