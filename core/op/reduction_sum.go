package op

import "github.com/plait-ml/plait/core"

var (
	sumKernel  = core.Kernel("sum")
	meanKernel = core.Kernel("mean")
)

// sumType returns the dtype of sums and products of elements of dtype d.
func sumType(d core.DType) core.DType {
	if d.IsFloat() {
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
	return sum("sum", sumKernel, sumDeriv, x, dims, ReduceOptions{KeepDim: keepdim})
}

// SumWith is [Sum] with options.
func SumWith(x *core.Tensor, dims []int, o ReduceOptions) *core.Tensor {
	return sum("sum", sumKernel, sumDeriv, x, dims, o)
}

// Mean returns the mean of x, which must be floating point, over dims, or over all dimensions if there are none: the sum,
// divided once. The mean of nothing is NaN.
func Mean(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	return MeanWith(x, dims, ReduceOptions{KeepDim: keepdim})
}

// MeanWith is [Mean] with options; integers have a mean of a floating-point dtype.
func MeanWith(x *core.Tensor, dims []int, o ReduceOptions) *core.Tensor {
	d := o.DType
	if d == nil && x.Err() == nil {
		t := x.DType()
		d = &t
	}
	if d != nil && !d.IsFloat() {
		return core.ErrorTensor(core.Errorf(core.DTypeError, "mean", "got %v, want a floating-point dtype", *d))
	}
	return sum("mean", meanKernel, meanDeriv, x, dims, o)
}

func sum(name string, k core.KernelID, deriv core.Deriv, x *core.Tensor, dims []int, o ReduceOptions) *core.Tensor {
	defer autocast(name, &x).end()
	a := beginTensor(name, x)
	r := a.reduction(x, dims, o.KeepDim)
	if a.err != nil {
		return a.fail()
	}
	result := sumType(x.DType())
	if o.DType != nil {
		if result = *o.DType; !sumsAs(x.DType(), result) {
			return compose(name, func() *core.Tensor { return sum(name, k, deriv, castTo(x, result), dims, o) })
		}
	}
	out := a.reduce(k, x, r, result)
	if a.err != nil {
		return a.fail()
	}
	if a.grad {
		n := a.node(deriv, x)
		n.Ints = r.dims
		a.attach(n, out)
	}
	return a.done(out)
}

// sumsAs reports whether the sum of elements of dtype d, rounded to the result's, is that of the elements converted to the
// result's: kernels sum halves in float32 and integers in int64.
func sumsAs(d, result core.DType) bool {
	if d.IsFloat() {
		return d == result || d.IsHalf() && result == core.Float32
	}
	return result == d || result.IsInt()
}

func sumDeriv(d *core.Derivation) {
	d.Set(0, spread(castTo(d.Grad(), d.InputDType(0)), d.InputShape(0), d.Node.Ints))
}

func meanDeriv(d *core.Derivation) {
	n := 1
	for _, i := range d.Node.Ints {
		n *= d.InputShape(0)[i]
	}
	g := castTo(Div(d.Grad(), core.Num(float64(n))), d.InputDType(0))
	d.Set(0, spread(g, d.InputShape(0), d.Node.Ints))
}
