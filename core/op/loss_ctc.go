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
	c := ctc{inputs: inputLengths, targets: targetLengths, blank: o.Blank}
	starts := c.check(&op, logProbs, targets)
	code := op.reductionCode(o.Reduction)
	return op.compose(func() *core.Tensor {
		x := logProbs
		if x.Dim() == 2 {
			x = Unsqueeze(x, 1)
		}
		if x.DType().IsHalf() {
			x = castTo(x, core.Float32)
		}
		loss := c.losses(x, c.labels(x, targets, starts))
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
	inputs, targets []int
	blank           int
	t, n, s         int
}

// check checks the arguments and returns where each sample's labels start among all of targets.
func (c *ctc) check(op *opContext, x, targets *core.Tensor) (starts []int) {
	switch {
	case op.err != nil:
		return nil
	case targets.IsNumber() || targets.DType().IsFloat() || targets.DType() == core.Bool:
		op.failf(core.TypeError, "the targets must be a tensor of integers")
		return nil
	case x.Dim() != 2 && x.Dim() != 3:
		op.failf(core.ShapeError, "got logarithms of probabilities of shape %v, want [T, N, C] or [T, C]", x.Shape())
		return nil
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
		return nil
	}
	starts = make([]int, c.n)
	sum := 0
	for i, n := range c.targets {
		starts[i] = sum
		if padded {
			starts[i] = i * targets.Size(1)
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
	return starts
}

// labels returns the labels [N, 2S+1] of the samples with a blank before each and at the end; blanks go on behind them.
func (c *ctc) labels(x, targets *core.Tensor, starts []int) *core.Tensor {
	blank := Full([]int{c.n, 1}, core.IntNum(int64(c.blank)), intsOf(x))
	if c.s == 0 {
		return blank
	}
	index, inside := make([]int64, c.n*c.s), make([]bool, c.n*c.s)
	for i, n := range c.targets {
		for j := range n {
			index[i*c.s+j], inside[i*c.s+j] = int64(starts[i]+j), true
		}
	}
	own := castTo(Take(targets, constant(x, index, c.n, c.s)), core.Int64)
	own = Where(constant(x, inside, c.n, c.s), own, core.IntNum(int64(c.blank)))
	pairs := Stack([]*core.Tensor{Expand(blank, c.n, c.s), own}, 2)
	return Cat([]*core.Tensor{Reshape(pairs, c.n, 2*c.s), blank}, 1)
}

// losses returns the loss [N] of each sample. The forward variable at place s of the labels is the logarithm of the
// probability of all ways to be there; its way to a step is from the same place, the one before, or, where both hold
// different labels, from the one before that.
func (c *ctc) losses(x, labels *core.Tensor) *core.Tensor {
	if c.t == 0 || c.n == 0 {
		return c.withoutSteps(x, zerosFor(x, x.DType(), []int{c.n}))
	}
	none, places := core.Num(math.Inf(-1)), labels.Size(1)
	steps := Unbind(Gather(x, 2, Expand(Unsqueeze(labels, 0), c.t, c.n, places)), 0)
	if err := steps[0].Err(); err != nil {
		return core.ErrorTensor(err)
	}
	forward := Where(Lt(countTo(x, places), core.IntNum(2)), steps[0], none)
	ways := zerosFor(x, x.DType(), []int{c.n, places, 3})
	if places > 2 {
		skips := Select(Narrow(ways, 1, 2, places-2), 2, 0)
		copied := CopyInPlace(skips, Where(Ne(Narrow(labels, 1, 2, places-2), Narrow(labels, 1, 0, places-2)), core.Num(0), none))
		if err := copied.Err(); err != nil {
			return core.ErrorTensor(err)
		}
	}
	first := c.t
	for _, n := range c.inputs {
		first = min(first, n)
	}
	inf := math.Inf(-1)
	for t := 1; t < c.t; t++ {
		before := Unfold(Pad(forward, []int{2, 0}, PadOptions{Value: inf}), 1, 3, 1)
		next := Add(LogSumExp(Add(before, ways), []int{2}, false), steps[t])
		if t >= first {
			next = Where(constant(x, c.lasting(t), c.n, 1), next, forward)
		}
		forward = next
	}
	ends, counts := make([]int64, 2*c.n), make([]float64, 2*c.n)
	for i, s := range c.targets {
		ends[2*i], ends[2*i+1] = int64(2*s), int64(max(2*s-1, 0))
		if s == 0 {
			counts[2*i+1] = inf
		}
	}
	ended := Add(Gather(forward, 1, constant(x, ends, c.n, 2)), FloatsLike(x, counts, c.n, 2))
	return c.withoutSteps(x, Neg(LogSumExp(ended, []int{1}, false)))
}

// lasting says which samples have a step t.
func (c *ctc) lasting(t int) []bool {
	out := make([]bool, c.n)
	for i, n := range c.inputs {
		out[i] = t < n
	}
	return out
}

// withoutSteps returns losses with those of samples without a step replaced: 0 without a label, else infinite.
func (c *ctc) withoutSteps(x, losses *core.Tensor) *core.Tensor {
	stepping, values := c.lasting(0), make([]float64, c.n)
	if !slices.Contains(stepping, false) {
		return losses
	}
	for i, s := range c.targets {
		if s > 0 {
			values[i] = math.Inf(1)
		}
	}
	return Where(constant(x, stepping, c.n), losses, FloatsLike(x, values, c.n))
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
