package op

import "github.com/plait-ml/plait/core"

var (
	floorDivideOp = elementwise("floor_divide", "x, y", "floor_divide(x, y)", "0", "0")
	remainderOp   = elementwise("remainder", "x, y", "remainder(x, y)", "grad", "-grad*floor_divide(x, y)")
	fmodOp        = elementwise("fmod", "x, y", "fmod(x, y)", "grad", "-grad*trunc(x/y)")
	gcdOp         = elementwise("gcd", "x, y", "gcd(x, y)")
	lcmOp         = elementwise("lcm", "x, y", "g = gcd(x, y); abs(trunc_divide(x, where(g == 0, 1, g))*y)")

	// The quotient of integers is exact; that of floats has the zero gradient of a step.
	truncDivideOp      = elementwise("trunc_divide", "x, y", "trunc_divide(x, y)")
	truncDivideFloatOp = elementwise("trunc_divide_float", "x, y", "trunc(x / y)", "0", "0")
)

// FloorDivide returns the quotient of x and y rounded towards minus infinity, elementwise. The division of integers by
// zero is an error.
func FloorDivide(x, y *core.Tensor) *core.Tensor { return floorDivideOp.apply(nil, x, y) }

// truncDivide returns the operation for the dtype that x and y promote to.
func truncDivide(x, y *core.Tensor) *Elementwise {
	if x != nil && y != nil && core.ResultType(x, y).IsFloat() {
		return truncDivideFloatOp
	}
	return truncDivideOp
}

// TruncDivide returns the quotient of x and y rounded towards zero, elementwise. The division of integers by zero is an
// error.
func TruncDivide(x, y *core.Tensor) *core.Tensor {
	return truncDivide(x, y).apply(nil, x, y)
}

// Remainder returns x - y*floor(x/y), elementwise: the remainder with the sign of y. Integers modulo zero are an error.
func Remainder(x, y *core.Tensor) *core.Tensor { return remainderOp.apply(nil, x, y) }

// Fmod returns x - y*trunc(x/y), elementwise: the remainder with the sign of x. Integers modulo zero are an error.
func Fmod(x, y *core.Tensor) *core.Tensor { return fmodOp.apply(nil, x, y) }

// Gcd returns the greatest common divisor of the integers x and y, elementwise.
func Gcd(x, y *core.Tensor) *core.Tensor { return gcdOp.apply(nil, x, y) }

// LCM returns the least common multiples of integers, elementwise; 0 where one is 0.
func LCM(x, y *core.Tensor) *core.Tensor { return lcmOp.apply(nil, x, y) }

func init() {
	dividend, divisor := Between(-8, 8), Between(1, 3)
	whole := func(e *Elementwise, fn, inPlace any, doc string) Row {
		r := binaryRow(e, fn, inPlace, doc, T{}, T{})
		r.Samples = r.Samples[:len(r.Samples)-1] // no float number
		return r.of(wholes)
	}
	truncated := whole(truncDivideOp, TruncDivide, TruncDivideInPlace, "Returns the quotient rounded towards zero.")
	truncated.Elementwise = append(truncated.Elementwise, truncDivideFloatOp)
	truncated.NoGrad = ""
	truncated.Samples = append(truncated.Samples, binaryRow(truncDivideFloatOp, nil, nil, "", dividend, divisor).Samples...)
	register("arithmetic",
		binaryRow(floorDivideOp, FloorDivide, FloorDivideInPlace, "Returns the quotient rounded towards minus infinity.", dividend, divisor),
		truncated,
		binaryRow(remainderOp, Remainder, RemainderInPlace, "Returns the remainder with the sign of other.", dividend, divisor),
		binaryRow(fmodOp, Fmod, FmodInPlace, "Returns the remainder with the sign of input.", dividend, divisor),
		whole(gcdOp, Gcd, GcdInPlace, "Returns the greatest common divisor of integers."),
		whole(lcmOp, LCM, LCMInPlace, "Returns the least common multiples of integers; 0 where one of them is 0."),
	)
}
