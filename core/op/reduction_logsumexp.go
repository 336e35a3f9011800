package op

import "github.com/plait-ml/plait/core"

var logSumExpKernel = core.Kernel("logsumexp")

// logSumExpGrad is g times the softmax of x, whose log-sum-exp is total. Where that is -inf there is no probability to
// share out.
var logSumExpGrad = elementwise("logsumexp_grad", "g, x, total", "g * exp(x - where(total == -inf, 0, total))",
	"grad * exp(x - where(total == -inf, 0, total))", "grad*out", "-grad*out")

// LogSumExp returns log(sum(exp(x))) over dims, or over all dimensions if there are none, without overflow. x must be
// floating point; of nothing the result is -inf.
func LogSumExp(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	defer autocast("logsumexp", &x).end()
	a := beginTensor("logsumexp", x)
	if a.err == nil && !x.DType().IsFloat() {
		return compose("logsumexp", func() *core.Tensor { return LogSumExp(castTo(x, a.mode.Context().DefaultDType()), dims, keepdim) })
	}
	r := a.reduction(x, dims, keepdim)
	if a.err != nil {
		return a.fail()
	}
	out := a.reduce(logSumExpKernel, x, r, x.DType())
	if a.err != nil {
		return a.fail()
	}
	if a.grad {
		n := a.node(logSumExpDeriv, x).Save(x).SaveOutput(out, 0)
		n.Ints = r.dims
		a.attach(n, out)
	}
	return a.done(out)
}

func logSumExpDeriv(d *core.Derivation) {
	x, shape, dims := d.Saved(0), d.InputShape(0), d.Node.Ints
	d.Set(0, logSumExpGrad.apply(nil, spread(d.Grad(), shape, dims), x, spread(d.Saved(1), shape, dims)))
}
