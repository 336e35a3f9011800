package op

import "github.com/plait-ml/plait/core"

var (
	softmaxKernel            = core.Kernel("softmax")
	softmaxBackwardKernel    = core.Kernel("softmax_backward")
	logSoftmaxKernel         = core.Kernel("log_softmax")
	logSoftmaxBackwardKernel = core.Kernel("log_softmax_backward")
)

// Softmax returns exp(x) along dim, divided by its sum there, without overflow for any finite x. A slice of -inf alone
// gives NaN.
func Softmax(x *core.Tensor, dim int) *core.Tensor {
	return softmaxAlong("softmax", softmaxKernel, softmaxDeriv, x, dim)
}

// LogSoftmax returns the logarithm of [Softmax], computed directly.
func LogSoftmax(x *core.Tensor, dim int) *core.Tensor {
	return softmaxAlong("log_softmax", logSoftmaxKernel, logSoftmaxDeriv, x, dim)
}

// Softmin returns Softmax(-x).
func Softmin(x *core.Tensor, dim int) *core.Tensor {
	defer autocast("softmin", &x).end()
	return compose("softmin", func() *core.Tensor { return Softmax(Neg(x), dim) })
}

func softmaxAlong(name string, kernel core.KernelID, deriv core.Deriv, x *core.Tensor, dim int) *core.Tensor {
	defer autocast(name, &x).end()
	a := begin(name, x)
	a.floatTensor(x)
	dim = a.dim(dim, x)
	in := a.dense(x)
	y := a.outLike(x)
	if a.err != nil {
		return a.fail()
	}
	a.launch(a.call(kernel).Out(y).In(in).Int(int64(dim)))
	if a.grad {
		n := a.node(deriv, x).SaveOutput(y, 0)
		n.Ints = []int{dim}
		a.attach(n, y)
	}
	return a.done(y)
}

func softmaxDeriv(d *core.Derivation) {
	if y, g := d.Saved(0), d.Grad(); d.CreateGraph() {
		s := Sum(Mul(g, y), d.Node.Ints, true)
		d.Set(0, Mul(y, Sub(g, s)))
	} else {
		d.Set(0, softmaxBackward("softmax_backward", softmaxBackwardKernel, y, g, d.Node.Ints[0]))
	}
}

func logSoftmaxDeriv(d *core.Derivation) {
	if y, g := d.Saved(0), d.Grad(); d.CreateGraph() {
		s := Sum(g, d.Node.Ints, true)
		d.Set(0, Sub(g, Mul(Exp(y), s)))
	} else {
		d.Set(0, softmaxBackward("log_softmax_backward", logSoftmaxBackwardKernel, y, g, d.Node.Ints[0]))
	}
}

// softmaxBackward returns the gradient of x from the result y and its gradient.
func softmaxBackward(name string, kernel core.KernelID, y, grad *core.Tensor, dim int) *core.Tensor {
	a := begin(name, y, grad)
	g := a.dense(grad)
	dx := a.outLike(y)
	if a.err != nil {
		return a.fail()
	}
	a.launch(a.call(kernel).Out(dx).In(y).In(g).Int(int64(dim)))
	return a.done(dx)
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
