package op

import (
	"cmp"
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// RandomOptions say of which dtype random numbers are, where they go and which generator they come from.
type RandomOptions struct {
	// DType is the dtype of the result; nil means the default: the context's default dtype, int64 for integers, the dtype
	// of the argument for the functions that make a tensor like another.
	DType *core.DType
	// Device is where the result goes; nil means the default device, or that of the argument.
	Device core.Device
	// Generator is where the numbers come from; nil means the rank's generator for the device.
	Generator *core.Generator
}

// Rand returns uniform random numbers in [0, 1) of the default dtype.
func Rand(shape ...int) *core.Tensor { return RandWith(shape, RandomOptions{}) }

// RandWith is [Rand] with options.
func RandWith(shape []int, o RandomOptions) *core.Tensor {
	if parts := drawnFor(); parts != nil {
		return handOn(parts, "rand", shape, o)
	}
	return drawNew("rand", shape, o, contract.Uniform, 0, 1)
}

// Randn returns normal random numbers with mean 0 and variance 1 of the default dtype.
func Randn(shape ...int) *core.Tensor { return RandnWith(shape, RandomOptions{}) }

// RandnWith is [Randn] with options.
func RandnWith(shape []int, o RandomOptions) *core.Tensor {
	if parts := drawnFor(); parts != nil {
		return handOn(parts, "randn", shape, o)
	}
	return drawNew("randn", shape, o, contract.Normal, 0, 1)
}

// RandLike returns uniform random numbers in [0, 1) of the shape, dtype and device of x.
func RandLike(x *core.Tensor, o RandomOptions) *core.Tensor {
	if parts := drawnFor(x); parts != nil {
		return handOn(parts, "rand_like", x, o)
	}
	if err := x.Usable("rand_like"); err != nil {
		return core.ErrorTensor(err)
	}
	return drawNew("rand_like", x.Shape(), o.like(x), contract.Uniform, 0, 1)
}

// RandnLike returns normal random numbers of the shape, dtype and device of x.
func RandnLike(x *core.Tensor, o RandomOptions) *core.Tensor {
	if parts := drawnFor(x); parts != nil {
		return handOn(parts, "randn_like", x, o)
	}
	if err := x.Usable("randn_like"); err != nil {
		return core.ErrorTensor(err)
	}
	return drawNew("randn_like", x.Shape(), o.like(x), contract.Normal, 0, 1)
}

// like returns o with what it leaves open taken from x.
func (o RandomOptions) like(x *core.Tensor) RandomOptions {
	d := x.DType()
	o.DType = cmp.Or(o.DType, &d)
	if o.Device == nil {
		o.Device = x.Device()
	}
	return o
}

// drawNew returns a new tensor of draws from a continuous distribution.
func drawNew(name string, shape []int, o RandomOptions, distribution contract.Distribution, parameters ...float64) *core.Tensor {
	op := begin(name).on(o.Device)
	d := op.mode.Context().DefaultDType()
	if o.DType != nil {
		d = *o.DType
	}
	if op.err == nil && d.IsComplex() {
		return op.compose(func() *core.Tensor { return drawComplex(name, shape, d, o, distribution) })
	}
	if !d.IsFloat() {
		op.failf(core.DTypeError, "the result must be of a floating-point or complex dtype, got %v", d)
	}
	out := op.out(d, shape)
	if op.err != nil {
		return op.fail()
	}
	seed, offset := op.reserve(o.Generator, out, wordsOf(d))
	c := contract.RandomAttrs{Distribution: distribution, Seed: seed, Offset: offset, Parameters: parameters}.AddTo(op.call(contract.Random).Out(out))
	op.launchRandom(c, 4)
	return op.done(out)
}

// drawComplex returns complex numbers whose parts are uniform in [0, 1), or normal with the variance 1/2, so that the numbers' is 1.
func drawComplex(name string, shape []int, d core.DType, o RandomOptions, distribution contract.Distribution) *core.Tensor {
	part := d.Part()
	o.DType = &part
	parameter := 1.0
	if distribution == contract.Normal {
		parameter = math.Sqrt(0.5)
	}
	return ViewAsComplex(drawNew(name, append(slices.Clone(shape), 2), o, distribution, 0, parameter))
}

// wordsOf returns how many 32-bit words an element of a continuous distribution takes.
func wordsOf(d core.DType) int {
	if d == core.Float64 {
		return 2
	}
	return 1
}

// reserve takes the counters that a draw of t needs from g, or from the rank's generator.
func (op *opContext) reserve(g *core.Generator, t *core.Tensor, words int) (seed, offset int64) {
	return op.reserveWords(g, t.Numel()*words)
}

// ownNumbers fails inside a vmap whose parts each draw their own numbers, which the op has not seen to.
func (op *opContext) ownNumbers() {
	if op.err == nil && drawing() != nil {
		op.failf(core.NotImplemented, "not possible inside vmap with numbers that differ from part to part")
	}
}

func (op *opContext) reserveWords(g *core.Generator, words int) (seed, offset int64) {
	op.ownNumbers()
	if g == nil {
		g = op.mode.Context().Generator(op.stream.Device())
	}
	s, o := g.Next((uint64(words) + 3) / 4)
	return int64(s), int64(o)
}

// launchRandom launches a call whose elements each cost as much as `cost` elements moved.
func (op *opContext) launchRandom(c *core.Call, cost int) {
	c.Work *= cost
	op.launch(c)
}

// Randint returns random integers in [low, high), int64.
func Randint(low, high int, shape ...int) *core.Tensor {
	return RandintWith(low, high, shape, RandomOptions{})
}

// RandintWith is [Randint] with options.
func RandintWith(low, high int, shape []int, o RandomOptions) *core.Tensor {
	if parts := drawnFor(); parts != nil {
		return handOn(parts, "randint", low, high, shape, o)
	}
	op := begin("randint").on(o.Device)
	d := core.Int64
	if o.DType != nil {
		d = *o.DType
	}
	op.integerRange(low, high, d)
	out := op.out(d, shape)
	if op.err != nil {
		return op.fail()
	}
	seed, offset := op.reserve(o.Generator, out, 2)
	c := contract.RandomIntegersAttrs{Seed: seed, Offset: offset, Low: int64(low), Range: int64(high - low)}.AddTo(op.call(contract.RandomIntegers).Out(out))
	op.launchRandom(c, 4)
	return op.done(out)
}

// RandintLike returns random integers in [low, high) of the shape, dtype and device of x.
func RandintLike(x *core.Tensor, low, high int, o RandomOptions) *core.Tensor {
	if parts := drawnFor(x); parts != nil {
		return handOn(parts, "randint_like", x, low, high, o)
	}
	if err := x.Usable("randint_like"); err != nil {
		return core.ErrorTensor(err)
	}
	return RandintWith(low, high, x.Shape(), o.like(x))
}

// integerRange fails unless [low, high) has elements and all of them fit the dtype.
func (op *opContext) integerRange(low, high int, d core.DType) {
	if low >= high {
		op.failf(core.ValueError, "the range must not be empty, got [%d, %d)", low, high)
		return
	}
	least, most := integers(d)
	if int64(low) < least || int64(high-1) > most {
		op.failf(core.ValueError, "%v holds the integers from %d to %d, got [%d, %d)", d, least, most, low, high)
	}
}

// integers returns the ends of the range whose integers a dtype has all.
func integers(d core.DType) (least, most int64) {
	switch d {
	case core.Float16:
		return -1 << 11, 1 << 11
	case core.BFloat16:
		return -1 << 8, 1 << 8
	case core.Float32:
		return -1 << 24, 1 << 24
	case core.Float64:
		return -1 << 53, 1 << 53
	}
	return d.Limits()
}

// Randperm returns a random permutation of 0, ..., n-1, int64.
func Randperm(n int) *core.Tensor { return RandpermWith(n, RandomOptions{}) }

// RandpermWith is [Randperm] with options. A dtype other than int64 must have all of the numbers.
func RandpermWith(n int, o RandomOptions) *core.Tensor {
	if parts := drawnFor(); parts != nil {
		return handOn(parts, "randperm", n, o)
	}
	op := begin("randperm").on(o.Device)
	if n < 0 {
		op.failf(core.ValueError, "the length must not be negative, got %d", n)
	}
	if d := o.DType; d != nil && *d != core.Int64 {
		if *d == core.Bool || d.IsComplex() {
			op.failf(core.DTypeError, "a permutation has integers or floating-point numbers, got %v", *d)
		} else if _, most := integers(*d); int64(n)-1 > most {
			op.failf(core.ValueError, "%v does not have all integers below %d", *d, n)
		}
		o.DType = nil
		return op.compose(func() *core.Tensor { return castTo(RandpermWith(n, o), *d) })
	}
	out := op.out(core.Int64, []int{n})
	if op.err != nil {
		return op.fail()
	}
	seed, offset := op.reserve(o.Generator, out, 2)
	op.launchRandom(contract.DrawAttrs{Seed: seed, Offset: offset}.AddTo(op.call(contract.Randperm).Out(out)), 16)
	return op.done(out)
}

// Bernoulli returns 1 with the probability that p, a floating-point tensor, gives for each element, else 0. A
// probability outside [0, 1] is an error of execution.
func Bernoulli(p *core.Tensor, o RandomOptions) *core.Tensor {
	if parts := drawnFor(p); parts != nil {
		return handOn(parts, "bernoulli", p, o)
	}
	op := begin("bernoulli", &p)
	op.floating("the probability", p)
	if op.err != nil {
		return op.fail()
	}
	out := op.out(*o.like(p).DType, p.Shape())
	c := op.dense(p)
	if op.err != nil {
		return op.fail()
	}
	seed, offset := op.reserve(o.Generator, out, 1)
	op.launchRandom(contract.DrawAttrs{Seed: seed, Offset: offset}.AddTo(op.call(contract.Bernoulli).Out(out).In(c)), 4)
	return op.done(out)
}

// Poisson returns for each rate of x how many events there are, if that many happen in the mean: inf for inf. The result has the dtype and
// the shape of x, and the derivative 0. A negative rate is an error, for which Poisson waits. A call takes two words of the generator,
// whatever the size of x. It draws on the CPU.
//
// Hörmann, "The transformed rejection method for generating Poisson random variables" (1993), and inversion for small rates.
func Poisson(x *core.Tensor, o RandomOptions) *core.Tensor {
	if parts := drawnFor(x); parts != nil {
		return handOn(parts, "poisson", x, o)
	}
	op := begin("poisson", &x)
	op.floating("the rates", x)
	if op.err != nil {
		return op.fail()
	}
	if !x.Device().HostAccessible() {
		home, err := core.OpenDevice("cpu:0")
		if op.check(err); op.err != nil {
			return op.fail()
		}
		if o.Generator == nil {
			o.Generator = op.mode.Context().Generator(x.Device())
		}
		return op.compose(func() *core.Tensor { return ToDevice(Poisson(ToDevice(x, home), o), x.Device()) })
	}
	out := op.outLike(x)
	c := op.dense(x)
	if op.err != nil {
		return op.fail()
	}
	seed, offset := op.reserveWords(o.Generator, 2)
	op.launchRandom(contract.DrawAttrs{Seed: seed, Offset: offset}.AddTo(op.call(contract.Poisson).Out(out).In(c)), 16)
	if op.err == nil {
		op.check(out.Wait())
	}
	if op.err != nil {
		return op.fail()
	}
	if op.grad {
		op.attach(op.node(poissonDeriv, x), out)
	}
	return op.done(out)
}

func poissonDeriv(ctx *core.BackwardContext) {
	ctx.Set(0, zerosFor(ctx.Grad(), ctx.InputDType(0), ctx.InputShape(0)))
}

// Multinomial draws n positions from each row of weights x, of shape [m] or [rows, m], in proportion to them; the
// weights need not sum to 1. Without replacement no position is drawn twice. The result is of dtype int64 and shape [n]
// or [rows, n]. Weights that are negative, not finite or all zero, and too few positive ones to draw from without
// replacement, are errors of execution.
//
// Without replacement this is the method of Efraimidis and Spirakis, "Weighted random sampling with a reservoir" (2006).
func Multinomial(x *core.Tensor, n int, replacement bool, o RandomOptions) *core.Tensor {
	if parts := drawnFor(x); parts != nil {
		return handOn(parts, "multinomial", x, n, replacement, o)
	}
	op := begin("multinomial", &x)
	op.floating("the weights", x)
	if op.err != nil {
		return op.fail()
	}
	shape := x.Shape()
	if len(shape) < 1 || len(shape) > 2 || shape[len(shape)-1] == 0 {
		op.failf(core.ShapeError, "the weights must be of shape [m] or [rows, m], m > 0, got %v", shape)
		return op.fail()
	}
	m := shape[len(shape)-1]
	if n <= 0 || !replacement && n > m {
		op.failf(core.ValueError, "cannot draw %d of %d positions", n, m)
	}
	outShape := append(append([]int{}, shape[:len(shape)-1]...), n)
	out := op.out(core.Int64, outShape)
	c := op.dense(x)
	if op.err != nil {
		return op.fail()
	}
	numbers := out.Numel()
	if !replacement {
		numbers = x.Numel()
	}
	seed, offset := op.reserveWords(o.Generator, 2*numbers)
	op.launchRandom(contract.DrawAttrs{Seed: seed, Offset: offset, Replacement: replacement}.AddTo(op.call(contract.Multinomial).Out(out).In(c)), 16)
	return op.done(out)
}
