package op

import "github.com/plait-ml/plait/core"

var (
	eluOp = elementwise("elu", "x; alpha", "where(x > 0, x, alpha*expm1(x))", "where(x > 0, grad, grad*alpha*exp(x))")
	// The constants make zero mean and unit variance a fixed point (Klambauer et al. 2017).
	seluOp = elementwise("selu", "x", "1.0507009873554805*where(x > 0, x, 1.6732632423543772*expm1(x))",
		"1.0507009873554805*where(x > 0, grad, grad*1.6732632423543772*exp(x))")
	celuOp = elementwise("celu", "x; alpha", "where(x > 0, x, alpha*expm1(x/alpha))", "where(x > 0, grad, grad*exp(x/alpha))")

	geluOp = elementwise("gelu", "x", "x*normal_cdf(x)", "grad*(normal_cdf(x) + x*0.3989422804014327*exp(-0.5*x*x))")
	// The function in the derivative of gelu.
	normalCDFOp = elementwise("normal_cdf", "x", "normal_cdf(x)", "grad*0.3989422804014327*exp(-0.5*x*x)")
	geluTanhOp  = elementwise("gelu_tanh", "x", "0.5*x*(1 + tanh(0.7978845608028654*(x + 0.044715*x*x*x)))",
		`t = tanh(0.7978845608028654*(x + 0.044715*x*x*x));
		 grad*0.5*((1 + t) + x*(1 - t*t)*0.7978845608028654*(1 + 0.134145*x*x))`)
	siluOp = elementwise("silu", "x", "x*sigmoid(x)", "s = sigmoid(x); grad*s*(1 + x*(1 - s))").overComplex(complexSigmoid("xr", "xi") + "xr*sr - xi*si, xr*si + xi*sr")
	// tanh(log(1 + e)) is n/(n + 2) with n = e*(e + 2): one exponential instead of three functions.
	mishOp = elementwise("mish", "x", "e = exp(min(x, 20)); n = e*(e + 2); x*(n/(n + 2))",
		"e = exp(min(x, 20)); n = e*(e + 2); grad*(n/(n + 2) + x*4*e*(1 + e)/((n + 2)*(n + 2)))")

	softplusOp = elementwise("softplus", "x; beta, threshold",
		"z = x*beta; where(z > threshold, x, (max(z, 0) + log1p(exp(-abs(z))))/beta)",
		"z = x*beta; where(z > threshold, grad, grad*sigmoid(z))")
	logsigmoidOp = elementwise("logsigmoid", "x", "min(x, 0) - log1p(exp(-abs(x)))", "grad*sigmoid(-x)")
	gluOp        = elementwise("glu", "a, b", "a*sigmoid(b)", "grad*sigmoid(b)", "s = sigmoid(b); grad*a*s*(1 - s)")
)

// Elu returns x where it is positive and alpha*(exp(x) - 1) elsewhere (Clevert et al. 2016).
func Elu(x *core.Tensor, alpha float64) *core.Tensor { return eluOp.apply([]float64{alpha}, x) }

// Selu returns the self-normalising variant of [Elu] (Klambauer et al. 2017).
func Selu(x *core.Tensor) *core.Tensor { return seluOp.apply(nil, x) }

// Celu returns x where it is positive and alpha*(exp(x/alpha) - 1) elsewhere (Barron 2017). alpha must not be 0.
func Celu(x *core.Tensor, alpha float64) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "celu", x, alpha)
	}
	if alpha == 0 {
		return core.ErrorTensor(core.Errorf(core.ValueError, "celu", "got alpha 0, want another number"))
	}
	return celuOp.apply([]float64{alpha}, x)
}

// CeluInPlace replaces x by its celu and returns it.
func CeluInPlace(x *core.Tensor, alpha float64) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "celu_", x, alpha)
	}
	if alpha == 0 {
		return core.ErrorTensor(core.Errorf(core.ValueError, "celu_", "got alpha 0, want another number"))
	}
	return celuOp.applyInPlace([]float64{alpha}, x)
}

// Gelu returns x times the probability that a standard normal number is below x (Hendrycks and Gimpel 2016). approximate
// is "none", or "tanh" for the paper's approximation of that probability.
func Gelu(x *core.Tensor, approximate string) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "gelu", x, approximate)
	}
	switch approximate {
	case "none", "":
		return geluOp.apply(nil, x)
	case "tanh":
		return geluTanhOp.apply(nil, x)
	}
	return core.ErrorTensor(core.Errorf(core.ValueError, "gelu", "got the approximation %q, want none or tanh", approximate))
}

// Silu returns x * sigmoid(x) (Elfwing et al. 2017).
func Silu(x *core.Tensor) *core.Tensor { return siluOp.apply(nil, x) }

// Mish returns x * tanh(softplus(x)) (Misra 2019).
func Mish(x *core.Tensor) *core.Tensor { return mishOp.apply(nil, x) }

// Softplus returns log(1 + exp(beta*x)) / beta, and x itself where beta*x exceeds threshold.
func Softplus(x *core.Tensor, beta, threshold float64) *core.Tensor {
	return softplusOp.apply([]float64{beta, threshold}, x)
}

// Logsigmoid returns the logarithm of the sigmoid of x, without overflow.
func Logsigmoid(x *core.Tensor) *core.Tensor { return logsigmoidOp.apply(nil, x) }

// Glu returns a * sigmoid(b), where a and b are the halves of x along dimension dim (Dauphin et al. 2017).
func Glu(x *core.Tensor, dim int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "glu", x, dim)
	}
	op := begin("glu", &x)
	dim = op.dim(dim, x)
	if op.err == nil && (x.Dim() == 0 || x.Shape()[dim]%2 != 0) {
		op.failf(core.ShapeError, "got the shape %v, want an even size of dimension %d", x.Shape(), dim)
	}
	if op.err != nil {
		return op.fail()
	}
	half := x.Shape()[dim] / 2
	return op.compose(func() *core.Tensor {
		halves := SplitSizes(x, []int{half, half}, dim)
		return gluOp.apply(nil, halves[0], halves[len(halves)-1]) // one, if it carries an error
	})
}

func init() {
	alpha := Arg{Name: "alpha", Default: 1.0}
	gelu := unaryRow(geluOp, Gelu, nil, "Returns input times the standard normal probability of less.", -3, 3).
		with(Arg{Name: "approximate", Default: "none"}, "none")
	gelu.Elementwise = append(gelu.Elementwise, geluTanhOp, normalCDFOp)
	gelu.Samples = append(gelu.Samples, Sample{Name: "tanh", Args: []any{Between(-3, 3, 4, 5), "tanh"}})
	register("activation",
		unaryRow(eluOp, Elu, EluInPlace, "Returns input where it is positive, else alpha*(exp(input) - 1).", 0, 0).with(alpha, 1.5),
		unaryRow(seluOp, Selu, SeluInPlace, "Returns the self-normalising elu.", 0, 0),
		unaryRow(celuOp, Celu, CeluInPlace, "Returns input where it is positive, else alpha*(exp(input/alpha) - 1).", 0, 0).with(alpha, 1.5),
		gelu,
		unaryRow(siluOp, Silu, SiluInPlace, "Returns input * sigmoid(input).", -3, 3),
		unaryRow(mishOp, Mish, MishInPlace, "Returns input * tanh(softplus(input)).", -3, 3),
		unaryRow(softplusOp, Softplus, nil, "Returns log(1 + exp(beta*input)) / beta.", -3, 3).
			with(Arg{Name: "beta", Default: 1.0}, 1.5).with(Arg{Name: "threshold", Default: 20.0}, 3.0),
		unaryRow(logsigmoidOp, Logsigmoid, nil, "Returns the logarithm of the sigmoid.", -3, 3),
		Row{
			Name: "glu", Doc: "Returns the first half times the sigmoid of the second.", Func: Glu, Memory: true,
			Elementwise: []*Elementwise{gluOp}, Args: []Arg{{Name: "input"}, {Name: "dim", Default: -1}},
			Samples: []Sample{
				{Name: "last", Args: []any{Shaped(3, 4), -1}},
				{Name: "first", Args: []any{Shaped(4, 3, 2), 0}},
				{Name: "1-d", Args: []any{Shaped(6), 0}},
				{Name: "empty", Args: []any{Shaped(0, 4), 1}},
			},
		},
	)
}
