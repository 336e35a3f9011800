package op

import "github.com/plait-ml/plait/core"

var (
	reluOp    = elementwise("relu", "x", "max(x, 0)", "where(out <= 0, 0, grad)")
	sigmoidOp = elementwise("sigmoid", "x", "sigmoid(x)", "grad*(1 - out)*out")
	tanhOp    = elementwise("tanh", "x", "tanh(x)", "grad*(1 - out*out)")
)

// Relu returns x where it is positive and 0 elsewhere.
func Relu(x *core.Tensor) *core.Tensor { return reluOp.apply(nil, x) }

// ReluInPlace replaces what is negative in x by 0 and returns x.
func ReluInPlace(x *core.Tensor) *core.Tensor { return reluOp.applyInPlace(nil, x) }

// Sigmoid returns 1 / (1 + exp(-x)).
func Sigmoid(x *core.Tensor) *core.Tensor { return sigmoidOp.apply(nil, x) }

// SigmoidInPlace replaces x by its sigmoid and returns it.
func SigmoidInPlace(x *core.Tensor) *core.Tensor { return sigmoidOp.applyInPlace(nil, x) }

// Tanh returns the hyperbolic tangent of x.
func Tanh(x *core.Tensor) *core.Tensor { return tanhOp.apply(nil, x) }

// TanhInPlace replaces x by its hyperbolic tangent and returns it.
func TanhInPlace(x *core.Tensor) *core.Tensor { return tanhOp.applyInPlace(nil, x) }

func init() {
	register("activation",
		unaryRow(reluOp, Relu, ReluInPlace, "Returns the positive part.", 0, 0),
		unaryRow(sigmoidOp, Sigmoid, SigmoidInPlace, "Returns 1 / (1 + exp(-input)).", -3, 3),
		unaryRow(tanhOp, Tanh, TanhInPlace, "Returns the hyperbolic tangent.", -2, 2),
	)
}
