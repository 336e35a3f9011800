package op

import (
	"math"

	"github.com/plait-ml/plait/core"
)

// The functions here give results as those of other ops, where a dimension that an op works along is divided: they communicate results and
// not inputs.

// inDType returns x in another dtype, if it has not that already.
func inDType(x *core.Tensor, d core.DType) *core.Tensor {
	if x.Err() != nil || x.DType() == d {
		return x
	}
	return To(x, d)
}

// wide returns a 16-bit tensor in float32, in which reductions compute.
func wide(x *core.Tensor) *core.Tensor { return inDType(x, x.DType().Compute()) }

// meanOfParts is a mean as a sum, divided by the number of elements.
func meanOfParts(u *Use) []*core.Tensor {
	x, o := u.Tensors[0], argument[ReduceOptions](u, 2)
	gone := reduced(u, 1, x.Dim())
	if !u.divided(x, gone) {
		return nil
	}
	d := x.DType()
	if o.DType != nil {
		d = *o.DType
	}
	if !d.IsFloat() {
		return nil
	}
	n := 1
	for _, i := range gone {
		n *= x.Size(i)
	}
	compute := d.Compute()
	sum := SumWith(x, argument[[]int](u, 1), ReduceOptions{KeepDim: o.KeepDim, DType: &compute})
	return []*core.Tensor{inDType(Div(sum, core.Num(float64(n))), d)}
}

// varOfParts is a variance, or what follows from it, as the mean of squared deviations.
func varOfParts(name string) func(u *Use) []*core.Tensor {
	return func(u *Use) []*core.Tensor {
		x, dims, correction, keep := u.Tensors[0], argument[[]int](u, 1), argument[float64](u, 2), argument[bool](u, 3)
		gone := reduced(u, 1, x.Dim())
		if !u.divided(x, gone) {
			return nil
		}
		n := 1.0
		for _, i := range gone {
			n *= float64(x.Size(i))
		}
		w := wide(x)
		mean := Mean(w, dims, true)
		variance := Div(Sum(Square(Sub(w, mean)), dims, keep), core.Num(max(n-correction, 0)))
		if name == "std" || name == "std_mean" {
			variance = rootOf(variance, Sqrt)
		}
		out := []*core.Tensor{inDType(variance, x.DType())}
		if name == "var_mean" || name == "std_mean" {
			out = append(out, Mean(x, dims, keep))
		}
		return out
	}
}

// normOfParts is a norm as a sum of powers.
func normOfParts(u *Use) []*core.Tensor {
	x, p, dims, o := u.Tensors[0], argument[float64](u, 1), argument[[]int](u, 2), argument[ReduceOptions](u, 3)
	if !u.divided(x, reduced(u, 2, x.Dim())) || o.DType != nil || !x.DType().IsFloat() || !(p >= 1) || p > 64 && !math.IsInf(p, 1) {
		return nil
	}
	w := wide(x)
	var norm *core.Tensor
	switch p {
	case math.Inf(1):
		norm = Amax(Abs(w), dims, o.KeepDim)
	case 1:
		norm = Sum(Abs(w), dims, o.KeepDim)
	case 2:
		norm = rootOf(Sum(Square(w), dims, o.KeepDim), Sqrt)
	default:
		norm = rootOf(Sum(Pow(Abs(w), core.Num(p)), dims, o.KeepDim), func(x *core.Tensor) *core.Tensor { return Pow(x, core.Num(1/p)) })
	}
	return []*core.Tensor{inDType(norm, x.DType())}
}

// rootOf returns the root of a sum of powers. Where that is 0 its gradient is 0, as a norm's or a deviation's is, not infinite.
func rootOf(sum *core.Tensor, of func(*core.Tensor) *core.Tensor) *core.Tensor {
	return unlessZero(sum, 0, of)
}

// unlessZero returns a function of a sum that is not negative, and a number where that is 0, without a gradient there.
func unlessZero(sum *core.Tensor, otherwise float64, of func(*core.Tensor) *core.Tensor) *core.Tensor {
	sum = Abs(sum) // the ranks' sums are summed once, for all that follows
	zero := Eq(sum, core.Num(0))
	return Where(zero, core.Num(otherwise), of(Where(zero, core.Num(1), sum)))
}

// maximumOfParts returns the maximum of x along dims, through which no gradient passes.
func maximumOfParts(x *core.Tensor, dims []int) (maximum *core.Tensor) {
	core.Underived(func() { maximum = Amax(x, dims, true) })
	return maximum
}

// logSumExpOfParts sums exponentials of what the maximum leaves. Where their sum is 0, so is the gradient.
func logSumExpOfParts(u *Use) []*core.Tensor {
	x, dims, keep := u.Tensors[0], argument[[]int](u, 1), argument[bool](u, 2)
	if !u.divided(x, reduced(u, 1, x.Dim())) || !x.DType().IsFloat() {
		return nil
	}
	x = wide(x)
	maximum := maximumOfParts(x, dims)
	maximum = Where(IsFinite(maximum), maximum, core.Num(0))
	out := Add(unlessZero(Sum(Exp(Sub(x, maximum)), dims, true), math.Inf(-1), Log), maximum)
	if !keep {
		out = Squeeze(out, reduced(u, 1, x.Dim())...)
	}
	return []*core.Tensor{inDType(out, u.Tensors[0].DType())}
}

// softmaxOfParts is a softmax, or its logarithm, by exponentials and their sum.
func softmaxOfParts(u *Use) []*core.Tensor {
	x := u.Tensors[0]
	dim := dimOf(argument[int](u, 1), x.Dim())
	if dim < 0 || !u.divided(x, []int{dim}) || !x.DType().IsFloat() {
		return nil
	}
	rest := wide(x)
	rest = Sub(rest, maximumOfParts(rest, []int{dim}))
	powers := Exp(rest)
	sum := Sum(powers, []int{dim}, true)
	var out *core.Tensor
	if u.Op == "softmax" {
		out = Div(powers, sum)
	} else {
		out = Sub(rest, Log(sum))
	}
	return []*core.Tensor{inDType(out, x.DType())}
}

// batchNormOfParts normalises by the mean and variance of the whole batch.
func batchNormOfParts(u *Use) []*core.Tensor {
	x, mean, variance, weight, bias := u.Tensors[0], u.Tensors[1], u.Tensors[2], u.Tensors[3], u.Tensors[4]
	momentum, eps := argument[float64](u, 6), argument[float64](u, 7)
	var dims []int
	for d := range x.Dim() {
		if d != 1 {
			dims = append(dims, d)
		}
	}
	// The running statistics change in place: parts of them that are copies would lose it.
	lost := mean != nil && u.divided(x, []int{1}) && !u.divided(mean, []int{0})
	if !argument[bool](u, 5) || x.Dim() < 2 || !u.divided(x, dims) && !lost {
		return nil
	}
	w := wide(x)
	v, m := VarMean(w, dims, 0, true)
	n := float64(x.Numel() / max(x.Size(1), 1))
	core.Underived(func() {
		flat := func(t *core.Tensor) *core.Tensor { return Flatten(t, 0, -1) }
		if mean != nil {
			LerpInPlace(mean, inDType(flat(m), mean.DType()), core.Num(momentum))
		}
		if variance != nil {
			unbiased := Mul(flat(v), core.Num(n/max(n-1, 1)))
			LerpInPlace(variance, inDType(unbiased, variance.DType()), core.Num(momentum))
		}
	})
	shape := make([]int, x.Dim())
	for d := range shape {
		shape[d] = 1
	}
	shape[1] = x.Size(1)
	y := Mul(Sub(w, m), Rsqrt(Add(v, core.Num(eps))))
	if weight != nil {
		y = Mul(y, Reshape(weight, shape...))
	}
	if bias != nil {
		y = Add(y, Reshape(bias, shape...))
	}
	return []*core.Tensor{inDType(y, x.DType())}
}
