package op

import "github.com/plait-ml/plait/core"

var (
	sinOp  = elementwise("sin", "x", "sin(x)", "grad*cos(x)").overComplex("where(xr == 0, xr, sin(xr)*cosh(xi)), where(xi == 0, xi, cos(xr)*sinh(xi))")
	cosOp  = elementwise("cos", "x", "cos(x)", "-grad*sin(x)").overComplex("cos(xr)*cosh(xi), where(xr == 0 || xi == 0, -xr*xi, -sin(xr)*sinh(xi))")
	tanOp  = elementwise("tan", "x", "tan(x)", "grad*(1 + out*out)").overComplex(complexTanh("-xi", "xr") + "b, -a")
	asinOp = elementwise("asin", "x", "asin(x)", "grad*rsqrt(1 - x*x)").overComplex(complexAsin("xr", "xi") + "a, b")
	acosOp = elementwise("acos", "x", "acos(x)", "-grad*rsqrt(1 - x*x)").
		overComplex(root("p", "1 - xr", "-xi") + root("q", "1 + xr", "xi") + "2*atan2(pre, qre), asinh(qre*pim - qim*pre)")
	atanOp  = elementwise("atan", "x", "atan(x)", "grad/(1 + x*x)").overComplex(complexAtanh("-xi", "xr") + "b, -a")
	atan2Op = elementwise("atan2", "x, y", "atan2(x, y)",
		"where(x == 0 && y == 0, 0, grad*y/(x*x + y*y))", "where(x == 0 && y == 0, 0, -grad*x/(x*x + y*y))")
	sinhOp  = elementwise("sinh", "x", "sinh(x)", "grad*cosh(x)").overComplex("where(xr == 0, xr, sinh(xr)*cos(xi)), where(xi == 0, xi, cosh(xr)*sin(xi))")
	coshOp  = elementwise("cosh", "x", "cosh(x)", "grad*sinh(x)").overComplex("cosh(xr)*cos(xi), where(xr == 0 || xi == 0, xr*xi, sinh(xr)*sin(xi))")
	asinhOp = elementwise("asinh", "x", "asinh(x)", "grad*rsqrt(x*x + 1)").overComplex(complexAsin("-xi", "xr") + "b, -a")
	acoshOp = elementwise("acosh", "x", "acosh(x)", "grad*rsqrt(x*x - 1)").
		overComplex(root("p", "xr - 1", "xi")+root("q", "xr + 1", "xi")+"asinh(pre*qre + pim*qim), 2*atan2(pim, qre)",
			"grad*rsqrt(x - 1)*rsqrt(x + 1)")
	atanhOp = elementwise("atanh", "x", "atanh(x)", "grad/(1 - x*x)").overComplex(complexAtanh("xr", "xi") + "a, b")
	hypotOp = elementwise("hypot", "x, y", "hypot(x, y)", "grad*(x/out)", "grad*(y/out)")
	sincOp  = elementwise("sinc", "x", "t = pi*x; where(x == 0, 1, sin(t)/t)",
		"t = pi*x; where(x == 0, 0, grad*pi*(t*cos(t) - sin(t))/(t*t))").overComplex(complexSinc("xr", "xi"))
	deg2radOp = elementwise("deg2rad", "x", "x*0.017453292519943295", "grad*0.017453292519943295")
	rad2degOp = elementwise("rad2deg", "x", "x*57.29577951308232", "grad*57.29577951308232")
)

// Sin returns the sine of x.
func Sin(x *core.Tensor) *core.Tensor { return sinOp.apply(nil, x) }

// Cos returns the cosine of x.
func Cos(x *core.Tensor) *core.Tensor { return cosOp.apply(nil, x) }

// Tan returns the tangent of x.
func Tan(x *core.Tensor) *core.Tensor { return tanOp.apply(nil, x) }

// Asin returns the inverse sine of x; NaN outside [-1, 1].
func Asin(x *core.Tensor) *core.Tensor { return asinOp.apply(nil, x) }

// Acos returns the inverse cosine of x; NaN outside [-1, 1].
func Acos(x *core.Tensor) *core.Tensor { return acosOp.apply(nil, x) }

// Atan returns the inverse tangent of x.
func Atan(x *core.Tensor) *core.Tensor { return atanOp.apply(nil, x) }

// Atan2 returns the angle of the point (y, x), elementwise: its first argument is the ordinate.
func Atan2(x, y *core.Tensor) *core.Tensor { return atan2Op.apply(nil, x, y) }

// Sinh returns the hyperbolic sine of x.
func Sinh(x *core.Tensor) *core.Tensor { return sinhOp.apply(nil, x) }

// Cosh returns the hyperbolic cosine of x.
func Cosh(x *core.Tensor) *core.Tensor { return coshOp.apply(nil, x) }

// Asinh returns the inverse hyperbolic sine of x.
func Asinh(x *core.Tensor) *core.Tensor { return asinhOp.apply(nil, x) }

// Acosh returns the inverse hyperbolic cosine of x; NaN below 1.
func Acosh(x *core.Tensor) *core.Tensor { return acoshOp.apply(nil, x) }

// Atanh returns the inverse hyperbolic tangent of x; NaN outside [-1, 1].
func Atanh(x *core.Tensor) *core.Tensor { return atanhOp.apply(nil, x) }

// Hypot returns sqrt(x*x + y*y), elementwise, without overflow.
func Hypot(x, y *core.Tensor) *core.Tensor { return hypotOp.apply(nil, x, y) }

// Sinc returns sin(pi*x) / (pi*x), and 1 at 0.
func Sinc(x *core.Tensor) *core.Tensor { return sincOp.apply(nil, x) }

// Deg2rad returns angles in degrees as radians.
func Deg2rad(x *core.Tensor) *core.Tensor { return deg2radOp.apply(nil, x) }

// Rad2deg returns angles in radians as degrees.
func Rad2deg(x *core.Tensor) *core.Tensor { return rad2degOp.apply(nil, x) }

func init() {
	register("trigonometric",
		unaryRow(sinOp, Sin, SinInPlace, "Returns the sine.", -4, 4),
		unaryRow(cosOp, Cos, CosInPlace, "Returns the cosine.", -4, 4),
		unaryRow(tanOp, Tan, TanInPlace, "Returns the tangent.", -1.2, 1.2),
		unaryRow(asinOp, Asin, AsinInPlace, "Returns the inverse sine.", -0.9, 0.9),
		unaryRow(acosOp, Acos, AcosInPlace, "Returns the inverse cosine.", -0.9, 0.9),
		unaryRow(atanOp, Atan, AtanInPlace, "Returns the inverse tangent.", -3, 3),
		binaryRow(atan2Op, Atan2, Atan2InPlace, "Returns the angle of the point (other, input).", Between(0.3, 2), Between(-2, 2)),
		unaryRow(sinhOp, Sinh, SinhInPlace, "Returns the hyperbolic sine.", -2, 2),
		unaryRow(coshOp, Cosh, CoshInPlace, "Returns the hyperbolic cosine.", -2, 2),
		unaryRow(asinhOp, Asinh, AsinhInPlace, "Returns the inverse hyperbolic sine.", -3, 3),
		unaryRow(acoshOp, Acosh, AcoshInPlace, "Returns the inverse hyperbolic cosine.", 1.2, 4),
		unaryRow(atanhOp, Atanh, AtanhInPlace, "Returns the inverse hyperbolic tangent.", -0.9, 0.9),
		binaryRow(hypotOp, Hypot, HypotInPlace, "Returns sqrt(input^2 + other^2) without overflow.", Between(0.3, 2), Between(0.3, 2)),
		unaryRow(sincOp, Sinc, SincInPlace, "Returns sin(pi*input) / (pi*input), 1 at 0.", 0.2, 2),
		unaryRow(deg2radOp, Deg2rad, Deg2radInPlace, "Converts degrees to radians.", -180, 180),
		unaryRow(rad2degOp, Rad2deg, Rad2degInPlace, "Converts radians to degrees.", -3, 3),
	)
}
