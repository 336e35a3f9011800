package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// A specialFunction is a function of one number with a kernel, which computes in float64.
type specialFunction struct {
	name string
	code contract.SpecialFunction
	// slope returns the derivative at x, where the function is y; nil if it is none of those that are here.
	slope func(x, y *core.Tensor) *core.Tensor
}

// num is short for a number in a derivative.
func num(v float64) *core.Tensor { return core.Num(v) }

// overX returns y / x, and y0 where x is 0.
func overX(y, x *core.Tensor, y0 float64) *core.Tensor {
	zero := Eq(x, num(0))
	return Where(zero, num(y0), Div(y, Where(zero, num(1), x)))
}

var (
	besselI0      = &specialFunction{name: "i0", code: contract.SpecialI0}
	besselI1      = &specialFunction{name: "special_i1", code: contract.SpecialI1}
	besselI0e     = &specialFunction{name: "special_i0e", code: contract.SpecialI0e}
	besselI1e     = &specialFunction{name: "special_i1e", code: contract.SpecialI1e}
	besselK0      = &specialFunction{name: "special_modified_bessel_k0", code: contract.SpecialK0}
	besselK1      = &specialFunction{name: "special_modified_bessel_k1", code: contract.SpecialK1}
	besselScaled0 = &specialFunction{name: "special_scaled_modified_bessel_k0", code: contract.SpecialK0e}
	besselScaled1 = &specialFunction{name: "special_scaled_modified_bessel_k1", code: contract.SpecialK1e}
	besselJ0      = &specialFunction{name: "special_bessel_j0", code: contract.SpecialJ0}
	besselJ1      = &specialFunction{name: "special_bessel_j1", code: contract.SpecialJ1}
	besselY0      = &specialFunction{name: "special_bessel_y0", code: contract.SpecialY0}
	besselY1      = &specialFunction{name: "special_bessel_y1", code: contract.SpecialY1}
	erfcxFunc     = &specialFunction{name: "special_erfcx", code: contract.SpecialErfcx}
	logNdtrFunc   = &specialFunction{name: "special_log_ndtr", code: contract.SpecialLogNdtr}
	ndtriFunc     = &specialFunction{name: "special_ndtri", code: contract.SpecialNdtri}
	airyFunc      = &specialFunction{name: "special_airy_ai", code: contract.SpecialAiryAi}
)

func init() { // not above, where they would refer to themselves
	besselI0.slope = func(x, _ *core.Tensor) *core.Tensor { return I1(x) }
	besselI1.slope = func(x, y *core.Tensor) *core.Tensor { return Sub(I0(x), overX(y, x, 0.5)) }
	besselI0e.slope = func(x, y *core.Tensor) *core.Tensor { return Sub(I1e(x), Mul(Sign(x), y)) }
	besselI1e.slope = func(x, y *core.Tensor) *core.Tensor {
		return Sub(Sub(I0e(x), Mul(Sign(x), y)), overX(y, x, 0.5))
	}
	besselK0.slope = func(x, _ *core.Tensor) *core.Tensor { return Neg(ModifiedBesselK1(x)) }
	besselK1.slope = func(x, y *core.Tensor) *core.Tensor { return Neg(Add(ModifiedBesselK0(x), Div(y, x))) }
	besselScaled0.slope = func(x, y *core.Tensor) *core.Tensor { return Sub(y, ScaledModifiedBesselK1(x)) }
	besselScaled1.slope = func(x, y *core.Tensor) *core.Tensor {
		return Sub(Sub(y, ScaledModifiedBesselK0(x)), Div(y, x))
	}
	besselJ0.slope = func(x, _ *core.Tensor) *core.Tensor { return Neg(BesselJ1(x)) }
	besselJ1.slope = func(x, y *core.Tensor) *core.Tensor { return Sub(BesselJ0(x), overX(y, x, 0.5)) }
	besselY0.slope = func(x, _ *core.Tensor) *core.Tensor { return Neg(BesselY1(x)) }
	besselY1.slope = func(x, y *core.Tensor) *core.Tensor { return Sub(BesselY0(x), Div(y, x)) }
	erfcxFunc.slope = func(x, y *core.Tensor) *core.Tensor {
		return Sub(Mul(Mul(x, y), num(2)), num(1.1283791670955126))
	}
	logNdtrFunc.slope = func(x, _ *core.Tensor) *core.Tensor {
		return Div(num(0.7978845608028654), Erfcx(Mul(x, num(-0.7071067811865476))))
	}
	ndtriFunc.slope = func(_, y *core.Tensor) *core.Tensor {
		return Mul(Exp(Mul(Square(y), num(0.5))), num(2.5066282746310002))
	}
}

// I0 returns the modified Bessel function of the first kind of order 0.
func I0(x *core.Tensor) *core.Tensor {
	return besselI0.apply(x)
}

// I0InPlace replaces x by [I0] of it and returns it.
func I0InPlace(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "i0_", x)
	}
	return replace("i0_", I0, x)
}

// I1 returns the modified Bessel function of the first kind of order 1.
func I1(x *core.Tensor) *core.Tensor {
	return besselI1.apply(x)
}

// I0e returns exp(-|x|) * I0(x).
func I0e(x *core.Tensor) *core.Tensor {
	return besselI0e.apply(x)
}

// I1e returns exp(-|x|) * I1(x).
func I1e(x *core.Tensor) *core.Tensor {
	return besselI1e.apply(x)
}

// ModifiedBesselK0 returns the modified Bessel function of the second kind of order 0; NaN below 0.
func ModifiedBesselK0(x *core.Tensor) *core.Tensor {
	return besselK0.apply(x)
}

// ModifiedBesselK1 returns the modified Bessel function of the second kind of order 1; NaN below 0.
func ModifiedBesselK1(x *core.Tensor) *core.Tensor {
	return besselK1.apply(x)
}

// ScaledModifiedBesselK0 returns exp(x) * ModifiedBesselK0(x).
func ScaledModifiedBesselK0(x *core.Tensor) *core.Tensor {
	return besselScaled0.apply(x)
}

// ScaledModifiedBesselK1 returns exp(x) * ModifiedBesselK1(x).
func ScaledModifiedBesselK1(x *core.Tensor) *core.Tensor {
	return besselScaled1.apply(x)
}

// BesselJ0 returns the Bessel function of the first kind of order 0.
func BesselJ0(x *core.Tensor) *core.Tensor {
	return besselJ0.apply(x)
}

// BesselJ1 returns the Bessel function of the first kind of order 1.
func BesselJ1(x *core.Tensor) *core.Tensor {
	return besselJ1.apply(x)
}

// BesselY0 returns the Bessel function of the second kind of order 0; NaN below 0.
func BesselY0(x *core.Tensor) *core.Tensor {
	return besselY0.apply(x)
}

// BesselY1 returns the Bessel function of the second kind of order 1; NaN below 0.
func BesselY1(x *core.Tensor) *core.Tensor {
	return besselY1.apply(x)
}

// Erfcx returns exp(x*x) * erfc(x).
func Erfcx(x *core.Tensor) *core.Tensor {
	return erfcxFunc.apply(x)
}

// LogNdtr returns the logarithm of the area under the standard normal density below x.
func LogNdtr(x *core.Tensor) *core.Tensor {
	return logNdtrFunc.apply(x)
}

// Ndtri returns where the area under the standard normal density below is x; NaN outside [0, 1].
func Ndtri(x *core.Tensor) *core.Tensor {
	return ndtriFunc.apply(x)
}

// AiryAi returns Airy's function Ai.
func AiryAi(x *core.Tensor) *core.Tensor {
	return airyFunc.apply(x)
}

func (f *specialFunction) apply(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, f.name, x)
	}
	op := begin(f.name, &x)
	if d := op.specialDType(x); op.err == nil && d != x.DType() {
		return op.compose(func() *core.Tensor { return castTo(f.apply(castTo(x, d)), resultFloat(op.mode, x)) })
	}
	in, y := op.dense(x), op.outLike(x)
	if op.err != nil {
		return op.fail()
	}
	c := op.call(contract.Special).Out(y).In(in).Int(int64(f.code))
	c.Work *= 16
	op.launch(c)
	if op.grad && f.slope != nil {
		n := op.node(specialDeriv, x).Save(x).SaveOutput(y, 0)
		n.Any = f
		op.attach(n, y)
	}
	return op.done(y)
}

// specialDType returns the dtype in which kernels of special functions take x.
func (op *opContext) specialDType(x *core.Tensor) core.DType {
	switch {
	case op.err != nil:
	case x.DType() == core.Float64:
		return core.Float64
	case !x.DType().IsFloat() && op.mode.Context().DefaultDType() == core.Float64:
		return core.Float64
	}
	return core.Float32
}

// resultFloat returns the dtype of a function of real numbers: that of x, or the default one for integers.
func resultFloat(m core.Mode, x *core.Tensor) core.DType {
	if x.DType().IsFloat() {
		return x.DType()
	}
	return m.Context().DefaultDType()
}

func specialDeriv(ctx *core.BackwardContext) {
	x, y := ctx.Saved(0), ctx.Saved(1)
	if !ctx.Failed() {
		ctx.Set(0, Mul(ctx.Grad(), ctx.Node.Any.(*specialFunction).slope(x, y)))
	}
}

func init() {
	row := func(f *specialFunction, fn any, doc string, low, high float64) Row {
		r := Row{Name: f.name, Func: fn, Args: inputAnd(), Doc: doc, Samples: []Sample{
			{Args: []any{Between(low, high, 3, 4)}, Loose: 4}, {Name: "0-d", Args: []any{Between(low, high)}, Loose: 4}}}
		if f.slope == nil {
			r.NoGrad = "its derivative is another function, which is not here"
		}
		return r
	}
	register("special",
		row(besselI0, I0, "The modified Bessel function of the first kind of order 0.", -3, 3).and(I0InPlace),
		row(besselI1, I1, "The modified Bessel function of the first kind of order 1.", -3, 3),
		row(besselI0e, I0e, "exp(-|input|) times the modified Bessel function of the first kind of order 0.", 0.5, 3),
		row(besselI1e, I1e, "exp(-|input|) times the modified Bessel function of the first kind of order 1.", 0.5, 3),
		row(besselK0, ModifiedBesselK0, "The modified Bessel function of the second kind of order 0.", 0.5, 3),
		row(besselK1, ModifiedBesselK1, "The modified Bessel function of the second kind of order 1.", 0.5, 3),
		row(besselScaled0, ScaledModifiedBesselK0, "exp(x) times the modified Bessel function of the second kind of order 0.", 0.5, 3).ofX(),
		row(besselScaled1, ScaledModifiedBesselK1, "exp(x) times the modified Bessel function of the second kind of order 1.", 0.5, 3).ofX(),
		row(besselJ0, BesselJ0, "The Bessel function of the first kind of order 0.", 0.5, 3),
		row(besselJ1, BesselJ1, "The Bessel function of the first kind of order 1.", 0.5, 3),
		row(besselY0, BesselY0, "The Bessel function of the second kind of order 0.", 0.5, 3),
		row(besselY1, BesselY1, "The Bessel function of the second kind of order 1.", 0.5, 3),
		row(erfcxFunc, Erfcx, "exp(input^2) times the complementary error function.", -1, 3),
		row(logNdtrFunc, LogNdtr, "The logarithm of the area under the standard normal density below input.", -3, 3),
		row(ndtriFunc, Ndtri, "Where the area under the standard normal density below is input.", 0.05, 0.95),
		row(airyFunc, AiryAi, "Airy's function Ai.", -3, 3).ofX(),
	)
}
