package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// sumType returns the dtype of sums and products of elements of dtype d.
func sumType(d core.DType) core.DType {
	if d.Differentiable() {
		return d
	}
	return core.Int64
}

// ReduceOptions are the options of reductions whose result may have another dtype.
type ReduceOptions struct {
	KeepDim bool
	// DType is the dtype of the result, to which the input counts as converted before it is reduced.
	DType *core.DType
}

// Sum returns the sum of x over dims, or over all dimensions if there are none; integers and bools give int64. The
// dimensions are left out of the result's shape, or have size 1 if keepdim is set. The sum of nothing is 0.
func Sum(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	return SumWith(x, dims, ReduceOptions{KeepDim: keepdim})
}

// SumWith is [Sum] with options.
func SumWith(x *core.Tensor, dims []int, o ReduceOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "sum", x, dims, o)
	}
	return sum("sum", contract.Sum, sumDeriv, x, dims, o)
}

// Mean returns the mean of x, which must be floating point or complex, over dims, or over all dimensions if there are none: the sum,
// divided once. The mean of nothing is NaN.
func Mean(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	return MeanWith(x, dims, ReduceOptions{KeepDim: keepdim})
}

// MeanWith is [Mean] with options; integers have a mean of a floating-point dtype.
func MeanWith(x *core.Tensor, dims []int, o ReduceOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "mean", x, dims, o)
	}
	d := o.DType
	if d == nil && x.Err() == nil {
		t := x.DType()
		d = &t
	}
	if d != nil && !d.Differentiable() {
		return core.ErrorTensor(core.Errorf(core.DTypeError, "mean", "got %v, want a floating-point or complex dtype", *d))
	}
	return sum("mean", contract.Mean, meanDeriv, x, dims, o)
}

func sum(name string, k core.KernelID, deriv core.Deriv, x *core.Tensor, dims []int, o ReduceOptions) *core.Tensor {
	op := begin(name, &x)
	r := op.reduction(x, dims, o.KeepDim)
	if op.err != nil {
		return op.fail()
	}
	result := sumType(op.inputType(x))
	if o.DType != nil {
		if result = *o.DType; !sumsAs(x.DType(), result) {
			return op.compose(func() *core.Tensor { return sum(name, k, deriv, castTo(x, result), dims, o) })
		}
	}
	out := op.reduce(k, x, r, result)
	if op.err != nil {
		return op.fail()
	}
	if op.grad {
		n := op.node(deriv, x)
		n.Ints = r.dims
		op.attach(n, out)
	}
	return op.done(out)
}

// sumsAs reports whether the sum of elements of dtype d, rounded to the result's, is that of the elements converted to the
// result's: kernels sum halves in float32 and integers in int64.
func sumsAs(d, result core.DType) bool {
	if d.IsComplex() || result.IsComplex() {
		return d == result
	}
	if d.IsFloat() {
		return d == result || d.IsHalf() && result == core.Float32
	}
	return result == d || result.IsInt()
}

func sumDeriv(ctx *core.BackwardContext) {
	ctx.Set(0, spread(castTo(ctx.Grad(), ctx.InputDType(0)), ctx.InputShape(0), ctx.Node.Ints))
}

func meanDeriv(ctx *core.BackwardContext) {
	n := 1
	for _, i := range ctx.Node.Ints {
		n *= ctx.InputShape(0)[i]
	}
	g := castTo(Div(ctx.Grad(), core.Num(float64(n))), ctx.InputDType(0))
	ctx.Set(0, spread(g, ctx.InputShape(0), ctx.Node.Ints))
}
