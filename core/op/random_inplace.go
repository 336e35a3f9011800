package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// UniformInPlace fills t with uniform random numbers in [low, high).
func UniformInPlace(t *core.Tensor, low, high float64, o RandomOptions) *core.Tensor {
	if parts := drawnFor(t); parts != nil {
		return handOn(parts, "uniform_", t, low, high, o)
	}
	if isComplex(t) { // the parts are uniform
		return onPartsInPlace(t, func(parts *core.Tensor) *core.Tensor { return UniformInPlace(parts, low, high, o) })
	}
	op := begin("uniform_", &t)
	if !(low <= high) || math.IsInf(high-low, 0) {
		op.failf(core.ValueError, "the range must be finite and not reversed, got [%v, %v)", low, high)
	}
	return op.fillRandom(t, o, contract.Uniform, low, high)
}

// NormalInPlace fills t with normal random numbers.
func NormalInPlace(t *core.Tensor, mean, std float64, o RandomOptions) *core.Tensor {
	if parts := drawnFor(t); parts != nil {
		return handOn(parts, "normal_", t, mean, std, o)
	}
	if isComplex(t) { // the parts have half of the variance each
		r := onPartsInPlace(t, func(parts *core.Tensor) *core.Tensor { return NormalInPlace(parts, 0, std*math.Sqrt(0.5), o) })
		if r.Err() != nil || mean == 0 {
			return r
		}
		return AddInPlace(t, core.Num(mean))
	}
	op := begin("normal_", &t)
	op.spread("the standard deviation", std)
	return op.fillRandom(t, o, contract.Normal, mean, std)
}

// ExponentialInPlace fills t with exponentially distributed random numbers of the given rate; the mean is 1 / rate.
func ExponentialInPlace(t *core.Tensor, rate float64, o RandomOptions) *core.Tensor {
	if parts := drawnFor(t); parts != nil {
		return handOn(parts, "exponential_", t, rate, o)
	}
	op := begin("exponential_", &t)
	if !(rate > 0) {
		op.failf(core.ValueError, "the rate must be positive, got %v", rate)
	}
	return op.fillRandom(t, o, contract.Exponential, rate)
}

// LogNormalInPlace fills t with numbers whose logarithm is normal with the given mean and standard deviation.
func LogNormalInPlace(t *core.Tensor, mean, std float64, o RandomOptions) *core.Tensor {
	if parts := drawnFor(t); parts != nil {
		return handOn(parts, "log_normal_", t, mean, std, o)
	}
	op := begin("log_normal_", &t)
	op.spread("the standard deviation", std)
	return op.fillRandom(t, o, contract.LogNormal, mean, std)
}

// CauchyInPlace fills t with Cauchy distributed random numbers.
func CauchyInPlace(t *core.Tensor, median, scale float64, o RandomOptions) *core.Tensor {
	if parts := drawnFor(t); parts != nil {
		return handOn(parts, "cauchy_", t, median, scale, o)
	}
	op := begin("cauchy_", &t)
	op.spread("the scale", scale)
	return op.fillRandom(t, o, contract.Cauchy, median, scale)
}

// GeometricInPlace fills t with the numbers of trials, 1 or more, up to the first success of probability p.
func GeometricInPlace(t *core.Tensor, p float64, o RandomOptions) *core.Tensor {
	if parts := drawnFor(t); parts != nil {
		return handOn(parts, "geometric_", t, p, o)
	}
	op := begin("geometric_", &t)
	if !(p > 0 && p < 1) {
		op.failf(core.ValueError, "the probability must be in (0, 1), got %v", p)
	}
	return op.fillRandom(t, o, contract.Geometric, p)
}

// TruncNormalInPlace fills t with normal random numbers on condition that they lie in [low, high].
func TruncNormalInPlace(t *core.Tensor, mean, std, low, high float64, o RandomOptions) *core.Tensor {
	if parts := drawnFor(t); parts != nil {
		return handOn(parts, "trunc_normal_", t, mean, std, low, high, o)
	}
	op := begin("trunc_normal_", &t)
	if !(std > 0) || !(low < high) {
		op.failf(core.ValueError, "want std > 0 and low < high, got std %v in [%v, %v]", std, low, high)
	}
	return op.fillRandom(t, o, contract.TruncNormal, mean, std, low, high)
}

// BernoulliInPlace fills t, of any dtype, with 1 with probability p, else 0. p is a number or a tensor that broadcasts
// to t.
func BernoulliInPlace(t, p *core.Tensor, o RandomOptions) *core.Tensor {
	if parts := drawnFor(t, p); parts != nil {
		return handOn(parts, "bernoulli_", t, p, o)
	}
	op := begin("bernoulli_", &t, &p)
	if op.err == nil && p.IsNumber() {
		if v := p.Number().Float; !(v >= 0 && v <= 1) {
			op.failf(core.ValueError, "the probability must be in [0, 1], got %v", v)
		}
	} else {
		op.floating("the probability", p)
	}
	if op.err != nil {
		return op.fail()
	}
	if !p.IsNumber() {
		p = op.spreadOver(p, t.Shape())
	}
	return op.overwriteRandom(t, func(dst *core.Tensor) {
		seed, offset := op.reserve(o.Generator, dst, 1)
		c := contract.DrawAttrs{Seed: seed, Offset: offset}.AddTo(op.call(contract.Bernoulli).Out(dst).In(p))
		c.InPlace, c.Overwrites = true, true
		op.launchRandom(c, 4)
	})
}

// RandomInPlace fills t, of any dtype, with random integers in [low, high).
func RandomInPlace(t *core.Tensor, low, high int, o RandomOptions) *core.Tensor {
	if parts := drawnFor(t); parts != nil {
		return handOn(parts, "random_", t, low, high, o)
	}
	op := begin("random_", &t)
	if op.err != nil {
		return op.fail()
	}
	op.integerRange(low, high, t.DType())
	return op.overwriteRandom(t, func(dst *core.Tensor) {
		seed, offset := op.reserve(o.Generator, dst, 2)
		c := contract.RandomIntegersAttrs{Seed: seed, Offset: offset, Low: int64(low), Range: int64(high - low)}.AddTo(op.call(contract.RandomIntegers).Out(dst))
		c.InPlace, c.Overwrites = true, true
		op.launchRandom(c, 4)
	})
}

// spreadOver returns a contiguous tensor of the given shape to which p broadcasts.
func (op *opContext) spreadOver(p *core.Tensor, shape []int) *core.Tensor {
	full, err := core.Broadcast(op.name, p.Shape(), shape)
	op.check(err)
	if op.err == nil && !slices.Equal(full, shape) {
		op.failf(core.ShapeError, "the probability must broadcast to the tensor, got %v and %v", p.Shape(), shape)
	}
	if op.err != nil {
		return p
	}
	return op.dense(op.own(op.repeated(p, shape)))
}

// spread fails unless v can be the width of a distribution.
func (op *opContext) spread(what string, v float64) {
	if !(v >= 0) {
		op.failf(core.ValueError, "%s must not be negative, got %v", what, v)
	}
}

// fillRandom overwrites t with draws from a continuous distribution.
func (op *opContext) fillRandom(t *core.Tensor, o RandomOptions, distribution contract.Distribution, parameters ...float64) *core.Tensor {
	op.floating("the tensor to fill", t)
	return op.overwriteRandom(t, func(dst *core.Tensor) {
		seed, offset := op.reserve(o.Generator, dst, wordsOf(dst.DType()))
		c := contract.RandomAttrs{Distribution: distribution, Seed: seed, Offset: offset, Parameters: parameters}.AddTo(op.call(contract.Random).Out(dst))
		c.InPlace, c.Overwrites = true, true
		op.launchRandom(c, 4)
	})
}

// overwriteRandom replaces t's elements by what draw writes to a contiguous tensor of t's shape: t itself, or one that is
// then copied.
func (op *opContext) overwriteRandom(t *core.Tensor, draw func(dst *core.Tensor)) *core.Tensor {
	op.inPlace(t)
	if op.err != nil {
		return op.fail()
	}
	if t.Contiguous() {
		draw(t)
	} else {
		dst := op.temp(t.DType(), t.Shape()...)
		if op.err != nil {
			return op.fail()
		}
		draw(dst)
		c := op.call(contract.Copy).Out(t).In(dst)
		c.InPlace, c.Overwrites = true, true
		op.launch(c)
	}
	op.changed(t)
	if op.grad {
		op.rebase(op.node(overwrittenDeriv, t), t)
	}
	return op.changedTo(t)
}

// overwrittenDeriv is the derivative of an operation whose result does not depend on its inputs: no gradient flows.
func overwrittenDeriv(*core.BackwardContext) {}
