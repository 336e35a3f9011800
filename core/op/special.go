package op

import (
	"math"

	"github.com/plait-ml/plait/core"
)

var (
	erfOp     = elementwise("erf", "x", "erf(x)", "grad*1.1283791670955126*exp(-x*x)")
	erfcOp    = elementwise("erfc", "x", "erfc(x)", "-grad*1.1283791670955126*exp(-x*x)")
	erfinvOp  = elementwise("erfinv", "x", "erfinv(x)", "grad*0.886226925452758*exp(out*out)")
	lgammaOp  = elementwise("lgamma", "x", "lgamma(x)", "grad*digamma(x)")
	digammaOp = elementwise("digamma", "x", "digamma(x)", "grad*zeta(2, x)")
	entrOp    = elementwise("entr", "x", "where(x > 0, -x*log(x), where(x == 0, 0, where(x < 0, -inf, x)))", "-grad*(log(x) + 1)")
	zetaOp    = elementwise("zeta", "x, y", "zeta(x, y)", "", "-grad*x*zeta(x + 1, y)")
	ndtrOp    = elementwise("special_ndtr", "x", "0.5*erfc(-0.7071067811865476*x)", "grad*0.3989422804014327*exp(-0.5*x*x)")
	xlog1pyOp = elementwise("special_xlog1py", "x, y", "where(isnan(y), y, where(x == 0, 0, x*log1p(y)))",
		"grad*where(x == 0 && y <= -1, 0, log1p(y))", "grad*x/(y + 1)")
	// Near 0 the derivative's two terms cancel: there it is a polynomial.
	sphericalOp = elementwise("special_spherical_bessel_j0", "x", "where(x == 0, 1, where(isinf(x), 0, sin(x)/x))",
		"grad*where(abs(x) < 0.5, x*(-1/3 + x*x*(1/30 - x*x*(1/840 - x*x*(1/45360 - x*x*(1/3991680 - x*x/518918400))))), (cos(x) - sin(x)/x)/x)")
	logitOp = elementwise("logit", "x", "log(x/(1 - x))", "grad/(x*(1 - x))")
	// eps keeps x away from 0 and 1, and no gradient passes where it does.
	logitEpsOp = elementwise("logit_eps", "x; eps", "z = where(x < eps, eps, where(x > 1 - eps, 1 - eps, x)); log(z/(1 - z))",
		"where(x < eps || x > 1 - eps, 0, grad/(x*(1 - x)))")
	nanToNumOp = elementwise("nan_to_num", "x; nan_value, posinf, neginf",
		"where(isnan(x), nan_value, where(x == inf, posinf, where(x == -inf, neginf, x)))",
		"where(isnan(x) || isinf(x), 0, grad)")
)

// Erf returns the error function of x.
func Erf(x *core.Tensor) *core.Tensor { return erfOp.apply(nil, x) }

// Erfc returns 1 - erf(x), accurate for large x.
func Erfc(x *core.Tensor) *core.Tensor { return erfcOp.apply(nil, x) }

// Erfinv returns the inverse of the error function; NaN outside [-1, 1].
func Erfinv(x *core.Tensor) *core.Tensor { return erfinvOp.apply(nil, x) }

// Lgamma returns the logarithm of the absolute value of the gamma function of x.
func Lgamma(x *core.Tensor) *core.Tensor { return lgammaOp.apply(nil, x) }

// Digamma returns the derivative of [Lgamma] at x.
func Digamma(x *core.Tensor) *core.Tensor { return digammaOp.apply(nil, x) }

// Entr returns -x*log(x), the terms of which the entropy of a distribution is the sum; 0 at 0, and -inf below.
func Entr(x *core.Tensor) *core.Tensor { return entrOp.apply(nil, x) }

// Ndtr returns the area under the standard normal density below x.
func Ndtr(x *core.Tensor) *core.Tensor { return ndtrOp.apply(nil, x) }

// XLog1py returns x*log(1 + y), elementwise; 0 where x is 0 and y not NaN.
func XLog1py(x, y *core.Tensor) *core.Tensor { return xlog1pyOp.apply(nil, x, y) }

// SphericalBesselJ0 returns the spherical Bessel function of the first kind of order 0: sin(x)/x.
func SphericalBesselJ0(x *core.Tensor) *core.Tensor { return sphericalOp.apply(nil, x) }

// Zeta returns Hurwitz's zeta function of x and y, elementwise: the sum of (k+y)^-x over k >= 0, for x > 1. It has a
// gradient for y only.
func Zeta(x, y *core.Tensor) *core.Tensor { return zetaOp.apply(nil, x, y) }

// Polygamma returns derivative n of [Digamma] at x; n is 0 for Digamma itself.
func Polygamma(n int, x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "polygamma", n, x)
	}
	if n < 0 {
		return core.ErrorTensor(core.Errorf(core.ValueError, "polygamma", "got the derivative %d, want 0 or more", n))
	}
	if n == 0 {
		return Digamma(x)
	}
	factor := -1.0 // (-1)^(n+1) n!
	for i := 1; i <= n && !math.IsInf(factor, 0); i++ {
		factor *= -float64(i)
	}
	return compose("polygamma", func() *core.Tensor {
		sum := Zeta(core.Num(float64(n+1)), x)
		if factor == 1 {
			return sum
		}
		return Mul(sum, core.Num(factor))
	})
}

// PolygammaInPlace replaces x by derivative n of [Digamma] there and returns it.
func PolygammaInPlace(n int, x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "polygamma_", n, x)
	}
	return replace("polygamma_", func(x *core.Tensor) *core.Tensor { return Polygamma(n, x) }, x)
}

// Logit returns log(x / (1 - x)). If eps is not negative, x is limited to [eps, 1-eps] first.
func Logit(x *core.Tensor, eps float64) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "logit", x, eps)
	}
	if eps < 0 {
		return logitOp.apply(nil, x)
	}
	return logitEpsOp.apply([]float64{eps}, x)
}

// LogitInPlace replaces x by log(x / (1 - x)) and returns it; eps is as for [Logit].
func LogitInPlace(x *core.Tensor, eps float64) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "logit_", x, eps)
	}
	if eps < 0 {
		return logitOp.applyInPlace(nil, x)
	}
	return logitEpsOp.applyInPlace([]float64{eps}, x)
}

// NanToNum returns x with NaN replaced by nan, infinity by posinf and minus infinity by neginf. Where these are nil, the
// largest and smallest finite numbers of the dtype take their place.
func NanToNum(x *core.Tensor, nan float64, posinf, neginf *core.Tensor) *core.Tensor {
	if parts := distributed(x, posinf, neginf); parts != nil {
		return handOn(parts, "nan_to_num", x, nan, posinf, neginf)
	}
	if isComplex(posinf, neginf) {
		return core.ErrorTensor(core.Errorf(core.DTypeError, "nan_to_num", "got a complex number for an infinity, want a real one"))
	}
	if x != nil && x.Err() == nil && !x.DType().IsFloat() {
		if x.DType().IsComplex() {
			return compose("nan_to_num", func() *core.Tensor {
				return onParts(x, func(parts *core.Tensor) *core.Tensor { return NanToNum(parts, nan, posinf, neginf) })
			})
		}
		return Clone(x)
	}
	return nanToNumOp.apply(finiteLimits(x, nan, posinf, neginf), x)
}

// NanToNumInPlace replaces NaN and infinities in x, as [NanToNum] does, and returns x.
func NanToNumInPlace(x *core.Tensor, nan float64, posinf, neginf *core.Tensor) *core.Tensor {
	if parts := distributed(x, posinf, neginf); parts != nil {
		return handOn(parts, "nan_to_num_", x, nan, posinf, neginf)
	}
	if isComplex(posinf, neginf) {
		return core.ErrorTensor(core.Errorf(core.DTypeError, "nan_to_num_", "got a complex number for an infinity, want a real one"))
	}
	if x != nil && x.Err() == nil && !x.DType().IsFloat() {
		if x.DType().IsComplex() {
			return replace("nan_to_num_", func(x *core.Tensor) *core.Tensor { return NanToNum(x, nan, posinf, neginf) }, x)
		}
		return x
	}
	return nanToNumOp.applyInPlace(finiteLimits(x, nan, posinf, neginf), x)
}

func finiteLimits(x *core.Tensor, nan float64, posinf, neginf *core.Tensor) []float64 {
	largest := map[core.DType]float64{
		core.Float16: 65504, core.BFloat16: 0x1.fep127, core.Float32: 0x1.fffffep127, core.Float64: 0x1.fffffffffffffp1023,
	}
	limit := 0.0
	if x != nil {
		limit = largest[x.DType()]
	}
	v := []float64{nan, limit, -limit}
	if posinf != nil {
		v[1] = posinf.Number().Float
	}
	if neginf != nil {
		v[2] = neginf.Number().Float
	}
	return v
}

func init() {
	zeta := binaryRow(zetaOp, Zeta, nil, "Returns Hurwitz's zeta function of input and other.", Between(1.5, 4), Between(0.5, 3))
	for _, s := range zeta.Samples {
		x := s.Args[0].(T)
		x.NoGrad = true
		s.Args[0] = x
	}
	polygamma := unaryRow(zetaOp, nil, nil, "Returns derivative n of digamma.", 0.5, 3)
	polygamma.Name, polygamma.Func, polygamma.InPlace, polygamma.Elementwise = "polygamma", Polygamma, PolygammaInPlace, nil
	polygamma.Args = []Arg{{Name: "n"}, {Name: "input"}}
	for i, s := range polygamma.Samples {
		polygamma.Samples[i].Args = []any{i % 4, s.Args[0]}
	}
	logit := unaryRow(logitOp, Logit, LogitInPlace, "Returns log(input / (1 - input)).", 0.1, 0.9).
		with(Arg{Name: "eps", Default: -1.0, Doc: "limits input to [eps, 1-eps] if not negative"}, -1.0)
	logit.Elementwise = append(logit.Elementwise, logitEpsOp)
	logit.Samples = append(logit.Samples, Sample{Name: "eps", Args: []any{Between(0, 1, 4, 3), 0.2}})
	nanToNum := unaryRow(nanToNumOp, NanToNum, NanToNumInPlace, "Returns input with NaN and infinities replaced.", -2, 2).
		with(Arg{Name: "nan", Default: 0.0}, 0.0).
		with(Arg{Name: "posinf", Optional: true}, nil).with(Arg{Name: "neginf", Optional: true}, nil)
	register("special",
		unaryRow(erfOp, Erf, ErfInPlace, "Returns the error function.", -2, 2),
		unaryRow(erfcOp, Erfc, ErfcInPlace, "Returns the complementary error function.", -2, 2),
		unaryRow(erfinvOp, Erfinv, ErfinvInPlace, "Returns the inverse of the error function.", -0.9, 0.9),
		unaryRow(lgammaOp, Lgamma, LgammaInPlace, "Returns the logarithm of the gamma function.", 0.5, 4),
		unaryRow(digammaOp, Digamma, DigammaInPlace, "Returns the derivative of lgamma.", 0.5, 4),
		unaryRow(entrOp, Entr, EntrInPlace, "Returns -input * log(input), 0 where input is 0.", 0.5, 3),
		unaryRow(ndtrOp, Ndtr, nil, "Returns the area under the standard normal density below input.", -2, 2),
		binaryRow(xlog1pyOp, XLog1py, nil, "Returns input * log(1 + other).", Between(0.5, 2), Between(-0.5, 3)),
		unaryRow(sphericalOp, SphericalBesselJ0, nil, "Returns sin(x) / x.", -2, 2).ofX(),
		zeta, polygamma, logit, nanToNum,
	)
}
