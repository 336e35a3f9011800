package op

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// The derivatives of norms: 0 where the norm, or for other powers the element, is 0.
var (
	norm2Grad = elementwise("norm2_grad", "g, x, norm", "where(norm == 0, 0, g*x/norm)",
		"where(norm == 0, 0, grad*x/norm)", "where(norm == 0, 0, grad*g/norm)", "where(norm == 0, 0, -grad*out/norm)")
	normGrad = elementwise("norm_grad", "g, x, norm; p", "where(x == 0 && !isnan(norm), 0, g * sign(x) * pow(abs(x)/norm, p - 1))",
		"where(x == 0, 0, grad * sign(x) * pow(abs(x)/norm, p - 1))", "where(x == 0, 0, grad*out*(p - 1)/x)",
		"where(x == 0, 0, -grad*out*(p - 1)/norm)")
)

// Norm is [VectorNorm] under its other name.
func Norm(x *core.Tensor, p float64, dims []int, o ReduceOptions) *core.Tensor {
	if x.Err() == nil && x.DType().IsComplex() {
		return compose("norm", func() *core.Tensor { return Norm(Abs(x), p, dims, o.ofParts()) })
	}
	if parts := distributed(x); parts != nil {
		return handOn(parts, "norm", x, p, dims, o)
	}
	return vectorNorm("norm", x, p, dims, o)
}

// VectorNorm returns the p-norm of x over dims, or over all dimensions if there are none: the p-th root of the sum of
// |x|^p, the largest |x| for p = inf, the smallest for -inf, and the number of elements that are not zero for 0. x must
// be floating point or complex. The gradient is 0 where the norm is; equal extremes share it evenly.
func VectorNorm(x *core.Tensor, p float64, dims []int, o ReduceOptions) *core.Tensor {
	if x.Err() == nil && x.DType().IsComplex() {
		return compose("vector_norm", func() *core.Tensor { return VectorNorm(Abs(x), p, dims, o.ofParts()) })
	}
	if parts := distributed(x); parts != nil {
		return handOn(parts, "vector_norm", x, p, dims, o)
	}
	return vectorNorm("vector_norm", x, p, dims, o)
}

// ofParts returns the options for the parts of complex numbers.
func (o ReduceOptions) ofParts() ReduceOptions {
	if o.DType != nil {
		part := o.DType.Part()
		o.DType = &part
	}
	return o
}

func vectorNorm(name string, x *core.Tensor, p float64, dims []int, o ReduceOptions) *core.Tensor {
	if o.DType != nil && x.Err() == nil && *o.DType != x.DType() {
		return compose(name, func() *core.Tensor {
			return vectorNorm(name, castTo(x, *o.DType), p, dims, ReduceOptions{KeepDim: o.KeepDim})
		})
	}
	op := begin(name, &x)
	op.floating("the input", x)
	if math.IsNaN(p) {
		op.failf(core.ValueError, "the order of the norm is NaN")
	}
	r := op.reduction(x, dims, o.KeepDim)
	if p < 0 || math.IsInf(p, 0) {
		op.nonempty(x, r)
	}
	if op.err != nil {
		return op.fail()
	}
	out := op.reduce(contract.Norm, x, r, x.DType(), p)
	if op.err != nil {
		return op.fail()
	}
	if op.grad {
		n := op.node(vectorNormDeriv, x).Save(x).SaveOutput(out, 0)
		n.Ints, n.Floats = r.dims, []float64{p}
		op.attach(n, out)
	}
	return op.done(out)
}

func vectorNormDeriv(ctx *core.BackwardContext) {
	x, out, g := ctx.Saved(0), ctx.Saved(1), ctx.Grad()
	shape, dims, p := ctx.InputShape(0), ctx.Node.Ints, ctx.Node.Floats[0]
	switch {
	case p == 0:
		ctx.Set(0, fullLike(x, 0, x.DType(), shape))
	case p == 1:
		ctx.Set(0, Mul(spread(g, shape, dims), Sign(x)))
	case p == 2:
		ctx.Set(0, norm2Grad.apply(nil, spread(g, shape, dims), x, spread(out, shape, dims)))
	case math.IsInf(p, 0):
		ctx.Set(0, Mul(shareAmong(Abs(x), spread(out, shape, dims), g, dims), Sign(x)))
	default:
		ctx.Set(0, normGrad.apply([]float64{p}, spread(g, shape, dims), x, spread(out, shape, dims)))
	}
}
