package op

import "github.com/plait-ml/plait/core"

var (
	maximumOp = elementwise("maximum", "x, y", "max(x, y)",
		"where(x == y, grad/2, where(x < y, 0, grad))", "where(x == y, grad/2, where(y < x, 0, grad))")
	minimumOp = elementwise("minimum", "x, y", "min(x, y)",
		"where(x == y, grad/2, where(x > y, 0, grad))", "where(x == y, grad/2, where(y > x, 0, grad))")
	fmaxOp = elementwise("fmax", "x, y", "where(isnan(y), x, where(isnan(x), y, max(x, y)))",
		"where(x == y, grad/2, where(x > y || isnan(y), grad, 0))", "where(x == y, grad/2, where(x > y || isnan(y), 0, grad))")
	fminOp = elementwise("fmin", "x, y", "where(isnan(y), x, where(isnan(x), y, min(x, y)))",
		"where(x == y, grad/2, where(x < y || isnan(y), grad, 0))", "where(x == y, grad/2, where(x < y || isnan(y), 0, grad))")

	// Where x equals one bound, each gets half the gradient; where it equals both, x gets it.
	clampOp = elementwise("clamp", "x, low, high", "min(max(x, low), high)",
		"where(low > high || x < low || x > high, 0, where(x == low, where(x == high, grad, grad/2), where(x == high, grad/2, grad)))",
		"where(low > high, 0, where(x < low, grad, where(x == low && low < high, grad/2, 0)))",
		"where(low > high || x > high, grad, where(x == high && low < high, grad/2, 0))")
	clampMinOp = elementwise("clamp_min", "x, low", "max(x, low)",
		"where(x < low, 0, where(x == low, grad/2, grad))", "where(x < low, grad, where(x == low, grad/2, 0))")
	clampMaxOp = elementwise("clamp_max", "x, high", "min(x, high)",
		"where(x > high, 0, where(x == high, grad/2, grad))", "where(x > high, grad, where(x == high, grad/2, 0))")
	// Where x equals a bound that is a number, no gradient passes.
	clampNumbersOp   = elementwise("clamp_numbers", "x, low scalar, high scalar", "min(max(x, low), high)", "where(x > low && x < high, grad, 0)", "", "")
	clampMinNumberOp = elementwise("clamp_min_number", "x, low scalar", "max(x, low)", "where(x > low, grad, 0)", "")
	clampMaxNumberOp = elementwise("clamp_max_number", "x, high scalar", "min(x, high)", "where(x < high, grad, 0)", "")
)

// Maximum returns the larger of x and y, elementwise; NaN if either is. Where they are equal, each gets half the gradient.
func Maximum(x, y *core.Tensor) *core.Tensor { return maximumOp.apply(nil, x, y) }

// Minimum returns the smaller of x and y, elementwise; NaN if either is. Where they are equal, each gets half the
// gradient.
func Minimum(x, y *core.Tensor) *core.Tensor { return minimumOp.apply(nil, x, y) }

// Fmax returns the larger of x and y, elementwise; where one is NaN, the other.
func Fmax(x, y *core.Tensor) *core.Tensor {
	return whole(fmaxOp, maximumOp, x, y).apply(nil, x, y)
}

// Fmin returns the smaller of x and y, elementwise; where one is NaN, the other.
func Fmin(x, y *core.Tensor) *core.Tensor {
	return whole(fminOp, minimumOp, x, y).apply(nil, x, y)
}

// whole returns the operation for whole numbers, which are never NaN, if x and y are, and else the other.
func whole(floats, ints *Elementwise, x, y *core.Tensor) *Elementwise {
	if x.Err() != nil || y.Err() != nil || core.ResultType(x, y).IsFloat() {
		return floats
	}
	return ints
}

// Clamp returns x limited to [low, high], elementwise. Either bound may be nil. Where low exceeds high, the result is high.
// Where x equals a bound, a tensor gets half of the gradient, and of a number nobody gets any.
func Clamp(x, low, high *core.Tensor) *core.Tensor {
	if parts := distributed(x, low, high); parts != nil {
		return handOn(parts, "clamp", x, low, high)
	}
	op, bounds := clampBy(low, high)
	if op == nil {
		return core.ErrorTensor(core.Errorf(core.ValueError, "clamp", "got no bound, want a minimum, a maximum or both"))
	}
	if err := boundsHeld("clamp", x, low, high); err != nil {
		return core.ErrorTensor(err)
	}
	return op.apply(nil, append([]*core.Tensor{x}, bounds...)...)
}

// ClampInPlace limits x to [low, high] and returns it; see [Clamp].
func ClampInPlace(x, low, high *core.Tensor) *core.Tensor {
	if parts := distributed(x, low, high); parts != nil {
		return handOn(parts, "clamp_", x, low, high)
	}
	op, bounds := clampBy(low, high)
	if op == nil {
		return core.ErrorTensor(core.Errorf(core.ValueError, "clamp_", "got no bound, want a minimum, a maximum or both"))
	}
	if err := boundsHeld("clamp_", x, low, high); err != nil {
		return core.ErrorTensor(err)
	}
	return op.applyInPlace(nil, x, bounds...)
}

// clampBy returns the operation that limits to the bounds that are not nil, and these.
func clampBy(low, high *core.Tensor) (*Elementwise, []*core.Tensor) {
	number := func(t *core.Tensor) bool { return t == nil || t.IsNumber() }
	numbers := number(low) && number(high)
	pick := func(ofTensors, ofNumbers *Elementwise) *Elementwise {
		if numbers {
			return ofNumbers
		}
		return ofTensors
	}
	switch {
	case low == nil && high == nil:
		return nil, nil
	case high == nil:
		return pick(clampMinOp, clampMinNumberOp), []*core.Tensor{low}
	case low == nil:
		return pick(clampMaxOp, clampMaxNumberOp), []*core.Tensor{high}
	}
	return pick(clampOp, clampNumbersOp), []*core.Tensor{low, high}
}

func init() {
	for _, e := range []*Elementwise{clampMinOp, clampMaxOp, clampNumbersOp, clampMinNumberOp, clampMaxNumberOp} {
		e.outName = "clamp"
	}
	x := func(shape ...int) T { return Between(-2, 2, shape...) }
	low := func(shape ...int) T { return Between(-1, -0.2, shape...) }
	high := func(shape ...int) T { return Between(0.2, 1, shape...) }
	register("comparison",
		binaryRow(maximumOp, Maximum, nil, "Returns the larger of both, NaN if either is.", DistinctOf(), DistinctOf()),
		binaryRow(minimumOp, Minimum, nil, "Returns the smaller of both, NaN if either is.", DistinctOf(), DistinctOf()),
		binaryRow(fmaxOp, Fmax, nil, "Returns the larger of both, or the one that is not NaN.", DistinctOf(), DistinctOf()),
		binaryRow(fminOp, Fmin, nil, "Returns the smaller of both, or the one that is not NaN.", DistinctOf(), DistinctOf()),
		Row{
			Name: "clamp", Doc: "Returns input limited to [min, max].", Func: Clamp, InPlace: ClampInPlace, Memory: true,
			Elementwise: []*Elementwise{clampOp, clampMinOp, clampMaxOp, clampNumbersOp, clampMinNumberOp, clampMaxNumberOp},
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
