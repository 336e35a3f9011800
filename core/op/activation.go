package op

import "github.com/plait-ml/plait/core"

// The piecewise linear activations, and those that saturate; see activation_smooth.go for the others.
var (
	reluOp        = elementwise("relu", "x", "max(x, 0)", "where(out <= 0, 0, grad)")
	leakyReluOp   = elementwise("leaky_relu", "x; slope", "where(x > 0, x, slope*x)", "where(x > 0, grad, slope*grad)")
	preluOp       = elementwise("prelu", "x, w", "where(x > 0, x, w*x)", "where(x > 0, grad, w*grad)", "where(x > 0, 0, grad*x)")
	thresholdOp   = elementwise("threshold", "x; threshold, value", "where(x <= threshold, value, x)", "where(x <= threshold, 0, grad)")
	hardtanhOp    = elementwise("hardtanh", "x; low, high", "min(max(x, low), high)", "where(x <= low || x >= high, 0, grad)")
	relu6Op       = elementwise("relu6", "x", "min(max(x, 0), 6)", "where(x <= 0 || x >= 6, 0, grad)")
	hardsigmoidOp = elementwise("hardsigmoid", "x", "min(max(x + 3, 0), 6)/6", "where(x > -3 && x < 3, grad/6, 0)")
	hardswishOp   = elementwise("hardswish", "x", "x*min(max(x + 3, 0), 6)/6",
		"where(x <= -3, 0, where(x < 3, grad*(x/3 + 0.5), grad))")
	hardshrinkOp = elementwise("hardshrink", "x; lambda", "where(x >= -lambda && x <= lambda, 0, x)",
		"where(x >= -lambda && x <= lambda, 0, grad)")
	softshrinkOp = elementwise("softshrink", "x; lambda", "where(x > lambda, x - lambda, where(x < -lambda, x + lambda, 0*x))",
		"where(x >= -lambda && x <= lambda, 0, grad)")
	sigmoidOp    = elementwise("sigmoid", "x", "sigmoid(x)", "grad*(1 - out)*out").overComplex(complexSigmoid("xr", "xi") + "sr, si")
	tanhOp       = elementwise("tanh", "x", "tanh(x)", "grad*(1 - out*out)").overComplex(complexTanh("xr", "xi") + "a, b")
	tanhshrinkOp = elementwise("tanhshrink", "x", "x - tanh(x)", "t = tanh(x); grad*t*t").overComplex(complexTanh("xr", "xi") + "xr - a, xi - b")
	softsignOp   = elementwise("softsign", "x", "x/(1 + abs(x))", "d = 1 + abs(x); grad/(d*d)").overComplex("d = 1 + hypot(xr, xi); xr/d, xi/d")
)

// Relu returns x where it is positive and 0 elsewhere.
func Relu(x *core.Tensor) *core.Tensor { return reluOp.apply(nil, x) }

// LeakyRelu returns x where it is positive and slope*x elsewhere.
func LeakyRelu(x *core.Tensor, slope float64) *core.Tensor {
	return leakyReluOp.apply([]float64{slope}, x)
}

// Prelu returns x where it is positive and weight*x elsewhere. weight holds one number, or one for each index of x's
// dimension 1.
func Prelu(x, weight *core.Tensor) *core.Tensor {
	if parts := distributed(x, weight); parts != nil {
		return handOn(parts, "prelu", x, weight)
	}
	op := begin("prelu", &x, &weight)
	if op.err == nil && weight.IsNumber() {
		op.failf(core.TypeError, "got a number, want tensors")
	}
	if op.err != nil {
		return op.fail()
	}
	channels := 1
	if x.Dim() > 1 {
		channels = x.Size(1)
	}
	n := weight.Numel()
	if weight.Dim() > 1 || n != 1 && n != channels {
		op.failf(core.ShapeError, "got weights of shape %v, want one or %d for the input of shape %v", weight.Shape(), channels, x.Shape())
		return op.fail()
	}
	if n == 1 || x.Dim() <= 2 {
		if weight.Dim() > x.Dim() {
			return op.compose(func() *core.Tensor { return preluOp.apply(nil, x, Reshape(weight)) })
		}
		return op.passOn(preluOp.apply(nil, x, weight))
	}
	shape := make([]int, x.Dim()-1)
	for i := range shape {
		shape[i] = 1
	}
	shape[0] = n
	return op.compose(func() *core.Tensor { return preluOp.apply(nil, x, Reshape(weight, shape...)) })
}

// Threshold returns x where it is above threshold and value elsewhere.
func Threshold(x *core.Tensor, threshold, value float64) *core.Tensor {
	return thresholdOp.apply([]float64{threshold, value}, x)
}

// Hardtanh returns x limited to [low, high].
func Hardtanh(x *core.Tensor, low, high float64) *core.Tensor {
	return hardtanhOp.apply([]float64{low, high}, x)
}

// Relu6 returns x limited to [0, 6].
func Relu6(x *core.Tensor) *core.Tensor { return relu6Op.apply(nil, x) }

// Hardsigmoid returns x/6 + 1/2 limited to [0, 1].
func Hardsigmoid(x *core.Tensor) *core.Tensor { return hardsigmoidOp.apply(nil, x) }

// Hardswish returns x times its hardsigmoid.
func Hardswish(x *core.Tensor) *core.Tensor { return hardswishOp.apply(nil, x) }

// Hardshrink returns x, and 0 where it lies in [-lambda, lambda].
func Hardshrink(x *core.Tensor, lambda float64) *core.Tensor {
	return hardshrinkOp.apply([]float64{lambda}, x)
}

// Softshrink returns x moved towards 0 by lambda, and 0 where it lies in [-lambda, lambda]. lambda must not be negative.
func Softshrink(x *core.Tensor, lambda float64) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "softshrink", x, lambda)
	}
	if !(lambda >= 0) {
		return core.ErrorTensor(core.Errorf(core.ValueError, "softshrink", "got lambda %v, want 0 or more", lambda))
	}
	return softshrinkOp.apply([]float64{lambda}, x)
}

// Sigmoid returns 1 / (1 + exp(-x)).
func Sigmoid(x *core.Tensor) *core.Tensor { return sigmoidOp.apply(nil, x) }

// Tanh returns the hyperbolic tangent of x.
func Tanh(x *core.Tensor) *core.Tensor { return tanhOp.apply(nil, x) }

// Tanhshrink returns x - tanh(x).
func Tanhshrink(x *core.Tensor) *core.Tensor { return tanhshrinkOp.apply(nil, x) }

// Softsign returns x / (1 + |x|).
func Softsign(x *core.Tensor) *core.Tensor { return softsignOp.apply(nil, x) }

// Rrelu returns x where it is positive and a random multiple of it elsewhere: uniform between low and high in training, and
// their mean otherwise.
//
// Xu, Wang, Chen, Li: Empirical evaluation of rectified activations in convolutional network, 2015.
func Rrelu(x *core.Tensor, low, high float64, training bool) *core.Tensor {
	if parts := drawnFor(x); parts != nil {
		return handOn(parts, "rrelu", x, low, high, training)
	}
	op := begin("rrelu", &x)
	op.floatTensor(x)
	if op.err == nil && !(low <= high) {
		op.failf(core.ValueError, "the slopes' bounds are out of order, got %v and %v", low, high)
	}
	if op.err != nil {
		return op.fail()
	}
	if !training || low == high {
		return LeakyRelu(x, (low+high)/2)
	}
	return op.compose(func() *core.Tensor {
		slope := UniformInPlace(EmptyLike(x.Detach(), TensorOptions{}), low, high, RandomOptions{})
		return preluOp.apply(nil, x, slope)
	})
}

// RreluInPlace replaces x by [Rrelu] of it and returns it.
func RreluInPlace(x *core.Tensor, low, high float64, training bool) *core.Tensor {
	if parts := drawnFor(x); parts != nil {
		return handOn(parts, "rrelu_", x, low, high, training)
	}
	return replace("rrelu_", func(x *core.Tensor) *core.Tensor { return Rrelu(x, low, high, training) }, x)
}

func init() {
	prelu := Row{
		Name: "prelu", Doc: "Returns input where it is positive and weight*input elsewhere.", Func: Prelu, Memory: true,
		Elementwise: []*Elementwise{preluOp}, Args: []Arg{{Name: "input"}, {Name: "weight"}},
		Samples: []Sample{
			{Name: "one weight", Args: []any{Shaped(4, 3), Shaped(1)}},
			{Name: "0-d", Args: []any{Shaped(), Shaped(1)}},
			{Name: "1-d", Args: []any{Shaped(5), Shaped()}},
			{Name: "channels of 2-d", Args: []any{Shaped(4, 3), Shaped(3)}},
			{Name: "channels of 4-d", Args: []any{Shaped(2, 3, 2, 2), Shaped(3)}},
			{Name: "empty", Args: []any{Shaped(0, 3), Shaped(3)}},
		},
	}
	lambda := Arg{Name: "lambd", Default: 0.5}
	register("activation",
		unaryRow(reluOp, Relu, ReluInPlace, "Returns the positive part.", 0, 0),
		unaryRow(leakyReluOp, LeakyRelu, LeakyReluInPlace, "Returns input where it is positive, else negative_slope*input.", 0, 0).
			with(Arg{Name: "negative_slope", Default: 0.01}, 0.1),
		prelu,
		unaryRow(thresholdOp, Threshold, ThresholdInPlace, "Returns input where it is above the threshold, else value.", 0, 0).
			with(Arg{Name: "threshold"}, 0.02).with(Arg{Name: "value"}, -0.25),
		unaryRow(hardtanhOp, Hardtanh, HardtanhInPlace, "Returns input limited to [min_val, max_val].", -2, 2).
			with(Arg{Name: "min_val", Default: -1.0}, -1.0).with(Arg{Name: "max_val", Default: 1.0}, 1.0),
		unaryRow(relu6Op, Relu6, Relu6InPlace, "Returns input limited to [0, 6].", -4, 9),
		unaryRow(hardsigmoidOp, Hardsigmoid, HardsigmoidInPlace, "Returns input/6 + 1/2 limited to [0, 1].", -5, 5),
		unaryRow(hardswishOp, Hardswish, HardswishInPlace, "Returns input * hardsigmoid(input).", -5, 5),
		unaryRow(hardshrinkOp, Hardshrink, nil, "Returns input, 0 within lambd of 0.", -2, 2).with(lambda, 0.5),
		unaryRow(softshrinkOp, Softshrink, nil, "Returns input moved towards 0 by lambd.", -2, 2).with(lambda, 0.5),
		unaryRow(sigmoidOp, Sigmoid, SigmoidInPlace, "Returns 1 / (1 + exp(-input)).", -3, 3),
		unaryRow(tanhOp, Tanh, TanhInPlace, "Returns the hyperbolic tangent.", -2, 2),
		unaryRow(tanhshrinkOp, Tanhshrink, nil, "Returns input - tanh(input).", -2, 2),
		unaryRow(softsignOp, Softsign, nil, "Returns input / (1 + |input|).", -3, 3),
		Row{Name: "rrelu", Func: Rrelu, InPlace: RreluInPlace, Memory: true, Doc: "The input where it is positive, elsewhere a multiple of it: random between lower and upper in training, else their mean.",
			Args:    inputAnd(Arg{Name: "lower", Default: 1.0 / 8}, Arg{Name: "upper", Default: 1.0 / 3}, Arg{Name: "training", Default: false}),
			Samples: []Sample{{Name: "training", Args: []any{Shaped(4, 5), 0.125, 0.5, true}, DTypes: []core.DType{}}, {Name: "evaluation", Args: []any{Shaped(3), 0.125, 0.5, false}}}},
	)
}
