package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
)

var (
	eqOp = elementwise("eq", "x, y scalar", "x == y").overComplex("xr == yr && xi == yi")
	neOp = elementwise("ne", "x, y scalar", "x != y").overComplex("xr != yr || xi != yi")
	ltOp = elementwise("lt", "x, y scalar", "x < y")
	leOp = elementwise("le", "x, y scalar", "x <= y")
	gtOp = elementwise("gt", "x, y scalar", "x > y")
	geOp = elementwise("ge", "x, y scalar", "x >= y")

	isnanOp    = elementwise("isnan", "x", "isnan(x)").overComplex("isnan(xr) || isnan(xi)")
	isinfOp    = elementwise("isinf", "x", "isinf(x)").overComplex("isinf(xr) || isinf(xi)")
	isfiniteOp = elementwise("isfinite", "x", "!(isnan(x) || isinf(x))").overComplex("!(isnan(xr) || isinf(xr) || isnan(xi) || isinf(xi))")
	signbitOp  = elementwise("signbit", "x", "copysign(1, x) < 0")

	iscloseOp = elementwise("isclose", "x, y; rtol, atol",
		"x == y || !isinf(x) && !isinf(y) && abs(x - y) <= atol + rtol*abs(y)").
		overComplex("same = xr == yr && xi == yi; finite = !isinf(xr) && !isinf(xi) && !isinf(yr) && !isinf(yi); " +
			"same || finite && hypot(xr - yr, xi - yi) <= atol + rtol*hypot(yr, yi)")
	iscloseNaNOp = elementwise("isclose_nan", "x, y; rtol, atol",
		"x == y || isnan(x) && isnan(y) || !isinf(x) && !isinf(y) && abs(x - y) <= atol + rtol*abs(y)").
		overComplex("same = xr == yr && xi == yi; finite = !isinf(xr) && !isinf(xi) && !isinf(yr) && !isinf(yi); " +
			"unknown = (isnan(xr) || isnan(xi)) && (isnan(yr) || isnan(yi)); " +
			"same || unknown || finite && hypot(xr - yr, xi - yi) <= atol + rtol*hypot(yr, yi)")
)

// Eq returns whether x equals y, elementwise, as bools.
func Eq(x, y *core.Tensor) *core.Tensor { return eqOp.apply(nil, x, y) }

// Ne returns whether x differs from y, elementwise, as bools.
func Ne(x, y *core.Tensor) *core.Tensor { return neOp.apply(nil, x, y) }

// Lt returns whether x < y, elementwise, as bools.
func Lt(x, y *core.Tensor) *core.Tensor { return ltOp.apply(nil, x, y) }

// Le returns whether x <= y, elementwise, as bools.
func Le(x, y *core.Tensor) *core.Tensor { return leOp.apply(nil, x, y) }

// Gt returns whether x > y, elementwise, as bools.
func Gt(x, y *core.Tensor) *core.Tensor { return gtOp.apply(nil, x, y) }

// Ge returns whether x >= y, elementwise, as bools.
func Ge(x, y *core.Tensor) *core.Tensor { return geOp.apply(nil, x, y) }

// rounded returns what is compared as numbers of the half-precision dtype d, in which a tensor filled with 0.1 equals 0.1. Kernels
// compute in float32 and would tell these apart.
func (op *opContext) rounded(d core.DType, in []*core.Tensor) []*core.Tensor {
	if op.err != nil || !d.IsHalf() || !slices.ContainsFunc(in, func(x *core.Tensor) bool { return x.IsNumber() || x.DType() != d }) {
		return in
	}
	list := slices.Clone(in)
	for i, x := range list {
		switch {
		case x.IsNumber() && d == core.Float16:
			list[i] = core.Num(float64(core.Float16Value(core.Float16Bits(float32(x.Number().Float)))))
		case x.IsNumber():
			list[i] = core.Num(float64(core.BFloat16Value(core.BFloat16Bits(float32(x.Number().Float)))))
		case x.DType() != d:
			list[i] = op.own(castTo(x, d))
		}
	}
	return list
}

// IsNaN returns where x is NaN.
func IsNaN(x *core.Tensor) *core.Tensor { return isnanOp.apply(nil, x) }

// IsInf returns where x is infinite.
func IsInf(x *core.Tensor) *core.Tensor { return isinfOp.apply(nil, x) }

// IsFinite returns where x is neither NaN nor infinite.
func IsFinite(x *core.Tensor) *core.Tensor { return isfiniteOp.apply(nil, x) }

// Signbit returns where the sign of x is set, which includes -0.
func Signbit(x *core.Tensor) *core.Tensor { return signbitOp.apply(nil, x) }

// IsClose returns whether |x - y| <= atol + rtol*|y|, elementwise. Infinities are close only if equal, and NaNs are
// if equalNaN says so.
func IsClose(x, y *core.Tensor, rtol, atol float64, equalNaN bool) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "isclose", x, y, rtol, atol, equalNaN)
	}
	if equalNaN {
		return iscloseNaNOp.apply([]float64{rtol, atol}, x, y)
	}
	return iscloseOp.apply([]float64{rtol, atol}, x, y)
}

func init() {
	inf, nan := math.Inf(1), math.NaN()
	compare := func(e *Elementwise, fn, inPlace any, doc string) Row {
		return binaryRow(e, fn, inPlace, doc, T{}, T{}).of(steps)
	}
	test := func(e *Elementwise, fn any, doc string) Row {
		r := unaryRow(e, fn, nil, doc, 0, 0)
		r.Samples = append(r.Samples, Sample{Name: "special", Args: []any{T{Shape: []int{6}, NoGrad: true,
			Values: []float64{inf, -inf, nan, 0, -1.5, math.Copysign(0, -1)}}}})
		return r
	}
	closeRow := compare(iscloseOp, IsClose, nil, "Returns whether |input - other| <= atol + rtol*|other|.").
		with(Arg{Name: "rtol", Default: 1e-5}, 0.25).with(Arg{Name: "atol", Default: 1e-8}, 0.5).
		with(Arg{Name: "equal_nan", Default: false}, false)
	closeRow.Elementwise = append(closeRow.Elementwise, iscloseNaNOp)
	special := func(v ...float64) T { return T{Shape: []int{5}, NoGrad: true, Values: v} }
	closeRow.Samples = append(closeRow.Samples, Sample{Name: "special", Args: []any{
		special(inf, inf, nan, 1, nan), special(inf, -inf, nan, inf, 1), 0.1, 0.1, true}})
	register("comparison",
		compare(eqOp, Eq, EqInPlace, "Returns whether input equals other."),
		compare(neOp, Ne, NeInPlace, "Returns whether input differs from other."),
		compare(ltOp, Lt, LtInPlace, "Returns whether input < other."),
		compare(leOp, Le, LeInPlace, "Returns whether input <= other."),
		compare(gtOp, Gt, GtInPlace, "Returns whether input > other."),
		compare(geOp, Ge, GeInPlace, "Returns whether input >= other."),
		test(isnanOp, IsNaN, "Returns where input is NaN."),
		test(isinfOp, IsInf, "Returns where input is infinite."),
		test(isfiniteOp, IsFinite, "Returns where input is neither NaN nor infinite."),
		test(signbitOp, Signbit, "Returns where the sign of input is set."),
		closeRow,
	)
}
