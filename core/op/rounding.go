package op

import (
	"math"

	"github.com/plait-ml/plait/core"
)

var (
	floorOp    = elementwise("floor", "x", "floor(x)", "0")
	ceilOp     = elementwise("ceil", "x", "ceil(x)", "0")
	roundOp    = elementwise("round", "x", "round(x)", "0")
	truncOp    = elementwise("trunc", "x", "trunc(x)", "0")
	fracOp     = elementwise("frac", "x", "x - trunc(x)", "grad")
	copysignOp = elementwise("copysign", "x, y", "copysign(x, y)", "where(x == 0, 0, grad*(out/x))", "0")
)

// rounded applies e to floats; integers are as they are.
func rounded(e *Elementwise, x *core.Tensor) *core.Tensor {
	if x != nil && x.Err() == nil && !x.DType().Differentiable() {
		return Clone(x)
	}
	return e.apply(nil, x)
}

func roundedInPlace(e *Elementwise, x *core.Tensor) *core.Tensor {
	if x != nil && x.Err() == nil && !x.DType().Differentiable() {
		return x
	}
	return e.applyInPlace(nil, x)
}

// Floor returns the largest integer not above x.
func Floor(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "floor", x)
	}
	return rounded(floorOp, x)
}

// FloorInPlace rounds x down and returns it.
func FloorInPlace(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "floor_", x)
	}
	return roundedInPlace(floorOp, x)
}

// Ceil returns the smallest integer not below x.
func Ceil(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "ceil", x)
	}
	return rounded(ceilOp, x)
}

// CeilInPlace rounds x up and returns it.
func CeilInPlace(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "ceil_", x)
	}
	return roundedInPlace(ceilOp, x)
}

// Round returns the integer nearest to x, the even one of two.
func Round(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "round", x, 0)
	}
	return rounded(roundOp, x)
}

// RoundInPlace rounds x to the nearest integer, the even one of two, and returns it.
func RoundInPlace(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "round_", x, 0)
	}
	return roundedInPlace(roundOp, x)
}

// Trunc returns x rounded towards zero.
func Trunc(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "trunc", x)
	}
	return rounded(truncOp, x)
}

// TruncInPlace rounds x towards zero and returns it.
func TruncInPlace(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "trunc_", x)
	}
	return roundedInPlace(truncOp, x)
}

// Frac returns x - trunc(x).
func Frac(x *core.Tensor) *core.Tensor { return fracOp.apply(nil, x) }

// Copysign returns |x| with the sign of y, elementwise.
func Copysign(x, y *core.Tensor) *core.Tensor { return copysignOp.apply(nil, x, y) }

// RoundTo returns x rounded to the given number of decimals, which may be negative.
func RoundTo(x *core.Tensor, decimals int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "round", x, decimals)
	}
	if decimals == 0 {
		return Round(x)
	}
	op := begin("round", &x)
	op.floating("the input", x)
	return op.compose(func() *core.Tensor {
		scale := core.Num(math.Pow(10, math.Abs(float64(decimals))))
		if decimals < 0 {
			return Mul(Round(Div(x, scale)), scale)
		}
		return Div(Round(Mul(x, scale)), scale)
	})
}

// RoundToInPlace rounds x to the given number of decimals and returns it.
func RoundToInPlace(x *core.Tensor, decimals int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "round_", x, decimals)
	}
	if decimals == 0 {
		return RoundInPlace(x)
	}
	return replace("round_", func(x *core.Tensor) *core.Tensor { return RoundTo(x, decimals) }, x)
}

func init() {
	round := unaryRow(roundOp, RoundTo, RoundToInPlace, "Rounds to the nearest number of so many decimals, half to even.", -4, 4).
		with(Arg{Name: "decimals", Default: 0}, 0)
	float := []core.DType{core.Float32}
	round.Samples = append(round.Samples, Sample{Name: "decimals", Args: []any{Shaped(3, 4), 1}, DTypes: float},
		Sample{Name: "tens", Args: []any{Between(-30, 30, 5), -1}, DTypes: float})
	register("rounding",
		unaryRow(floorOp, Floor, FloorInPlace, "Rounds down.", -4, 4),
		unaryRow(ceilOp, Ceil, CeilInPlace, "Rounds up.", -4, 4),
		round,
		unaryRow(truncOp, Trunc, TruncInPlace, "Rounds towards zero.", -4, 4),
		unaryRow(fracOp, Frac, FracInPlace, "Returns the fraction, with the sign of input.", -4, 4),
		binaryRow(copysignOp, Copysign, CopysignInPlace, "Returns the magnitude of input with the sign of other.", T{}, T{}),
	)
}
