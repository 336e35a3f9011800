package op

import "github.com/plait-ml/plait/core"

var (
	maximumOp = elementwise("maximum", "x, y", "max(x, y)",
		"where(x == y, grad/2, where(x < y, 0, grad))", "where(x == y, grad/2, where(y < x, 0, grad))")
	minimumOp = elementwise("minimum", "x, y", "min(x, y)",
		"where(x == y, grad/2, where(x > y, 0, grad))", "where(x == y, grad/2, where(y > x, 0, grad))")
	fmaxOp = elementwise("fmax", "x, y", "where(isnan(y), x, where(isnan(x), y, max(x, y)))",
		"where(x >= y || isnan(y), grad, 0)", "where(x >= y || isnan(y), 0, grad)")
	fminOp = elementwise("fmin", "x, y", "where(isnan(y), x, where(isnan(x), y, min(x, y)))",
		"where(x <= y || isnan(y), grad, 0)", "where(x <= y || isnan(y), 0, grad)")

	clampOp = elementwise("clamp", "x, low, high", "min(max(x, low), high)",
		"where(x >= low && x <= high, grad, 0)",
		"where(low < high && x < low, grad, 0)",
		"where(x > high || high < low, grad, 0)")
	clampMinOp = elementwise("clamp_min", "x, low", "max(x, low)",
		"where(x >= low, grad, 0)", "where(x < low, grad, 0)")
	clampMaxOp = elementwise("clamp_max", "x, high", "min(x, high)",
		"where(x <= high, grad, 0)", "where(x > high, grad, 0)")
)

// Maximum returns the larger of x and y, elementwise; NaN if either is. Where they are equal, each gets half the gradient.
func Maximum(x, y *core.Tensor) *core.Tensor { return maximumOp.apply(nil, x, y) }

// Minimum returns the smaller of x and y, elementwise; NaN if either is. Where they are equal, each gets half the
// gradient.
func Minimum(x, y *core.Tensor) *core.Tensor { return minimumOp.apply(nil, x, y) }

// Fmax returns the larger of x and y, elementwise; where one is NaN, the other.
func Fmax(x, y *core.Tensor) *core.Tensor { return fmaxOp.apply(nil, x, y) }

// Fmin returns the smaller of x and y, elementwise; where one is NaN, the other.
func Fmin(x, y *core.Tensor) *core.Tensor { return fminOp.apply(nil, x, y) }

// Clamp returns x limited to [low, high], elementwise. Either bound may be nil. Where low exceeds high, the result is high.
func Clamp(x, low, high *core.Tensor) *core.Tensor {
	switch {
	case low == nil && high == nil:
		return core.ErrorTensor(core.Errorf(core.ValueError, "clamp", "got no bound, want a minimum, a maximum or both"))
	case high == nil:
		return clampMinOp.apply(nil, x, low)
	case low == nil:
		return clampMaxOp.apply(nil, x, high)
	}
	return clampOp.apply(nil, x, low, high)
}

// ClampInPlace limits x to [low, high] and returns it. Either bound may be nil.
func ClampInPlace(x, low, high *core.Tensor) *core.Tensor {
	switch {
	case low == nil && high == nil:
		return core.ErrorTensor(core.Errorf(core.ValueError, "clamp_", "got no bound, want a minimum, a maximum or both"))
	case high == nil:
		return clampMinOp.applyInPlace(nil, x, low)
	case low == nil:
		return clampMaxOp.applyInPlace(nil, x, high)
	}
	return clampOp.applyInPlace(nil, x, low, high)
}

func init() {
	x := func(shape ...int) T { return Between(-2, 2, shape...) }
	low := func(shape ...int) T { return Between(-1, -0.2, shape...) }
	high := func(shape ...int) T { return Between(0.2, 1, shape...) }
	register("extremum",
		binaryRow(maximumOp, Maximum, nil, "Returns the larger of both, NaN if either is.", DistinctOf(), DistinctOf()),
		binaryRow(minimumOp, Minimum, nil, "Returns the smaller of both, NaN if either is.", DistinctOf(), DistinctOf()),
		binaryRow(fmaxOp, Fmax, nil, "Returns the larger of both, or the one that is not NaN.", DistinctOf(), DistinctOf()),
		binaryRow(fminOp, Fmin, nil, "Returns the smaller of both, or the one that is not NaN.", DistinctOf(), DistinctOf()),
		Row{
			Name: "clamp", Doc: "Returns input limited to [min, max].", Func: Clamp, InPlace: ClampInPlace, Memory: true,
			Elementwise: []*Elementwise{clampOp, clampMinOp, clampMaxOp},
			Args:        []Arg{{Name: "input"}, {Name: "min", Optional: true}, {Name: "max", Optional: true}},
			Samples: []Sample{
				{Name: "numbers", Args: []any{x(3, 4), core.Num(-0.5), core.Num(0.75)}},
				{Name: "tensors", Args: []any{x(3, 4), low(4), high(3, 1)}},
				{Name: "minimum", Args: []any{x(2, 3, 2), low(), nil}},
				{Name: "maximum", Args: []any{x(5), nil, high(5)}},
				{Name: "0-d", Args: []any{x(), core.Num(-0.5), nil}},
				{Name: "crossed", Args: []any{x(6), high(6), low(6)}},
				{Name: "empty", Args: []any{x(0, 2), core.Num(-0.5), core.Num(0.75)}},
			},
		},
	)
}
