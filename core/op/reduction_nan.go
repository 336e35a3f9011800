package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// NanSum returns the sum of the elements of x over dims, or over all dimensions if there are none, that are not NaN.
func NanSum(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "nansum", x, dims, keepdim)
	}
	if x.Err() == nil && !x.DType().Differentiable() {
		return Sum(x, dims, keepdim)
	}
	op := begin("nansum", &x)
	if op.err == nil && x.DType().IsComplex() {
		return op.compose(func() *core.Tensor { return Sum(Where(IsNaN(x), core.Num(0), x), dims, keepdim) })
	}
	r := op.reduction(x, dims, keepdim)
	if op.err != nil {
		return op.fail()
	}
	out := op.reduce(contract.NanSum, x, r, x.DType())
	if op.err != nil {
		return op.fail()
	}
	if op.grad {
		n := op.node(nanSumDeriv, x).Save(x)
		n.Ints = r.dims
		op.attach(n, out)
	}
	return op.done(out)
}

func nanSumDeriv(ctx *core.BackwardContext) {
	ctx.Set(0, Where(IsNaN(ctx.Saved(0)), core.Num(0), spread(ctx.Grad(), ctx.InputShape(0), ctx.Node.Ints)))
}

// NanMean returns the mean of the elements of x, which must be floating point, over dims, or over all dimensions if there
// are none, that are not NaN.
func NanMean(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "nanmean", x, dims, keepdim)
	}
	op := begin("nanmean", &x)
	op.floating("the input", x)
	return op.compose(func() *core.Tensor {
		count := Sum(castTo(LogicalNot(IsNaN(x)), statType(x.DType())), dims, keepdim)
		return castTo(Div(NanSum(x, dims, keepdim), count), x.DType())
	})
}

func init() {
	dims := Arg{Name: "dim", Optional: true, Doc: "the dimensions to reduce; None means all"}
	keepdim := Arg{Name: "keepdim", Default: false, Doc: "keep the reduced dimensions with size 1"}
	over := func(x T, dims []int, keepdim bool) []any { return []any{x, dims, keepdim} }
	register("reduction",
		Row{Name: "nansum", Func: NanSum, Args: inputAnd(dims, keepdim), Memory: true, Doc: "The sum of what is not NaN.", Samples: reductionSamples(Shaped, over, true)},
		Row{Name: "nanmean", Func: NanMean, Args: inputAnd(dims, keepdim), Memory: true, Doc: "The mean of what is not NaN.", Samples: reductionSamples(Shaped, over, false)},
	)
}
