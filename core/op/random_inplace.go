package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
)

// UniformInPlace fills t with uniform random numbers in [low, high).
func UniformInPlace(t *core.Tensor, low, high float64, o RandomOptions) *core.Tensor {
	a := begin("uniform_", t)
	if !(low <= high) || math.IsInf(high-low, 0) {
		a.failf(core.ValueError, "the range must be finite and not reversed, got [%v, %v)", low, high)
	}
	return a.fillRandom(t, o, uniformDistribution, low, high)
}

// NormalInPlace fills t with normal random numbers.
func NormalInPlace(t *core.Tensor, mean, std float64, o RandomOptions) *core.Tensor {
	a := begin("normal_", t)
	a.spread("the standard deviation", std)
	return a.fillRandom(t, o, normalDistribution, mean, std)
}

// ExponentialInPlace fills t with exponentially distributed random numbers of the given rate; the mean is 1 / rate.
func ExponentialInPlace(t *core.Tensor, rate float64, o RandomOptions) *core.Tensor {
	a := begin("exponential_", t)
	if !(rate > 0) {
		a.failf(core.ValueError, "the rate must be positive, got %v", rate)
	}
	return a.fillRandom(t, o, exponentialDistribution, rate)
}

// LogNormalInPlace fills t with numbers whose logarithm is normal with the given mean and standard deviation.
func LogNormalInPlace(t *core.Tensor, mean, std float64, o RandomOptions) *core.Tensor {
	a := begin("log_normal_", t)
	a.spread("the standard deviation", std)
	return a.fillRandom(t, o, logNormalDistribution, mean, std)
}

// CauchyInPlace fills t with Cauchy distributed random numbers.
func CauchyInPlace(t *core.Tensor, median, scale float64, o RandomOptions) *core.Tensor {
	a := begin("cauchy_", t)
	a.spread("the scale", scale)
	return a.fillRandom(t, o, cauchyDistribution, median, scale)
}

// GeometricInPlace fills t with the numbers of trials, 1 or more, up to the first success of probability p.
func GeometricInPlace(t *core.Tensor, p float64, o RandomOptions) *core.Tensor {
	a := begin("geometric_", t)
	if !(p > 0 && p < 1) {
		a.failf(core.ValueError, "the probability must be in (0, 1), got %v", p)
	}
	return a.fillRandom(t, o, geometricDistribution, p)
}

// TruncNormalInPlace fills t with normal random numbers on condition that they lie in [low, high].
func TruncNormalInPlace(t *core.Tensor, mean, std, low, high float64, o RandomOptions) *core.Tensor {
	a := begin("trunc_normal_", t)
	if !(std > 0) || !(low < high) {
		a.failf(core.ValueError, "want std > 0 and low < high, got std %v in [%v, %v]", std, low, high)
	}
	return a.fillRandom(t, o, truncNormalDistribution, mean, std, low, high)
}

// BernoulliInPlace fills t, of any dtype, with 1 with probability p, else 0. p is a number or a tensor that broadcasts
// to t.
func BernoulliInPlace(t, p *core.Tensor, o RandomOptions) *core.Tensor {
	a := begin("bernoulli_", t, p)
	if a.err == nil && p.IsNumber() {
		if v := p.Number().Float; !(v >= 0 && v <= 1) {
			a.failf(core.ValueError, "the probability must be in [0, 1], got %v", v)
		}
	} else {
		a.floating("the probability", p)
	}
	if a.err != nil {
		return a.fail()
	}
	if !p.IsNumber() {
		p = a.spreadOver(p, t.Shape())
	}
	return a.overwriteRandom(t, func(dst *core.Tensor) {
		seed, offset := a.reserve(o.Generator, dst, 1)
		c := a.call(bernoulliKernel).Out(dst).In(p).Int(seed, offset)
		c.InPlace, c.Overwrites = true, true
		a.launchRandom(c, 4)
	})
}

// RandomInPlace fills t, of any dtype, with random integers in [low, high).
func RandomInPlace(t *core.Tensor, low, high int, o RandomOptions) *core.Tensor {
	a := begin("random_", t)
	if a.err != nil {
		return a.fail()
	}
	a.integerRange(low, high, t.DType())
	return a.overwriteRandom(t, func(dst *core.Tensor) {
		seed, offset := a.reserve(o.Generator, dst, 2)
		c := a.call(randomIntegersKernel).Out(dst).Int(seed, offset, int64(low), int64(high-low))
		c.InPlace, c.Overwrites = true, true
		a.launchRandom(c, 4)
	})
}

// spreadOver returns a contiguous tensor of the given shape to which p broadcasts.
func (a *application) spreadOver(p *core.Tensor, shape []int) *core.Tensor {
	full, err := core.Broadcast(a.name, p.Shape(), shape)
	a.check(err)
	if a.err == nil && !slices.Equal(full, shape) {
		a.failf(core.ShapeError, "the probability must broadcast to the tensor, got %v and %v", p.Shape(), shape)
	}
	if a.err != nil {
		return p
	}
	return a.dense(a.own(a.repeated(p, shape)))
}

// spread fails unless v can be the width of a distribution.
func (a *application) spread(what string, v float64) {
	if !(v >= 0) {
		a.failf(core.ValueError, "%s must not be negative, got %v", what, v)
	}
}

// fillRandom overwrites t with draws from a continuous distribution.
func (a *application) fillRandom(t *core.Tensor, o RandomOptions, distribution int64, parameters ...float64) *core.Tensor {
	a.floating("the tensor to fill", t)
	return a.overwriteRandom(t, func(dst *core.Tensor) {
		seed, offset := a.reserve(o.Generator, dst, wordsOf(dst.DType()))
		c := a.call(randomKernel).Out(dst).Int(distribution, seed, offset).Float(parameters...)
		c.InPlace, c.Overwrites = true, true
		a.launchRandom(c, 4)
	})
}

// overwriteRandom replaces t's elements by what draw writes to a contiguous tensor of t's shape: t itself, or one that is
// then copied.
func (a *application) overwriteRandom(t *core.Tensor, draw func(dst *core.Tensor)) *core.Tensor {
	a.inPlace(t)
	if a.err != nil {
		return a.fail()
	}
	if t.Contiguous() {
		draw(t)
	} else {
		dst := a.temp(t.DType(), t.Shape()...)
		if a.err != nil {
			return a.fail()
		}
		draw(dst)
		c := a.call(copyKernel).Out(t).In(dst)
		c.InPlace, c.Overwrites = true, true
		a.launch(c)
	}
	a.changed(t)
	if a.grad {
		a.rebase(a.node(overwrittenDeriv, t), t)
	}
	return a.changedTo(t)
}

// overwrittenDeriv is the derivative of an operation whose result does not depend on its inputs: no gradient flows.
func overwrittenDeriv(*core.Derivation) {}
