package op

import (
	"math"

	"github.com/plait-ml/plait/core"
)

// Heaviside returns 0 where x is negative, y where it is 0 and 1 elsewhere.
func Heaviside(x, y *core.Tensor) *core.Tensor {
	return compose("heaviside", func() *core.Tensor {
		d := core.ResultType(x, y)
		return castTo(Where(Eq(x, core.IntNum(0)), y, castTo(LogicalNot(Lt(x, core.IntNum(0))), d)), d)
	})
}

// HeavisideInPlace replaces x by [Heaviside] of x and y and returns it.
func HeavisideInPlace(x, y *core.Tensor) *core.Tensor {
	return replace("heaviside_", func(x *core.Tensor) *core.Tensor { return Heaviside(x, y) }, x, y)
}

// Ldexp returns x * 2^y.
func Ldexp(x, y *core.Tensor) *core.Tensor {
	return compose("ldexp", func() *core.Tensor {
		z := Mul(x, Exp2(y))
		if z.Err() == nil && x.DType().IsFloat() && !y.DType().IsFloat() {
			return To(z, x.DType())
		}
		return z
	})
}

// LdexpInPlace multiplies x by 2^y and returns it.
func LdexpInPlace(x, y *core.Tensor) *core.Tensor {
	return replace("ldexp_", func(x *core.Tensor) *core.Tensor { return Ldexp(x, y) }, x, y)
}

// FloatPower returns x to the power y in float64.
func FloatPower(x, y *core.Tensor) *core.Tensor {
	return compose("float_power", func() *core.Tensor { return Pow(castTo(x, core.Float64), castTo(y, core.Float64)) })
}

// FloatPowerInPlace raises x, which must be float64, to the power y and returns it.
func FloatPowerInPlace(x, y *core.Tensor) *core.Tensor {
	const name = "float_power_"
	if x.Usable(name) == nil && x.DType() != core.Float64 {
		return core.ErrorTensor(core.Errorf(core.DTypeError, name, "a tensor of %v cannot hold a result of float64", x.DType()))
	}
	return replace(name, func(x *core.Tensor) *core.Tensor { return FloatPower(x, y) }, x, y)
}

// RoundTo returns x rounded to the given number of decimals, which may be negative.
func RoundTo(x *core.Tensor, decimals int) *core.Tensor {
	if decimals == 0 {
		return Round(x)
	}
	a := beginTensor("round", x)
	a.floating("the input", x)
	if a.err != nil {
		return a.fail()
	}
	return compose("round", func() *core.Tensor {
		scale := core.Num(math.Pow(10, math.Abs(float64(decimals))))
		if decimals < 0 {
			return Mul(Round(Div(x, scale)), scale)
		}
		return Div(Round(Mul(x, scale)), scale)
	})
}

// RoundToInPlace rounds x to the given number of decimals and returns it.
func RoundToInPlace(x *core.Tensor, decimals int) *core.Tensor {
	if decimals == 0 {
		return RoundInPlace(x)
	}
	return replace("round_", func(x *core.Tensor) *core.Tensor { return RoundTo(x, decimals) }, x)
}

// Rrelu returns x where it is positive and a random multiple of it elsewhere: uniform between low and high in training, and
// their mean otherwise.
//
// Xu, Wang, Chen, Li: Empirical evaluation of rectified activations in convolutional network, 2015.
func Rrelu(x *core.Tensor, low, high float64, training bool) *core.Tensor {
	a := begin("rrelu", x)
	a.floatTensor(x)
	if a.err == nil && !(low <= high) {
		a.failf(core.ValueError, "the slopes' bounds are out of order, got %v and %v", low, high)
	}
	if a.err != nil {
		return a.fail()
	}
	if !training || low == high {
		return LeakyRelu(x, (low+high)/2)
	}
	return compose("rrelu", func() *core.Tensor {
		slope := UniformInPlace(EmptyLike(x.Detach(), TensorOptions{}), low, high, RandomOptions{})
		return preluOp.apply(nil, x, slope)
	})
}

// RreluInPlace replaces x by [Rrelu] of it and returns it.
func RreluInPlace(x *core.Tensor, low, high float64, training bool) *core.Tensor {
	return replace("rrelu_", func(x *core.Tensor) *core.Tensor { return Rrelu(x, low, high, training) }, x)
}

func init() {
	other := Arg{Name: "other"}
	two := inputAnd(other)
	number := inputAnd(Arg{Name: "other", Number: true})
	binary := func(x, y func(shape ...int) T) []Sample {
		return []Sample{{Args: []any{x(3, 4), y(3, 4)}}, {Name: "broadcast", Args: []any{x(2, 3), y(3)}}, {Name: "empty", Args: []any{x(0), y(1)}}}
	}
	positive := func(shape ...int) T { return Between(0.5, 2, shape...) }
	register("alias",
		Row{Name: "heaviside", Func: Heaviside, InPlace: HeavisideInPlace, Args: inputAnd(Arg{Name: "values"}), NoGrad: "it is not differentiable", Memory: true,
			Doc: "0 where the input is negative, values where it is 0, and 1 elsewhere.", Samples: binary(steps, Shaped)},
		Row{Name: "ldexp", Func: Ldexp, InPlace: LdexpInPlace, Args: number, Memory: true, Doc: "input * 2^other; of integers too as floats.", Samples: binary(Shaped, Shaped)},
		Row{Name: "float_power", Func: FloatPower, InPlace: FloatPowerInPlace, Args: inputAnd(Arg{Name: "exponent", Number: true}), Memory: true, Doc: "input to the power exponent, computed and returned in float64. A negative number to the power of a fraction is NaN.", Samples: binary(positive, Shaped)},
		Row{Name: "rrelu", Func: Rrelu, InPlace: RreluInPlace, Memory: true, Doc: "The input where it is positive, elsewhere a multiple of it: random between lower and upper in training, else their mean.",
			Args:    inputAnd(Arg{Name: "lower", Default: 1.0 / 8}, Arg{Name: "upper", Default: 1.0 / 3}, Arg{Name: "training", Default: false}),
			Samples: []Sample{{Name: "training", Args: []any{Shaped(4, 5), 0.125, 0.5, true}, DTypes: []core.DType{}}, {Name: "evaluation", Args: []any{Shaped(3), 0.125, 0.5, false}}}},
		Row{Name: "sgn", Func: Sign, InPlace: SignInPlace, Args: inputAnd(), Memory: true, Doc: "-1, 0 or 1 by the sign: another name of sign.", Samples: []Sample{{Args: []any{Shaped(3, 4)}}}},
		Row{Name: "true_divide", Func: Div, InPlace: DivInPlace, Args: number, Memory: true, Doc: "input / other, of integers too as floats: another name of div.", Samples: binary(Shaped, positive)},
		Row{Name: "vdot", Func: Dot, Args: two, Doc: "The sum of the products of the elements of two vectors of one size: another name of dot.", Samples: []Sample{{Args: []any{Shaped(5), Shaped(5)}}}},
		Row{Name: "chain_matmul", Func: MultiDot, Args: []Arg{{Name: "matrices"}}, Doc: "The product of several matrices, in the cheapest order.",
			Samples: []Sample{{Args: []any{[]T{Shaped(2, 3), Shaped(3, 4), Shaped(4, 2)}}}}},
	)
}
