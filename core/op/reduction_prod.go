package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// prodGrad is g times the product of the other elements: p is the product of the elements that are not 0, of which there
// are all but `zeros`. One NaN makes it NaN for all.
var prodGrad = elementwise("prod_grad", "g, x, p, zeros", "where(isnan(p), p, where(zeros == 0, g*p/x, where(zeros == 1 && x == 0, g*p, 0)))")

// Prod returns the product of x over dims, or over all dimensions if there are none; integers and bools give int64. The
// product of nothing is 1.
func Prod(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "prod", x, dims, ReduceOptions{KeepDim: keepdim})
	}
	op := begin("prod", &x)
	r := op.reduction(x, dims, keepdim)
	if op.err != nil {
		return op.fail()
	}
	k := contract.Prod
	if x.DType().IsComplex() {
		if k = contract.ComplexProd; !x.Device().Supports(k) {
			return op.compose(func() *core.Tensor { return complexProd(x, r) })
		}
	}
	out := op.reduce(k, x, r, sumType(x.DType()))
	if op.err != nil {
		return op.fail()
	}
	if op.grad {
		n := op.node(prodDeriv, x).Save(x)
		n.Ints = r.dims
		op.attach(n, out)
	}
	return op.done(out)
}

// ProdWith is [Prod] with options.
func ProdWith(x *core.Tensor, dims []int, o ReduceOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "prod", x, dims, o)
	}
	if o.DType == nil || x.Err() != nil || *o.DType == x.DType() && sumType(x.DType()) == x.DType() {
		return Prod(x, dims, o.KeepDim)
	}
	return compose("prod", func() *core.Tensor {
		return castTo(Prod(castTo(x, *o.DType), dims, o.KeepDim), *o.DType)
	})
}

func prodDeriv(ctx *core.BackwardContext) {
	x, shape, dims := ctx.Saved(0), ctx.InputShape(0), ctx.Node.Ints
	g := spread(ctx.Grad(), shape, dims)
	if x.Err() == nil && x.DType().IsComplex() {
		ctx.Set(0, Mul(g, Conj(productOfOthers(x, dims))))
		return
	}
	if ctx.CreateGraph() {
		ctx.Set(0, Mul(g, productOfOthers(x, dims)))
		return
	}
	x = castTo(x, statType(x.DType())) // products of others that halves cannot hold may have a gradient that they can
	isZero := Eq(x, core.Num(0))
	zeros := castTo(count("eq", contract.CountNonzero, isZero, dims, true, core.Int64), x.DType())
	p := Prod(Where(isZero, core.Num(1), x), dims, true)
	grad := prodGrad.apply(nil, g, x, spread(p, shape, dims), spread(zeros, shape, dims))
	ctx.Set(0, castTo(grad, ctx.InputDType(0)))
}

// productOfOthers returns, for each element of x, the product of the others over dims, by operations that can be
// differentiated at zeros too.
func productOfOthers(x *core.Tensor, dims []int) *core.Tensor {
	if len(dims) == 0 {
		return onesLike(x)
	}
	// The dimensions become the first one of a matrix.
	order := append([]int{}, dims...)
	n := 1
	for i, size := range x.Shape() {
		if len(dims) > 0 && dims[0] == i {
			dims = dims[1:]
			n *= size
			continue
		}
		order = append(order, i)
	}
	back := make([]int, len(order))
	for i, d := range order {
		back[d] = i
	}
	moved := Permute(x, order...)
	switch {
	case moved.Err() != nil:
		return moved
	case n == 1:
		return onesLike(x)
	case x.Numel() == 0:
		return x // nothing, which depends on x as others do
	}
	others := productOfOtherRows(Reshape(moved, n, x.Numel()/n))
	return Permute(Reshape(others, moved.Shape()...), back...)
}

// productOfOtherRows returns, for each row of a matrix, the elementwise product of all others: of pairs of rows first,
// which gives what each row's partner lacks.
func productOfOtherRows(x *core.Tensor) *core.Tensor {
	n := x.Size(0)
	if n == 1 {
		return onesLike(x)
	}
	half := n / 2
	a, b := Narrow(x, 0, 0, half), Narrow(x, 0, half, half)
	pairs := Mul(a, b)
	others := productOfOtherRows(pairs)
	if n%2 == 0 {
		return Cat([]*core.Tensor{Mul(others, b), Mul(others, a)}, 0)
	}
	last := Narrow(x, 0, n-1, 1)
	all := Mul(Narrow(others, 0, 0, 1), Narrow(pairs, 0, 0, 1))
	others = Mul(others, last)
	return Cat([]*core.Tensor{Mul(others, b), Mul(others, a), all}, 0)
}

func onesLike(x *core.Tensor) *core.Tensor { return fullLike(x, 1, x.DType(), x.Shape()) }
