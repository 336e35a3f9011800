package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// CTCOptions are the optional arguments of [CTCLoss].
type CTCOptions struct {
	// Blank is the class that stands for no label.
	Blank int
	// Reduction is "mean" (the default), "sum" or "none". The mean is of each loss over the length of its target.
	Reduction string
	// ZeroInfinity makes losses of targets that do not fit their inputs, which are infinite, 0.
	ZeroInfinity bool
}

// CTCLoss returns the negative logarithm of the probability that a sequence of classes, drawn independently, becomes the
// target when repeats are merged and then blanks are dropped: connectionist temporal classification.
//
// logProbs are the logarithms [T, N, C] of the probabilities, of which the first inputLengths[n] count; targets are integers,
// [N, S] of which the first targetLengths[n] count, or all targets one after the other. Without N in logProbs, there is one
// target and one length each, and the loss has no dimension.
//
// Graves, Fernández, Gomez, Schmidhuber: Connectionist temporal classification: labelling unsegmented sequence data with
// recurrent neural networks, 2006.
func CTCLoss(logProbs, targets *core.Tensor, inputLengths, targetLengths []int, o CTCOptions) *core.Tensor {
	if parts := distributed(logProbs, targets); parts != nil {
		return handOn(parts, "ctc_loss", logProbs, targets, inputLengths, targetLengths, o)
	}
	op := begin("ctc_loss", &logProbs, &targets)
	op.floatTensor(logProbs)
	c := &ctc{inputs: slices.Clone(inputLengths), targets: slices.Clone(targetLengths), blank: o.Blank}
	c.check(&op, logProbs, targets)
	code := op.reductionCode(o.Reduction)
	return op.compose(func() *core.Tensor {
		x := logProbs
		if x.Dim() == 2 {
			x = Unsqueeze(x, 1)
		}
		if x.DType().IsHalf() {
			x = castTo(x, core.Float32)
		}
		loss := c.losses(x, targets)
		if o.ZeroInfinity {
			loss = Where(Eq(loss, core.Num(math.Inf(1))), core.Num(0), loss)
		}
		switch {
		case code == contract.LossMean:
			shares := make([]float64, c.n)
			for i, s := range c.targets {
				shares[i] = 1 / float64(max(s, 1)*c.n)
			}
			loss = Sum(Mul(loss, FloatsLike(x, shares, c.n)), nil, false)
		case code == contract.LossSum:
			loss = Sum(loss, nil, false)
		case logProbs.Dim() == 2:
			loss = Reshape(loss)
		}
		return castTo(loss, logProbs.DType())
	})
}

// A ctc is the sizes of a loss: n samples of up to t steps, with targets of up to s labels.
type ctc struct {
	inputs, targets []int // the lengths of each sample
	starts          []int // where the labels of each start among all
	blank           int
	t, n, s         int
}

// check checks the arguments and sets the sizes.
func (c *ctc) check(op *opContext, x, targets *core.Tensor) {
	switch {
	case op.err != nil:
		return
	case targets.IsNumber() || targets.DType().IsFloat() || targets.DType() == core.Bool:
		op.failf(core.TypeError, "the targets must be a tensor of integers")
		return
	case x.Dim() != 2 && x.Dim() != 3:
		op.failf(core.ShapeError, "got logarithms of probabilities of shape %v, want [T, N, C] or [T, C]", x.Shape())
		return
	}
	c.t, c.n = x.Size(0), 1
	if x.Dim() == 3 {
		c.n = x.Size(1)
	}
	padded := targets.Dim() == 2 && x.Dim() == 3
	switch {
	case c.blank < 0 || c.blank >= x.Size(-1):
		op.failf(core.ValueError, "blank must be one of the %d classes, got %d", x.Size(-1), c.blank)
	case len(c.inputs) != c.n || len(c.targets) != c.n:
		op.failf(core.ValueError, "got %d lengths of inputs and %d of targets, want %d of each", len(c.inputs), len(c.targets), c.n)
	case !padded && targets.Dim() != 1 || padded && targets.Size(0) != c.n:
		op.failf(core.ShapeError, "got logarithms of probabilities of shape %v and targets of shape %v, want [T, N, C] and [N, S] or all targets in one dimension",
			x.Shape(), targets.Shape())
	}
	if op.err != nil {
		return
	}
	c.starts = make([]int, c.n)
	sum := 0
	for i, n := range c.targets {
		c.starts[i] = sum
		if padded {
			c.starts[i] = i * targets.Size(1)
		}
		sum += n
		c.s = max(c.s, n)
		switch {
		case c.inputs[i] < 0 || c.inputs[i] > c.t:
			op.failf(core.ValueError, "length %d of input %d is not within its %d steps", c.inputs[i], i, c.t)
		case n < 0 || padded && n > targets.Size(1):
			op.failf(core.ValueError, "length %d of target %d is not within %v", n, i, targets.Shape())
		}
	}
	if !padded && sum != targets.Numel() && (x.Dim() == 3 || sum > targets.Numel()) {
		op.failf(core.ValueError, "the lengths of the targets add up to %d, got %d targets", sum, targets.Numel())
	}
}

// losses returns the loss [N] of each sample. It is one kernel, or, on a device without it, made of its steps.
func (c *ctc) losses(x, targets *core.Tensor) *core.Tensor {
	if err := firstBroken(x, targets); err != nil {
		return err
	}
	if !x.Device().Supports(contract.CTCLoss) {
		return c.stepped(x, c.labels(x, targets))
	}
	targets = castTo(targets, core.Int64)
	op := begin("ctc_loss").with(x, targets)
	in, labels := op.dense(x), op.dense(targets)
	loss := op.out(x.DType(), []int{c.n})
	var forward *core.Tensor
	if op.grad {
		forward = op.temp(x.DType(), c.n, c.t, 2*c.s+3)
	}
	if op.err != nil {
		return op.fail()
	}
	op.launch(c.attrs(op.call(contract.CTCLoss).Out(loss).Out(forward).In(in).In(labels)))
	if op.grad {
		n := op.node(ctcDeriv, x).Save(x, labels, forward)
		n.Any = c
		op.attach(n, loss)
	}
	return op.done(loss)
}

// attrs adds the attributes of the kernels.
func (c *ctc) attrs(call *core.Call) *core.Call {
	a := contract.CTCAttrs{Blank: c.blank, Labels: c.s}
	for i, start := range c.starts {
		a.Samples = append(a.Samples, int64(start), int64(c.inputs[i]), int64(c.targets[i]))
	}
	call.Work = max(call.Work, c.n*c.t*(8*c.s+4))
	return a.AddTo(call)
}

func ctcDeriv(ctx *core.BackwardContext) {
	c := ctx.Node.Any.(*ctc)
	x, targets, forward := ctx.Saved(0), ctx.Saved(1), ctx.Saved(2)
	if ctx.CreateGraph() {
		ctx.Set(0, c.gradient(x, c.labels(x, targets), ctx.Grad()))
		return
	}
	op := begin("ctc_loss_backward").with(x, targets, forward, ctx.Grad())
	g, dx := op.dense(ctx.Grad()), op.out(x.DType(), x.Shape())
	if op.err != nil {
		ctx.Fail(op.err)
		return
	}
	op.launch(c.attrs(op.call(contract.CTCLossBackward).Out(dx).In(x).In(targets).In(g).In(forward)))
	ctx.Set(0, op.done(dx))
}

// constant returns a tensor with the given elements on x's device.
func constant[E core.Element](x *core.Tensor, values []E, shape ...int) *core.Tensor {
	return ToDevice(core.FromSlice(values, shape...), x.Device())
}

// FloatsLike returns a tensor of x's dtype, on its device, with the given elements. It makes none of float64 for another dtype, which a GPU need
// not have.
func FloatsLike(x *core.Tensor, values []float64, shape ...int) *core.Tensor {
	if x.DType() == core.Float64 {
		return constant(x, values, shape...)
	}
	narrow := make([]float32, len(values))
	for i, v := range values {
		narrow[i] = float32(v)
	}
	return castTo(constant(x, narrow, shape...), x.DType())
}

// intsOf are the options of an int64 tensor on x's device.
func intsOf(x *core.Tensor) TensorOptions {
	d := core.Int64
	return TensorOptions{DType: &d, Device: x.Device()}
}
