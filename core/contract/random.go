package contract

import "github.com/plait-ml/plait/core"

// Random numbers are functions of the generator's seed and offset. Package core says how many numbers an offset stands
// for.
var (
	// Random samples from a continuous distribution.
	Random = declare(Contract{Name: "random", Outs: "y", Ints: "distribution seed offset", Floats: "parameters..."})
	// RandomIntegers samples integers from low to low+range-1. A range of 0 stands for 2^64.
	RandomIntegers = declare(Contract{Name: "random_integers", Outs: "y", Ints: "seed offset low range"})
	// Bernoulli samples 0 or 1. The probability p is a number or a contiguous tensor of y's shape.
	Bernoulli = declare(Contract{Name: "bernoulli", Outs: "y", Ins: "p", Ints: "seed offset"})
	// Poisson samples numbers of events, of the dtype of the contiguous rates. They are drawn from a sequence of random numbers whose seed is
	// the first two words.
	Poisson = declare(Contract{Name: "poisson", Outs: "y", Ins: "rates", Ints: "seed offset"})
	// Randperm writes a random permutation of 0, ..., n-1 as int64.
	Randperm = declare(Contract{Name: "randperm", Outs: "y", Ints: "seed offset"})
	// Multinomial samples int64 indices in proportion to the weights, the last dimension of its input.
	Multinomial = declare(Contract{Name: "multinomial", Outs: "y", Ins: "weights", Ints: "seed offset replacement"})
)

// A Distribution is a distribution that [Random] samples from.
type Distribution int64

// The distributions of [Random], with their parameters.
const (
	Uniform     Distribution = iota // low, high; C: PLAITK_UNIFORM
	Normal                          // mean, standard deviation; C: PLAITK_NORMAL
	Exponential                     // rate; C: PLAITK_EXPONENTIAL
	LogNormal                       // mean and standard deviation of the logarithm; C: PLAITK_LOG_NORMAL
	Cauchy                          // median, scale; C: PLAITK_CAUCHY
	Geometric                       // probability of success; C: PLAITK_GEOMETRIC
	TruncNormal                     // mean, standard deviation, low, high; C: PLAITK_TRUNC_NORMAL
)

// RandomAttrs are the attributes of [Random].
type RandomAttrs struct {
	Distribution Distribution
	Seed, Offset int64
	Parameters   []float64
}

// RandomIntegersAttrs are the attributes of [RandomIntegers].
type RandomIntegersAttrs struct{ Seed, Offset, Low, Range int64 }

// DrawAttrs are the attributes of [Bernoulli], [Poisson], [Randperm] and [Multinomial].
type DrawAttrs struct {
	Seed, Offset int64
	Replacement  bool // of Multinomial: an index may be sampled again
}

// AddTo adds the attributes to a call and returns it.
func (a DrawAttrs) AddTo(c *core.Call) *core.Call {
	if c.Int(a.Seed, a.Offset); c.Kernel == Multinomial {
		c.Int(Flag(a.Replacement))
	}
	return c
}

// DrawOf reads the attributes of a call.
func DrawOf(c *core.Call) DrawAttrs {
	return DrawAttrs{c.Ints[0], c.Ints[1], len(c.Ints) > 2 && c.Ints[2] != 0}
}

// DrawsByPosition reports whether the number of an element depends on its position only. Such a kernel can fill a part
// of a tensor.
func DrawsByPosition(k core.KernelID) bool {
	return k == Random || k == RandomIntegers || k == Bernoulli
}

// MoveOffset adds to the generator's offset in a call of such a kernel.
func MoveOffset(c *core.Call, by int64) {
	if c.Kernel == Random {
		c.Ints[2] += by
	} else {
		c.Ints[1] += by
	}
}
