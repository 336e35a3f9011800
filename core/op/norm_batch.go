package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// BatchNorm normalises each channel of x, of shape [N, C, ...], then multiplies by weight and adds bias, of shape [C],
// which may be nil. In training a channel is normalised by its own mean and (biased) variance over the batch, and
// runningMean and runningVar, of shape [C] and nil together, move towards these by momentum, the variance made unbiased;
// otherwise it is normalised by the running statistics, and they are constants for the gradient. An empty batch moves nothing.
//
// Ioffe, Szegedy: Batch normalization, 2015.
func BatchNorm(x, runningMean, runningVar, weight, bias *core.Tensor, training bool, momentum, eps float64) *core.Tensor {
	if parts := distributed(x, runningMean, runningVar, weight, bias); parts != nil {
		return handOn(parts, "batch_norm", x, runningMean, runningVar, weight, bias, training, momentum, eps)
	}
	return batchNorm("batch_norm", x, runningMean, runningVar, weight, bias, training, momentum, eps)
}

func batchNorm(name string, x, runningMean, runningVar, weight, bias *core.Tensor, training bool, momentum, eps float64) *core.Tensor {
	op := begin(name, &x, optional(&runningMean), optional(&runningVar), optional(&weight), optional(&bias))
	op.floatTensor(x)
	op.normParams(x, weight, bias, runningMean, runningVar)
	batch, channels, inner := op.channels(x)
	op.normShape("running_mean", runningMean, []int{channels})
	op.normShape("running_var", runningVar, []int{channels})
	op.normShape("weight", weight, []int{channels})
	op.normShape("bias", bias, []int{channels})
	switch {
	case op.err != nil:
	case (runningMean == nil) != (runningVar == nil):
		op.failf(core.TypeError, "got one running statistic, want both or none")
	case !training && runningMean == nil:
		op.failf(core.TypeError, "evaluation needs running statistics, got none")
	case training && batch*inner == 1:
		op.failf(core.ShapeError, "training needs more than one value per channel, got an input of shape %v", x.Shape())
	}
	if op.err != nil {
		return op.fail()
	}
	record := op.grad && (derived(x) || weight != nil && derived(weight) || bias != nil && derived(bias))
	in, w, b, rm, rv := op.dense(x), op.dense(weight), op.dense(bias), runningMean, runningVar
	if !training {
		rm, rv = op.dense(runningMean), op.dense(runningVar)
	}
	y := op.outLike(x)
	stats := op.temp(statType(x.DType()), 3, channels) // mean, 1/sqrt(variance + eps), variance
	if op.err != nil {
		return op.fail()
	}
	info := batchNormInfo{batch, channels, inner, training, eps}
	c := info.attrs(op.call(contract.BatchNorm).Out(y).Out(stats).In(in).In(w).In(b))
	if training {
		c.In(nil).In(nil)
	} else {
		c.In(rm).In(rv)
	}
	op.launch(contract.SetEps(c, eps))
	if training && rm != nil && batch*inner > 0 {
		op.moveRunning(runningMean, runningVar, stats, momentum, batch*inner)
	}
	if record {
		n := op.node(batchNormDeriv, x, weight, bias).Save(x, weight, stats)
		n.Any = info
		op.attach(n, y)
	}
	return op.done(y)
}

// moveRunning moves the running statistics towards those of `count` values.
func (op *opContext) moveRunning(mean, variance, stats *core.Tensor, momentum float64, count int) {
	m, v := op.dense(mean), op.dense(variance)
	if op.err != nil {
		return
	}
	c := contract.BatchNormRunningAttrs{Momentum: momentum, Count: float64(count)}.AddTo(op.call(contract.BatchNormRunning).Out(m).Out(v).In(stats))
	c.InPlace = true
	op.launch(c)
	for _, p := range [][2]*core.Tensor{{m, mean}, {v, variance}} {
		if p[0] != p[1] { // it was a copy: what it became goes back
			back := op.call(contract.Copy).Out(p[1]).In(p[0])
			back.InPlace = true
			op.launch(back)
		}
		op.changed(p[1])
	}
}

type batchNormInfo struct {
	batch, channels, inner int
	training               bool
	eps                    float64
}

func (i batchNormInfo) attrs(c *core.Call) *core.Call {
	return contract.BatchNormAttrs{Batch: i.batch, Channels: i.channels, Inner: i.inner, Training: i.training}.AddTo(c)
}

func batchNormDeriv(ctx *core.BackwardContext) {
	info := ctx.Node.Any.(batchNormInfo)
	x, w, stats := ctx.Saved(0), ctx.Saved(1), ctx.Saved(2)
	if ctx.CreateGraph() {
		v := normView{shape: []int{info.batch, info.channels, info.inner}, params: []int{info.channels, 1}, dims: []int{0, 2}, eps: info.eps}
		if !info.training {
			v.mean = Reshape(Narrow(stats, 0, 0, 1), info.channels, 1)
			v.rstd = Reshape(Narrow(stats, 0, 1, 1), info.channels, 1)
		}
		v.derive(ctx, x, w)
		return
	}
	normBackward(ctx, contract.BatchNormBackward, x, w, stats, info.attrs)
}

// normBackward sets the gradients of a norm of channels, which a kernel computes; attrs adds the kernel's attributes to its call.
func normBackward(ctx *core.BackwardContext, k core.KernelID, x, w, stats *core.Tensor, attrs func(*core.Call) *core.Call) {
	op := begin(ctx.Node.Name+"_backward").with(x, ctx.Grad(), w, stats)
	in, g, wd := op.dense(x), op.dense(ctx.Grad()), op.dense(w)
	dx, dw, db := op.normGrads(ctx)
	if op.err != nil {
		ctx.Fail(op.err)
		return
	}
	op.launch(attrs(op.call(k).Out(dx).Out(dw).Out(db).In(in).In(g).In(wd).In(stats)))
	setGrads(ctx, dx, dw, db)
}

func init() {
	batchArgs := []Arg{{Name: "input"}, {Name: "running_mean", Optional: true, Doc: "changed in place in training"},
		{Name: "running_var", Optional: true, Doc: "changed in place in training"},
		{Name: "weight", Optional: true, Doc: "factors, one per channel"}, {Name: "bias", Optional: true, Doc: "summands, one per channel"},
		{Name: "training", Default: false, Doc: "normalise by the batch's own statistics"},
		{Name: "momentum", Default: 0.1, Doc: "how far the running statistics move"},
		{Name: "eps", Default: defaultEps, Doc: "added to the variance"}}
	mean := func(n int) T { return T{Shape: []int{n}, NoGrad: true, Low: -0.5, High: 0.5} }
	variance := func(n int) T { return T{Shape: []int{n}, NoGrad: true, Low: 0.5, High: 2} }
	register("norm",
		Row{Name: "batch_norm", Func: BatchNorm, Memory: true, Args: batchArgs,
			Doc: "The input [N, C, ...], each channel normalised over the batch or, in evaluation, by running statistics.",
			Samples: []Sample{
				{Name: "training", Args: []any{Shaped(4, 3, 5), nil, nil, Shaped(3), Shaped(3), true, 0.1, 1e-3}, Loose: 8},
				{Name: "training long", Args: []any{Shaped(3, 2, 4, 5), nil, nil, Shaped(2), Shaped(2), true, 0.1, 1e-3}, Loose: 8},
				{Name: "training 2-d", Args: []any{Shaped(5, 3), nil, nil, nil, Shaped(3), true, 0.1, 0.1}, Loose: 8},
				{Name: "training many", Args: []any{Shaped(70, 2), nil, nil, Shaped(2), nil, true, 0.1, 0.1}, Loose: 8},
				{Name: "evaluation", Args: []any{Shaped(4, 3, 5), mean(3), variance(3), Shaped(3), Shaped(3), false, 0.1, 1e-3}, Loose: 4},
				{Name: "evaluation long", Args: []any{Shaped(2, 3, 20), mean(3), variance(3), nil, nil, false, 0.1, 1e-3}, Loose: 4},
			}},
	)
}
