package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
)

// labels returns the labels [N, 2S+1] of the samples with a blank before each and at the end; blanks go on behind them.
func (c *ctc) labels(x, targets *core.Tensor) *core.Tensor {
	blank := Full([]int{c.n, 1}, core.IntNum(int64(c.blank)), intsOf(x))
	if c.s == 0 {
		return blank
	}
	index, inside := make([]int64, c.n*c.s), make([]bool, c.n*c.s)
	for i, n := range c.targets {
		for j := range n {
			index[i*c.s+j], inside[i*c.s+j] = int64(c.starts[i]+j), true
		}
	}
	own := castTo(Take(targets, constant(x, index, c.n, c.s)), core.Int64)
	own = Where(constant(x, inside, c.n, c.s), own, core.IntNum(int64(c.blank)))
	pairs := Stack([]*core.Tensor{Expand(blank, c.n, c.s), own}, 2)
	return Cat([]*core.Tensor{Reshape(pairs, c.n, 2*c.s), blank}, 1)
}

// ctcSteps are made of the forward variables [N, places] of each step: the logarithm of the probability of all ways to be at a place of the
// labels. The way to a step is from the same place, the one before, or, where both hold different labels, from the one before that.
type ctcSteps struct {
	before []*core.Tensor // the logarithms [N, places, 3] of the ways to each step but the first
	total  []*core.Tensor // and their log-sum-exp [N, places]
	ended  *core.Tensor   // the logarithms [N, 2] of the ways to end
	ends   *core.Tensor   // and their places
}

// steps goes through at least a step of at least a sample.
func (c *ctc) steps(x, labels *core.Tensor) (r ctcSteps, err *core.Tensor) {
	none, places := core.Num(math.Inf(-1)), labels.Size(1)
	steps := Unbind(Gather(x, 2, Expand(Unsqueeze(labels, 0), c.t, c.n, places)), 0)
	if err := firstBroken(steps...); err != nil {
		return r, err
	}
	forward := Where(Lt(countTo(x, places), core.IntNum(2)), steps[0], none)
	ways := zerosFor(x, x.DType(), []int{c.n, places, 3})
	if places > 2 {
		skips := Select(Narrow(ways, 1, 2, places-2), 2, 0)
		copied := CopyInPlace(skips, Where(Ne(Narrow(labels, 1, 2, places-2), Narrow(labels, 1, 0, places-2)), core.Num(0), none))
		if err := firstBroken(copied); err != nil {
			return r, err
		}
	}
	first := slices.Min(c.inputs)
	inf := math.Inf(-1)
	for t := 1; t < c.t; t++ {
		before := Add(Unfold(Pad(forward, []int{2, 0}, PadOptions{Value: inf}), 1, 3, 1), ways)
		total := LogSumExp(before, []int{2}, false)
		next := Add(total, steps[t])
		if t >= first {
			next = Where(constant(x, c.lasting(t), c.n, 1), next, forward)
		}
		forward = next
		r.before, r.total = append(r.before, before), append(r.total, total)
	}
	ends, counts := make([]int64, 2*c.n), make([]float64, 2*c.n)
	for i, s := range c.targets {
		ends[2*i], ends[2*i+1] = int64(2*s), int64(max(2*s-1, 0))
		if s == 0 {
			counts[2*i+1] = inf
		}
	}
	r.ends = constant(x, ends, c.n, 2)
	r.ended = Add(Gather(forward, 1, r.ends), FloatsLike(x, counts, c.n, 2))
	return r, firstBroken(r.ended)
}

// stepped returns the loss [N] of each sample, of operations for each step.
func (c *ctc) stepped(x, labels *core.Tensor) *core.Tensor {
	if c.t == 0 || c.n == 0 {
		return c.withoutSteps(x, zerosFor(x, x.DType(), []int{c.n}))
	}
	r, err := c.steps(x, labels)
	if err != nil {
		return err
	}
	return c.withoutSteps(x, Neg(LogSumExp(r.ended, []int{1}, false)))
}

// gradient returns the gradient of x from that of the losses, of operations that can be differentiated again: from the last step to the first, the
// gradient of each forward variable is shared out among the ways to it.
func (c *ctc) gradient(x, labels, grad *core.Tensor) *core.Tensor {
	if c.t == 0 || c.n == 0 {
		return Mul(x, core.Num(0))
	}
	r, err := c.steps(x, labels)
	if err != nil {
		return err
	}
	places := labels.Size(1)
	g := Unsqueeze(Where(constant(x, c.lasting(0), c.n), Neg(grad), core.Num(0)), 1)
	g = logSumExpGrad.apply(nil, Expand(g, c.n, 2), r.ended, Expand(LogSumExp(r.ended, []int{1}, true), c.n, 2))
	g = ScatterAdd(zerosFor(x, x.DType(), []int{c.n, places}), 1, r.ends, g)
	grads := make([]*core.Tensor, c.t)
	for t := c.t - 1; t > 0; t-- {
		lasts := constant(x, c.lasting(t), c.n, 1)
		grads[t] = Where(lasts, g, core.Num(0))
		full := []int{c.n, places, 3}
		ways := logSumExpGrad.apply(nil, Expand(Unsqueeze(g, 2), full...), r.before[t-1], Expand(Unsqueeze(r.total[t-1], 2), full...))
		sum := Select(ways, 2, 2)
		for k := range min(2, places-1) {
			sum = Add(sum, Pad(Narrow(Select(ways, 2, 1-k), 1, k+1, places-k-1), []int{0, k + 1}, PadOptions{}))
		}
		g = Where(lasts, sum, g)
	}
	grads[0] = Where(Lt(countTo(x, places), core.IntNum(2)), g, core.Num(0))
	at := Expand(Unsqueeze(labels, 0), c.t, c.n, places)
	return ScatterAdd(zerosFor(x, x.DType(), x.Shape()), 2, at, Stack(grads, 0))
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
