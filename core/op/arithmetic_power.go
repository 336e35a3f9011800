package op

import "github.com/plait-ml/plait/core"

var (
	powOp = elementwise("pow", "x, y", "pow(x, y)",
		"where(y == 0, 0, grad*y*pow(x, y - 1))", "where(x == 0 && y >= 0, 0, grad*out*log(x))").
		overComplex("r = hypot(xr, xi); l = log(r); a = atan2(xi, xr); m = exp(yr*l - yi*a); t = yr*a + yi*l; "+
			"where(r == 0, where(yr == 0 && yi == 0, 1, where(yr > 0, 0, nan)), m*cos(t)), "+
			"where(r == 0, where(yr >= 0, 0, nan), m*sin(t))",
			"where(y == 0, 0, grad*y*pow(x, y - 1))", "where(x == 0, 0, grad*out*log(x))")
	cubeOp = elementwise("cube", "x", "x * x * x", "3*grad*x*x").overComplex("sr = xr*xr - xi*xi; si = 2*xr*xi; sr*xr - si*xi, sr*xi + si*xr")

	powSqrtOp, powRsqrtOp, powReciprocalOp = sqrtOp.fromInput(), rsqrtOp.fromInput(), reciprocalOp.fromInput()
)

// power returns the operation that raises x to y where there is a cheaper one than pow.
func power(x, y *core.Tensor) *Elementwise {
	if x == nil || y == nil || x.Err() != nil || !y.IsNumber() || y.DType().IsComplex() || !x.DType().Differentiable() && (y.DType().IsFloat() || x.DType() == core.Bool) {
		return nil
	}
	switch y.Number().Float {
	case 2:
		return squareOp
	case 3:
		return cubeOp
	}
	if !x.DType().Differentiable() {
		return nil
	}
	switch y.Number().Float {
	case 0.5:
		return powSqrtOp
	case -0.5:
		return powRsqrtOp
	case -1:
		return powReciprocalOp
	}
	return nil
}

// negativePower returns an error for a power of integers to a negative number.
func negativePower(name string, x, y *core.Tensor) error {
	if x != nil && y != nil && x.Err() == nil && y.IsNumber() && !core.ResultType(x, y).Differentiable() && y.Number().Int < 0 {
		return core.Errorf(core.ValueError, name, "integers have no negative integer powers, got the exponent %d", y.Number().Int)
	}
	return nil
}

// Pow returns x to the power y, elementwise. Powers of integers are integers: a negative element of y gives 0 unless x is
// 1 or -1, a negative number y is an error.
func Pow(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "pow", x, y)
	}
	if err := negativePower("pow", x, y); err != nil {
		return core.ErrorTensor(err)
	}
	if e := power(x, y); e != nil {
		op := begin("pow") // as which autocast knows it
		in := op.castList([]*core.Tensor{x})
		op.name = e.Name
		op = op.each(in...)
		return e.run(&op, nil, in)
	}
	return powOp.apply(nil, x, y)
}

// PowInPlace raises x to the power y and returns it.
func PowInPlace(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "pow_", x, y)
	}
	if err := negativePower("pow_", x, y); err != nil {
		return core.ErrorTensor(err)
	}
	if e := power(x, y); e != nil {
		return e.applyInPlace(nil, x)
	}
	return powOp.applyInPlace(nil, x, y)
}

// FloatPower returns x to the power y in float64, or complex128 if one of them is complex.
func FloatPower(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "float_power", x, y)
	}
	d := core.Float64
	if isComplex(x, y) {
		d = core.Complex128
	}
	return compose("float_power", func() *core.Tensor { return Pow(castTo(x, d), castTo(y, d)) })
}

// FloatPowerInPlace raises x, which must be float64, to the power y and returns it.
func FloatPowerInPlace(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "float_power_", x, y)
	}
	const name = "float_power_"
	if x.Usable(name) == nil && x.DType() != core.Float64 && x.DType() != core.Complex128 {
		return core.ErrorTensor(core.Errorf(core.DTypeError, name, "a result of float64 can't be cast to %v, the tensor's dtype", x.DType()))
	}
	return replace(name, func(x *core.Tensor) *core.Tensor { return FloatPower(x, y) }, x, y)
}

// Ldexp returns x * 2^y.
func Ldexp(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "ldexp", x, y)
	}
	return compose("ldexp", func() *core.Tensor {
		z := Mul(x, Exp2(y))
		if z.Err() == nil && x.DType().IsFloat() && !y.DType().Differentiable() {
			return To(z, x.DType())
		}
		return z
	})
}

// LdexpInPlace multiplies x by 2^y and returns it.
func LdexpInPlace(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "ldexp_", x, y)
	}
	return replace("ldexp_", func(x *core.Tensor) *core.Tensor { return Ldexp(x, y) }, x, y)
}

func init() {
	r := binaryRow(powOp, Pow, PowInPlace, "Returns input to the power other.", Between(0.5, 2), Between(-2, 2))
	r.Elementwise = append(r.Elementwise, cubeOp)
	r.Args[0].Number = true
	for _, exponent := range []float64{2, 3, 0.5, -0.5, -1, 0, 1, 2.5} {
		r.Samples = append(r.Samples, Sample{Name: "number", Args: []any{Between(0.5, 2, 2, 3), core.Num(exponent)}})
	}
	r.Samples = append(r.Samples,
		Sample{Name: "negative base", Args: []any{Between(-2, -0.5, 4), core.Num(4)}},
		Sample{Name: "number base", Args: []any{core.Num(1.5), Between(-2, 2, 4)}})
	number := inputAnd(Arg{Name: "other", Number: true})
	binary := func(x, y func(shape ...int) T) []Sample {
		return []Sample{{Args: []any{x(3, 4), y(3, 4)}}, {Name: "broadcast", Args: []any{x(2, 3), y(3)}}, {Name: "empty", Args: []any{x(0), y(1)}}}
	}
	positive := func(shape ...int) T { return Between(0.5, 2, shape...) }
	register("arithmetic", r,
		Row{Name: "ldexp", Func: Ldexp, InPlace: LdexpInPlace, Args: number, Memory: true, Doc: "input * 2^other; of integers too as floats.", Samples: binary(Shaped, Shaped)},
		Row{Name: "float_power", Func: FloatPower, InPlace: FloatPowerInPlace, Args: inputAnd(Arg{Name: "exponent", Number: true}), Memory: true, Doc: "input to the power exponent, computed and returned in float64. A negative number to the power of a fraction is NaN.", Samples: binary(positive, Shaped)},
	)
}
