package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// logSumExpGrad is g times the softmax of x, whose log-sum-exp is total. Where that is -inf there is no probability to
// share out.
var logSumExpGrad = elementwise("logsumexp_grad", "g, x, total", "g * exp(x - where(total == -inf, 0, total))",
	"grad * exp(x - where(total == -inf, 0, total))", "grad*out", "-grad*out")

// LogSumExp returns log(sum(exp(x))) over dims, or over all dimensions if there are none, without overflow. x must be
// floating point; of nothing the result is -inf.
func LogSumExp(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "logsumexp", x, dims, keepdim)
	}
	op := begin("logsumexp", &x)
	if op.err == nil && x.DType().IsComplex() {
		return op.compose(func() *core.Tensor { return complexLogSumExp(x, dims, keepdim) })
	}
	if op.err == nil && !x.DType().IsFloat() {
		return op.compose(func() *core.Tensor { return LogSumExp(castTo(x, op.mode.Context().DefaultDType()), dims, keepdim) })
	}
	r := op.reduction(x, dims, keepdim)
	if op.err != nil {
		return op.fail()
	}
	out := op.reduce(contract.LogSumExp, x, r, x.DType())
	if op.err != nil {
		return op.fail()
	}
	if op.grad {
		n := op.node(logSumExpDeriv, x).Save(x)
		if !x.DType().IsHalf() {
			n.SaveOutput(out, 0)
		}
		n.Ints = r.dims
		op.attach(n, out)
	}
	return op.done(out)
}

// complexLogSumExp has exponentials of sizes of at most 1, of which one is 1.
func complexLogSumExp(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	var largest *core.Tensor
	core.Underived(func() {
		m := Amax(Real(x), dims, true)
		largest = Where(IsFinite(m), m, core.Num(0))
	})
	y := Add(Log(Sum(Exp(Sub(x, largest)), dims, true)), largest)
	if keepdim {
		return y
	}
	return Reshape(y, Sum(y, dims, false).Shape()...)
}

func logSumExpDeriv(ctx *core.BackwardContext) {
	x, shape, dims := ctx.Saved(0), ctx.InputShape(0), ctx.Node.Ints
	if x.Err() != nil {
		return // d has failed
	}
	var total *core.Tensor
	if d := x.DType(); d.IsHalf() { // the exponents have the error of the total, which in few bits is large
		x = castTo(x, statType(d))
		total = LogSumExp(x, dims, true)
	} else {
		total = ctx.Saved(1)
	}
	g := logSumExpGrad.apply(nil, spread(ctx.Grad(), shape, dims), x, spread(total, shape, dims))
	ctx.Set(0, castTo(g, ctx.InputDType(0)))
}
