package op

import "github.com/plait-ml/plait/core"

var (
	expOp   = elementwise("exp", "x", "exp(x)", "grad*out").overComplex(complexExp("xr", "xi"))
	exp2Op  = elementwise("exp2", "x", "exp2(x)", "grad*out*0.6931471805599453").overComplex("e = exp2(xr); t = xi*0.6931471805599453; e*cos(t), where(xi == 0, xi, e*sin(t))")
	expm1Op = elementwise("expm1", "x", "expm1(x)", "grad*(out + 1)").
		overComplex("e = exp(xr); s = sin(0.5*xi); expm1(xr)*cos(xi) - 2*s*s, where(xi == 0, xi, e*sin(xi))")
	logOp   = elementwise("log", "x", "log(x)", "grad/x").overComplex("log(hypot(xr, xi)), atan2(xi, xr)")
	log2Op  = elementwise("log2", "x", "log2(x)", "grad/(x*0.6931471805599453)").overComplex("log2(hypot(xr, xi)), atan2(xi, xr)*1.4426950408889634")
	log10Op = elementwise("log10", "x", "log10(x)", "grad/(x*2.302585092994046)").overComplex("log10(hypot(xr, xi)), atan2(xi, xr)*0.4342944819032518")
	log1pOp = elementwise("log1p", "x", "log1p(x)", "grad/(x + 1)").
		overComplex(complexLog1p("xr", "xi") + "a, b")
	sqrtOp  = elementwise("sqrt", "x", "sqrt(x)", "grad/(2*out)").overComplex(root("s", "xr", "xi") + "sre, sim")
	rsqrtOp = elementwise("rsqrt", "x", "rsqrt(x)", "-0.5*grad*out*out*out").overComplex(root("s", "xr", "xi") + complexQuotient("1", "0", "sre", "sim") + "qr, qi")

	logaddexpOp = elementwise("logaddexp", "x, y",
		"where(x == y, x + 0.6931471805599453, max(x, y) + log1p(exp(-abs(x - y))))",
		"where(x == y && isinf(x), grad/2, grad*sigmoid(x - y))", "where(x == y && isinf(x), grad/2, grad*sigmoid(y - x))").
		overComplex(complexLogAddExp())
	logaddexp2Op = elementwise("logaddexp2", "x, y",
		"where(x == y, x + 1, max(x, y) + log1p(exp2(-abs(x - y)))*1.4426950408889634)",
		"where(x == y && isinf(x), grad/2, grad*sigmoid((x - y)*0.6931471805599453))",
		"where(x == y && isinf(x), grad/2, grad*sigmoid((y - x)*0.6931471805599453))")
	xlogyOp = elementwise("xlogy", "x, y", "where(x == 0 && !isnan(y), 0, x*log(y))",
		"where(x == 0 && y <= 0, 0, grad*log(y))", "grad*x/y")
)

// Exp returns e to the power x.
func Exp(x *core.Tensor) *core.Tensor { return expOp.apply(nil, x) }

// Exp2 returns 2 to the power x.
func Exp2(x *core.Tensor) *core.Tensor { return exp2Op.apply(nil, x) }

// Expm1 returns exp(x) - 1, accurate near 0.
func Expm1(x *core.Tensor) *core.Tensor { return expm1Op.apply(nil, x) }

// Log returns the natural logarithm of x.
func Log(x *core.Tensor) *core.Tensor { return logOp.apply(nil, x) }

// Log2 returns the logarithm of x to base 2.
func Log2(x *core.Tensor) *core.Tensor { return log2Op.apply(nil, x) }

// Log10 returns the logarithm of x to base 10.
func Log10(x *core.Tensor) *core.Tensor { return log10Op.apply(nil, x) }

// Log1p returns log(1 + x), accurate near 0.
func Log1p(x *core.Tensor) *core.Tensor { return log1pOp.apply(nil, x) }

// Sqrt returns the square root of x.
func Sqrt(x *core.Tensor) *core.Tensor { return sqrtOp.apply(nil, x) }

// Rsqrt returns 1 / sqrt(x).
func Rsqrt(x *core.Tensor) *core.Tensor { return rsqrtOp.apply(nil, x) }

// Logaddexp returns log(exp(x) + exp(y)), elementwise, without overflow.
func Logaddexp(x, y *core.Tensor) *core.Tensor { return logaddexpOp.apply(nil, x, y) }

// Logaddexp2 returns the logarithm to base 2 of 2^x + 2^y, elementwise, without overflow.
func Logaddexp2(x, y *core.Tensor) *core.Tensor { return logaddexp2Op.apply(nil, x, y) }

// Xlogy returns x * log(y), elementwise, and 0 where x is 0.
func Xlogy(x, y *core.Tensor) *core.Tensor { return xlogyOp.apply(nil, x, y) }

func init() {
	register("exponential",
		unaryRow(expOp, Exp, ExpInPlace, "Returns e to the power of each element.", -2, 2),
		unaryRow(exp2Op, Exp2, Exp2InPlace, "Returns 2 to the power of each element.", -2, 2),
		unaryRow(expm1Op, Expm1, Expm1InPlace, "Returns exp(input) - 1, accurate near 0.", -2, 2),
		unaryRow(logOp, Log, LogInPlace, "Returns the natural logarithm.", 0.5, 3),
		unaryRow(log2Op, Log2, Log2InPlace, "Returns the logarithm to base 2.", 0.5, 3),
		unaryRow(log10Op, Log10, Log10InPlace, "Returns the logarithm to base 10.", 0.5, 3),
		unaryRow(log1pOp, Log1p, Log1pInPlace, "Returns log(1 + input), accurate near 0.", -0.5, 2),
		unaryRow(sqrtOp, Sqrt, SqrtInPlace, "Returns the square root.", 0.5, 3),
		unaryRow(rsqrtOp, Rsqrt, RsqrtInPlace, "Returns 1 / sqrt(input).", 0.5, 3),
		binaryRow(logaddexpOp, Logaddexp, nil, "Returns log(exp(input) + exp(other)) without overflow.", Between(-2, 2), Between(-2, 2)),
		binaryRow(logaddexp2Op, Logaddexp2, nil, "Returns the logarithm to base 2 of 2^input + 2^other.", Between(-2, 2), Between(-2, 2)),
		binaryRow(xlogyOp, Xlogy, XlogyInPlace, "Returns input * log(other), 0 where input is 0.", Between(-2, 2), Between(0.5, 2)),
	)
}
