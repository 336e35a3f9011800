package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// Softmax returns exp(x) along dim, divided by its sum there, without overflow for any finite x. A slice of -inf alone
// gives NaN.
func Softmax(x *core.Tensor, dim int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "softmax", x, dim)
	}
	return softmaxAlong("softmax", contract.Softmax, softmaxDeriv, x, dim)
}

// LogSoftmax returns the logarithm of [Softmax], computed directly.
func LogSoftmax(x *core.Tensor, dim int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "log_softmax", x, dim)
	}
	return softmaxAlong("log_softmax", contract.LogSoftmax, logSoftmaxDeriv, x, dim)
}

// Softmin returns Softmax(-x).
func Softmin(x *core.Tensor, dim int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "softmin", x, dim)
	}
	op := begin("softmin", &x)
	return op.compose(func() *core.Tensor { return Softmax(Neg(x), dim) })
}

func softmaxAlong(name string, kernel core.KernelID, deriv core.Deriv, x *core.Tensor, dim int) *core.Tensor {
	op := begin(name, &x)
	op.floatTensor(x)
	dim = op.dim(dim, x)
	in := op.dense(x)
	if op.err != nil {
		return op.fail()
	}
	y := op.outApart(op.inputType(x), x.Shape(), x)
	if op.err != nil {
		return op.fail()
	}
	op.launch(op.call(kernel).Out(y).In(in).Int(int64(dim)))
	if op.grad {
		n := op.node(deriv, x).SaveOutput(y, 0)
		n.Ints, n.Any = []int{dim}, anyDType{}
		op.attach(n, y)
	}
	return op.done(y)
}

func softmaxDeriv(ctx *core.BackwardContext) {
	if y, g := ctx.Saved(0), ctx.Grad(); ctx.CreateGraph() {
		s := Sum(Mul(g, y), ctx.Node.Ints, true)
		ctx.Set(0, castTo(Mul(y, Sub(g, s)), ctx.InputDType(0)))
	} else {
		ctx.Set(0, softmaxBackward("softmax_backward", contract.SoftmaxBackward, y, g, ctx.Node.Ints[0], ctx.InputDType(0)))
	}
}

func logSoftmaxDeriv(ctx *core.BackwardContext) {
	if y, g := ctx.Saved(0), ctx.Grad(); ctx.CreateGraph() {
		s := Sum(g, ctx.Node.Ints, true)
		ctx.Set(0, castTo(Sub(g, Mul(Exp(y), s)), ctx.InputDType(0)))
	} else {
		ctx.Set(0, softmaxBackward("log_softmax_backward", contract.LogSoftmaxBackward, y, g, ctx.Node.Ints[0], ctx.InputDType(0)))
	}
}

// softmaxBackward returns the gradient of x, of dtype d, from the result y and its gradient.
func softmaxBackward(name string, kernel core.KernelID, y, grad *core.Tensor, dim int, d core.DType) *core.Tensor {
	op := begin(name).with(y, grad)
	g := op.dense(grad)
	dx := op.out(d, y.Shape())
	if op.err != nil {
		return op.fail()
	}
	op.launch(op.call(kernel).Out(dx).In(y).In(g).Int(int64(dim)))
	return op.done(dx)
}

func init() {
	args := []Arg{{Name: "input"}, {Name: "dim", Doc: "the dimension that is normalised"}}
	samples := []Sample{
		{Name: "last", Args: []any{Shaped(3, 5), -1}},
		{Name: "first", Args: []any{Shaped(4, 3), 0}},
		{Name: "middle", Args: []any{Shaped(2, 3, 4), 1}},
		{Name: "4-d", Args: []any{Shaped(2, 2, 3, 2), 1}},
		{Name: "one", Args: []any{Shaped(3, 1), 1}},
		{Name: "0-d", Args: []any{Shaped([]int{}...), 0}},
		{Name: "empty", Args: []any{Shaped(0, 3), 1}},
		{Name: "empty slices", Args: []any{Shaped(2, 0), 1}},
	}
	register("softmax",
		Row{Name: "softmax", Func: Softmax, Args: args, Samples: samples, Memory: true,
			Doc: "exp(input) along a dimension, divided by its sum there."},
		Row{Name: "log_softmax", Func: LogSoftmax, Args: args, Samples: samples, Memory: true,
			Doc: "The logarithm of softmax, computed directly."},
		Row{Name: "softmin", Func: Softmin, Args: args, Samples: samples, Memory: true,
			Doc: "softmax of -input."},
	)
}
