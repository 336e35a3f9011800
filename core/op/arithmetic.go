package op

import "github.com/plait-ml/plait/core"

var (
	addOp        = elementwise("add", "x, y scalar", "x + y", "grad", "grad").overParts("xr + yr, xi + yi")
	addScaledOp  = elementwise("add_scaled", "x, y scalar; alpha", "x + alpha*y", "grad", "alpha*grad").overParts("xr + alpha*yr, xi + alpha*yi")
	subOp        = elementwise("sub", "x, y scalar", "x - y", "grad", "-grad").overParts("xr - yr, xi - yi")
	mulOp        = elementwise("mul", "x, y scalar", "x * y", "grad*y", "grad*x").overComplex("xr*yr - xi*yi, xr*yi + xi*yr")
	divOp        = elementwise("div", "x, y scalar", "x / y", "grad/y", "-grad * ((x/y) / y)").overComplex(complexQuotient("xr", "xi", "yr", "yi") + "qr, qi")
	negOp        = elementwise("neg", "x", "-x", "-grad").overParts("-xr, -xi")
	absOp        = elementwise("abs", "x", "abs(x)", "grad*sign(x)").overComplex("hypot(xr, xi)")
	signOp       = elementwise("sign", "x", "sign(x)", "0")
	squareOp     = elementwise("square", "x", "x * x", "2*grad*x").overComplex("xr*xr - xi*xi, 2*xr*xi")
	reciprocalOp = elementwise("reciprocal", "x", "1 / x", "-grad*out*out").overComplex(complexQuotient("1", "0", "xr", "xi") + "qr, qi")
)

// Add returns x + y, elementwise. Shapes broadcast and dtypes promote; the sum of two bools is their or.
func Add(x, y *core.Tensor) *core.Tensor { return addOp.apply(nil, x, y) }

// AddScaled returns x + alpha*y, elementwise.
func AddScaled(x, y *core.Tensor, alpha float64) *core.Tensor {
	return addScaledOp.apply([]float64{alpha}, x, y)
}

// Sub returns x - y, elementwise. It fails for bools.
func Sub(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "sub", x, y)
	}
	if err := notBool("sub", x, y); err != nil {
		return core.ErrorTensor(err)
	}
	return subOp.apply(nil, x, y)
}

// SubInPlace subtracts y from x and returns x.
func SubInPlace(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "sub_", x, y)
	}
	if err := notBool("sub_", x, y); err != nil {
		return core.ErrorTensor(err)
	}
	return subOp.applyInPlace(nil, x, y)
}

// notBool returns an error if all tensors are bools, for which arithmetic has no meaning.
func notBool(name string, tensors ...*core.Tensor) error {
	for _, t := range tensors {
		if t == nil || t.Err() != nil || t.DType() != core.Bool {
			return nil
		}
	}
	return core.Errorf(core.DTypeError, name, "got bool, want numbers; use logical_xor or logical_not")
}

// Mul returns x * y, elementwise. The product of two bools is their and.
func Mul(x, y *core.Tensor) *core.Tensor { return mulOp.apply(nil, x, y) }

// Div returns x / y, elementwise; integers are divided as floats, so [DivInPlace] fails for an x of integers.
func Div(x, y *core.Tensor) *core.Tensor { return divOp.apply(nil, x, y) }

// Neg returns -x.
func Neg(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "neg", x)
	}
	if err := notBool("neg", x); err != nil {
		return core.ErrorTensor(err)
	}
	return negOp.apply(nil, x)
}

// NegInPlace negates x and returns it.
func NegInPlace(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "neg_", x)
	}
	if err := notBool("neg_", x); err != nil {
		return core.ErrorTensor(err)
	}
	return negOp.applyInPlace(nil, x)
}

// Abs returns |x|.
func Abs(x *core.Tensor) *core.Tensor { return absOp.apply(nil, x) }

// Sign returns 1 where x is positive, -1 where it is negative and 0 elsewhere, NaN included.
func Sign(x *core.Tensor) *core.Tensor { return signOp.apply(nil, x) }

// Square returns x * x.
func Square(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "square", x)
	}
	if x.Err() == nil && x.DType() == core.Bool {
		return Pow(x, core.IntNum(2)) // an integer
	}
	return squareOp.apply(nil, x)
}

// SquareInPlace squares x and returns it.
func SquareInPlace(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "square_", x)
	}
	if x.Err() == nil && x.DType() == core.Bool {
		return PowInPlace(x, core.IntNum(2))
	}
	return squareOp.applyInPlace(nil, x)
}

// Reciprocal returns 1 / x.
func Reciprocal(x *core.Tensor) *core.Tensor { return reciprocalOp.apply(nil, x) }

// Heaviside returns 0 where x is negative, y where it is 0 and 1 elsewhere.
func Heaviside(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "heaviside", x, y)
	}
	return compose("heaviside", func() *core.Tensor {
		d := core.ResultType(x, y)
		return castTo(Where(Eq(x, core.IntNum(0)), y, castTo(LogicalNot(Lt(x, core.IntNum(0))), d)), d)
	})
}

// HeavisideInPlace replaces x by [Heaviside] of x and y and returns it.
func HeavisideInPlace(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "heaviside_", x, y)
	}
	return replace("heaviside_", func(x *core.Tensor) *core.Tensor { return Heaviside(x, y) }, x, y)
}

func init() {
	wide, positive := Between(-2, 2), Between(0.5, 2)
	number := inputAnd(Arg{Name: "other", Number: true})
	binary := func(x, y func(shape ...int) T) []Sample {
		return []Sample{{Args: []any{x(3, 4), y(3, 4)}}, {Name: "broadcast", Args: []any{x(2, 3), y(3)}}, {Name: "empty", Args: []any{x(0), y(1)}}}
	}
	apart := func(shape ...int) T { return Between(0.5, 2, shape...) }
	register("arithmetic",
		binaryRow(addOp, Add, AddInPlace, "Returns input + other.", wide, wide),
		binaryRow(addScaledOp, AddScaled, AddScaledInPlace, "Returns input + alpha*other.", wide, wide).
			with(Arg{Name: "alpha", Default: 1.0}, 0.75),
		binaryRow(subOp, Sub, SubInPlace, "Returns input - other.", wide, wide),
		binaryRow(mulOp, Mul, MulInPlace, "Returns input * other.", wide, wide),
		binaryRow(divOp, Div, DivInPlace, "Returns input / other, of integers too as floats.", wide, positive),
		unaryRow(negOp, Neg, NegInPlace, "Returns -input.", -2, 2),
		unaryRow(absOp, Abs, AbsInPlace, "Returns the absolute value.", 0, 0),
		unaryRow(signOp, Sign, SignInPlace, "Returns -1, 0 or 1 by the sign.", 0, 0),
		unaryRow(squareOp, Square, SquareInPlace, "Returns input * input.", -2, 2),
		unaryRow(reciprocalOp, Reciprocal, ReciprocalInPlace, "Returns 1 / input.", 0.5, 2),
		Row{Name: "heaviside", Func: Heaviside, InPlace: HeavisideInPlace, Args: inputAnd(Arg{Name: "values"}), NoGrad: "it is not differentiable", Memory: true,
			Doc: "0 where the input is negative, values where it is 0, and 1 elsewhere.", Samples: binary(steps, Shaped)},
		unaryRow(sgnOp, Sgn, SgnInPlace, "Returns input/|input|, and 0 at 0: of real numbers -1, 0 or 1 by the sign.", 0, 0),
		Row{Name: "true_divide", Func: Div, InPlace: DivInPlace, Args: number, Memory: true, Doc: "input / other, of integers too as floats: another name of div.", Samples: binary(Shaped, apart)},
	)
}
