package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// A specialPair is a function of two numbers with a kernel, which computes in float64.
type specialPair struct {
	name string
	code contract.SpecialPairFunction
}

var (
	gammaIncPair  = &specialPair{"igamma", contract.SpecialGammaInc}
	gammaInccPair = &specialPair{"igammac", contract.SpecialGammaIncc}

	hermiteH   = &specialPair{"special_hermite_polynomial_h", contract.SpecialHermiteH}
	hermiteHe  = &specialPair{"special_hermite_polynomial_he", contract.SpecialHermiteHe}
	laguerreL  = &specialPair{"special_laguerre_polynomial_l", contract.SpecialLaguerre}
	legendreP  = &specialPair{"special_legendre_polynomial_p", contract.SpecialLegendre}
	chebyshevT = &specialPair{"special_chebyshev_polynomial_t", contract.SpecialChebyshevT}
	chebyshevU = &specialPair{"special_chebyshev_polynomial_u", contract.SpecialChebyshevU}
	chebyshevV = &specialPair{"special_chebyshev_polynomial_v", contract.SpecialChebyshevV}
	chebyshevW = &specialPair{"special_chebyshev_polynomial_w", contract.SpecialChebyshevW}
	shiftedT   = &specialPair{"special_shifted_chebyshev_polynomial_t", contract.SpecialShiftedT}
	shiftedU   = &specialPair{"special_shifted_chebyshev_polynomial_u", contract.SpecialShiftedU}
	shiftedV   = &specialPair{"special_shifted_chebyshev_polynomial_v", contract.SpecialShiftedV}
	shiftedW   = &specialPair{"special_shifted_chebyshev_polynomial_w", contract.SpecialShiftedW}
)

// GammaInc returns the regularised lower incomplete gamma function: of parameter a, at x. It has a gradient for x only.
func GammaInc(a, x *core.Tensor) *core.Tensor {
	return gammaIncPair.apply(a, x)
}

// GammaIncc returns 1 - GammaInc(a, x), accurate where that is small.
func GammaIncc(a, x *core.Tensor) *core.Tensor {
	return gammaInccPair.apply(a, x)
}

// GammaIncInPlace replaces a by [GammaInc] of a and x and returns it.
func GammaIncInPlace(a, x *core.Tensor) *core.Tensor {
	if parts := distributed(a, x); parts != nil {
		return handOn(parts, "igamma_", a, x)
	}
	return replace("igamma_", func(a *core.Tensor) *core.Tensor { return GammaInc(a, x) }, a, x)
}

// GammaInccInPlace replaces a by [GammaIncc] of a and x and returns it.
func GammaInccInPlace(a, x *core.Tensor) *core.Tensor {
	if parts := distributed(a, x); parts != nil {
		return handOn(parts, "igammac_", a, x)
	}
	return replace("igammac_", func(a *core.Tensor) *core.Tensor { return GammaIncc(a, x) }, a, x)
}

// HermiteH returns the physicists' Hermite polynomials of degrees n at x; like all polynomials here, 0 for degrees below 0,
// with fractions of degrees cut off and a gradient for x only. A degree above 2^20 is an error.
func HermiteH(x, n *core.Tensor) *core.Tensor {
	return hermiteH.apply(x, n)
}

// HermiteHe returns the probabilists' Hermite polynomials of degrees n at x.
func HermiteHe(x, n *core.Tensor) *core.Tensor {
	return hermiteHe.apply(x, n)
}

// LaguerreL returns the Laguerre polynomials of degrees n at x.
func LaguerreL(x, n *core.Tensor) *core.Tensor {
	return laguerreL.apply(x, n)
}

// LegendreP returns the Legendre polynomials of degrees n at x.
func LegendreP(x, n *core.Tensor) *core.Tensor {
	return legendreP.apply(x, n)
}

// ChebyshevT returns the Chebyshev polynomials of the first kind of degrees n at x.
func ChebyshevT(x, n *core.Tensor) *core.Tensor {
	return chebyshevT.apply(x, n)
}

// ChebyshevU returns the Chebyshev polynomials of the second kind of degrees n at x.
func ChebyshevU(x, n *core.Tensor) *core.Tensor {
	return chebyshevU.apply(x, n)
}

// ChebyshevV returns the Chebyshev polynomials of the third kind of degrees n at x.
func ChebyshevV(x, n *core.Tensor) *core.Tensor {
	return chebyshevV.apply(x, n)
}

// ChebyshevW returns the Chebyshev polynomials of the fourth kind of degrees n at x.
func ChebyshevW(x, n *core.Tensor) *core.Tensor {
	return chebyshevW.apply(x, n)
}

// ShiftedChebyshevT returns ChebyshevT(2x - 1, n).
func ShiftedChebyshevT(x, n *core.Tensor) *core.Tensor {
	return shiftedT.apply(x, n)
}

// ShiftedChebyshevU returns ChebyshevU(2x - 1, n).
func ShiftedChebyshevU(x, n *core.Tensor) *core.Tensor {
	return shiftedU.apply(x, n)
}

// ShiftedChebyshevV returns ChebyshevV(2x - 1, n).
func ShiftedChebyshevV(x, n *core.Tensor) *core.Tensor {
	return shiftedV.apply(x, n)
}

// ShiftedChebyshevW returns ChebyshevW(2x - 1, n).
func ShiftedChebyshevW(x, n *core.Tensor) *core.Tensor {
	return shiftedW.apply(x, n)
}

func (f *specialPair) apply(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, f.name, x, y)
	}
	op := begin(f.name, &x, &y)
	d := core.Float32
	if op.err == nil {
		d = core.ResultType(x, y)
		if !d.IsFloat() {
			d = op.mode.Context().DefaultDType()
		}
	}
	out := op.pair(f, d, x, y, false)
	if op.err != nil {
		return op.fail()
	}
	if op.grad {
		n := op.node(specialPairDeriv, x, y).Save(x, y)
		n.Any = f
		op.attach(n, out)
	}
	return op.done(out)
}

// pair computes a function, or the derivative of a polynomial, with a result of dtype d.
func (op *opContext) pair(f *specialPair, d core.DType, x, y *core.Tensor, derivative bool) *core.Tensor {
	shape := op.broadcast(x, y)
	if op.err != nil {
		return nil
	}
	wide := core.Float32
	if d == core.Float64 {
		wide = d
	}
	if wide != d {
		t := op.pair(f, wide, x, y, derivative)
		if op.err != nil {
			return nil
		}
		defer t.Release()
		return To(t, d)
	}
	out := op.out(wide, shape)
	if op.err != nil {
		return nil
	}
	core.Underived(func() {
		core.Tidy(func() {
			in, other := Contiguous(Expand(castTo(x, wide), shape...)), Contiguous(Expand(castTo(y, wide), shape...))
			op.check(in.Err())
			op.check(other.Err())
			if op.err != nil {
				return
			}
			c := contract.SpecialPairAttrs{Function: f.code, Derivative: derivative}.AddTo(op.call(contract.SpecialPair).Out(out).In(in).In(other))
			c.Work *= 32
			op.launch(c)
		})
	})
	return out
}

func specialPairDeriv(ctx *core.BackwardContext) {
	x, y := ctx.Saved(0), ctx.Saved(1)
	if ctx.Failed() {
		return
	}
	f := ctx.Node.Any.(*specialPair)
	switch f {
	case gammaIncPair, gammaInccPair:
		if !ctx.Needs(1) {
			return
		}
		// The terms of the exponent may be large and cancel, which takes more digits than halves have.
		d := statType(ctx.OutputDType(0))
		a, y := castTo(x, d), castTo(y, d)
		g := Exp(Sub(Sub(Mul(Sub(a, num(1)), Log(y)), y), Lgamma(a)))
		if f == gammaInccPair {
			g = Neg(g)
		}
		ctx.Set(1, castTo(sumTo(Mul(ctx.Grad(), g), ctx.InputShape(1)), ctx.InputDType(1)))
	default:
		if !ctx.Needs(0) {
			return
		}
		op := begin(f.name+"_backward").with(x, y)
		slope := op.pair(f, ctx.InputDType(0), x, y, true)
		if op.err != nil {
			ctx.Set(0, op.fail())
			return
		}
		ctx.Set(0, sumTo(Mul(ctx.Grad(), slope), ctx.InputShape(0)))
	}
}

func init() {
	gammas := func(f *specialPair, fn any, doc string) Row {
		of := func(shape ...int) T { t := Between(0.5, 3, shape...); t.NoGrad = true; return t }
		return Row{Name: f.name, Func: fn, Args: inputAnd(Arg{Name: "other"}), Doc: doc, Samples: []Sample{
			{Args: []any{of(3, 4), Between(0.5, 4, 4)}, Loose: 4}, {Name: "0-d", Args: []any{of(), Between(0.5, 4)}, Loose: 4}}}
	}
	polynomials := func(f *specialPair, fn any, doc string) Row {
		n := Indices([]int{3}, 0, 1, 4)
		return Row{Name: f.name, Func: fn, Args: []Arg{{Name: "x", Doc: "where the polynomials are evaluated"}, {Name: "n"}}, Doc: doc,
			NoDouble: "the derivative is not one of the polynomials",
			Samples: []Sample{
				{Args: []any{Between(-0.9, 0.9, 2, 3), n}, Loose: 4},
				{Name: "0-d", Args: []any{Between(0.1, 0.9), Indices([]int{}, 3)}, Loose: 4},
				{Name: "empty", Args: []any{Between(0.1, 0.9, 0, 3), n}},
			}}
	}
	register("special",
		gammas(gammaIncPair, GammaInc, "The regularised lower incomplete gamma function of parameter input, at other.").and(GammaIncInPlace),
		gammas(gammaInccPair, GammaIncc, "The regularised upper incomplete gamma function of parameter input, at other.").and(GammaInccInPlace),
		polynomials(hermiteH, HermiteH, "The physicists' Hermite polynomials of degrees n."),
		polynomials(hermiteHe, HermiteHe, "The probabilists' Hermite polynomials of degrees n."),
		polynomials(laguerreL, LaguerreL, "The Laguerre polynomials of degrees n."),
		polynomials(legendreP, LegendreP, "The Legendre polynomials of degrees n."),
		polynomials(chebyshevT, ChebyshevT, "The Chebyshev polynomials of the first kind of degrees n."),
		polynomials(chebyshevU, ChebyshevU, "The Chebyshev polynomials of the second kind of degrees n."),
		polynomials(chebyshevV, ChebyshevV, "The Chebyshev polynomials of the third kind of degrees n."),
		polynomials(chebyshevW, ChebyshevW, "The Chebyshev polynomials of the fourth kind of degrees n."),
		polynomials(shiftedT, ShiftedChebyshevT, "The Chebyshev polynomials of the first kind at 2 * input - 1."),
		polynomials(shiftedU, ShiftedChebyshevU, "The Chebyshev polynomials of the second kind at 2 * input - 1."),
		polynomials(shiftedV, ShiftedChebyshevV, "The Chebyshev polynomials of the third kind at 2 * input - 1."),
		polynomials(shiftedW, ShiftedChebyshevW, "The Chebyshev polynomials of the fourth kind at 2 * input - 1."),
	)
}
