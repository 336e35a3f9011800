package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// ScanOptions are the options of running sums and products.
type ScanOptions struct {
	// DType is the dtype of the result, to which the input is converted first.
	DType *core.DType
}

// CumSum returns the running sums of x along dim: the sum of the elements up to and with each. Integers and bools give
// int64.
func CumSum(x *core.Tensor, dim int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "cumsum", x, dim, ScanOptions{})
	}
	return scan("cumsum", contract.CumSum, cumSumDeriv, x, dim, false, false)
}

// CumSumWith is [CumSum] with options.
func CumSumWith(x *core.Tensor, dim int, o ScanOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "cumsum", x, dim, o)
	}
	return scanAs("cumsum", CumSum, x, dim, o)
}

// CumProd returns the running products of x along dim. Integers and bools give int64.
func CumProd(x *core.Tensor, dim int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "cumprod", x, dim, ScanOptions{})
	}
	return scan("cumprod", contract.CumProd, cumProdDeriv, x, dim, true, false)
}

// CumProdWith is [CumProd] with options.
func CumProdWith(x *core.Tensor, dim int, o ScanOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "cumprod", x, dim, o)
	}
	return scanAs("cumprod", CumProd, x, dim, o)
}

// CumSumInPlace replaces x by its running sums along dim and returns it. Integers keep their dtype and wrap around.
func CumSumInPlace(x *core.Tensor, dim int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "cumsum_", x, dim)
	}
	return replace("cumsum_", func(x *core.Tensor) *core.Tensor { return CumSum(x, dim) }, x)
}

// CumProdInPlace replaces x by its running products along dim and returns it. Integers keep their dtype and wrap around.
func CumProdInPlace(x *core.Tensor, dim int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "cumprod_", x, dim)
	}
	return replace("cumprod_", func(x *core.Tensor) *core.Tensor { return CumProd(x, dim) }, x)
}

func scanAs(name string, f func(x *core.Tensor, dim int) *core.Tensor, x *core.Tensor, dim int, o ScanOptions) *core.Tensor {
	if o.DType == nil || x.Err() != nil || *o.DType == x.DType() && sumType(x.DType()) == x.DType() {
		return f(x, dim)
	}
	return compose(name, func() *core.Tensor { return castTo(f(castTo(x, *o.DType), dim), *o.DType) })
}

// LogCumSumExp returns the running log-sum-exp of x, which must be floating point, along dim, without overflow.
func LogCumSumExp(x *core.Tensor, dim int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "logcumsumexp", x, dim)
	}
	if x.Err() == nil && !x.DType().Differentiable() {
		return core.ErrorTensor(core.Errorf(core.DTypeError, "logcumsumexp", "the input must be floating point or complex, got %v", x.DType()))
	}
	return scan("logcumsumexp", contract.LogCumSumExp, logCumSumExpDeriv, x, dim, true, false)
}

// scan applies a scan of sums, from the last element on if reverse is set; save says whether its derivative needs input
// and output.
func scan(name string, k core.KernelID, deriv core.Deriv, x *core.Tensor, dim int, save, reverse bool) *core.Tensor {
	op := begin(name, &x)
	dim = op.dim(dim, x)
	if op.err != nil {
		return op.fail()
	}
	if x.Dim() == 0 {
		return op.compose(func() *core.Tensor { return Reshape(scan(name, k, deriv, Reshape(x, 1), 0, save, reverse)) })
	}
	if x.DType().IsComplex() && name == "cumprod" {
		if k = contract.ComplexCumProd; !x.Device().Supports(k) {
			return op.compose(func() *core.Tensor { return complexCumProd(x, dim) })
		}
	}
	if x.DType().IsComplex() && name == "logcumsumexp" {
		return op.compose(func() *core.Tensor { return complexLogCumSumExp(x, dim) })
	}
	out := op.outApart(sumType(x.DType()), x.Shape(), x)
	if op.err != nil {
		return op.fail()
	}
	op.launch(contract.ScanAttrs{Dim: dim, Reverse: reverse}.AddTo(op.call(k).Out(out).In(x)))
	if op.grad {
		n := op.node(deriv, x)
		if save {
			n.Save(x).SaveOutput(out, 0)
		}
		n.Ints = []int{dim}
		if reverse {
			n.Ints = append(n.Ints, 1)
		}
		op.attach(n, out)
	}
	return op.done(out)
}

// cumSumDeriv is the scan the other way.
func cumSumDeriv(ctx *core.BackwardContext) {
	reverse := len(ctx.Node.Ints) == 1
	ctx.Set(0, scan("cumsum", contract.CumSum, cumSumDeriv, castTo(ctx.Grad(), ctx.InputDType(0)), ctx.Node.Ints[0], false, reverse))
}

// cumProdDeriv uses that the gradient of x[i] is the product before it times s[i] = g[i] + x[i+1] s[i+1], which needs no
// division and so holds at zeros. Of complex numbers, the factors are conjugates.
func cumProdDeriv(ctx *core.BackwardContext) {
	x, dim := ctx.Saved(0), ctx.Node.Ints[0]
	if x.Err() != nil {
		return // d has failed
	}
	if x.Numel() == 0 {
		ctx.Set(0, Mul(ctx.Grad(), x)) // nothing, which follows from both as elsewhere
		return
	}
	before := shifted(ctx.Saved(1), dim, sliceOf(x, dim, 1))
	ctx.Set(0, Mul(Conj(before), linearScan(Conj(x), ctx.Grad(), dim, true)))
}

// logCumSumExpDeriv is the same for exp(x[i]) times the sum of g[k] exp(-y[k]) from i on, with all exponents at most 0.
func logCumSumExpDeriv(ctx *core.BackwardContext) {
	x, dim := ctx.Saved(0), ctx.Node.Ints[0]
	if x.Err() != nil {
		return // d has failed
	}
	if x.Numel() == 0 {
		ctx.Set(0, Mul(ctx.Grad(), x)) // nothing, which follows from both as elsewhere
		return
	}
	var y *core.Tensor
	if d := x.DType(); d.IsHalf() { // an exponent has the error of y, which in few bits is large
		x = castTo(x, statType(d))
		y = LogCumSumExp(x, dim)
	} else {
		y = ctx.Saved(1)
	}
	decay := logSumExpGrad.apply(nil, core.Num(1), shifted(y, dim, Narrow(y, dim, 0, 1)), y)
	s := linearScan(decay, castTo(ctx.Grad(), x.DType()), dim, true)
	ctx.Set(0, castTo(logSumExpGrad.apply(nil, s, x, y), ctx.InputDType(0)))
}

// shifted returns t moved on by one along dim, with another slice in front.
func shifted(t *core.Tensor, dim int, front *core.Tensor) *core.Tensor {
	return Cat([]*core.Tensor{front, Narrow(t, dim, 0, t.Size(dim)-1)}, dim)
}

// sliceOf returns a slice of t along dim with every element v.
func sliceOf(t *core.Tensor, dim int, v float64) *core.Tensor {
	shape := slices.Clone(t.Shape())
	shape[dim] = 1
	return fullLike(t, v, t.DType(), shape)
}

// linearScan returns y with y[i] = terms[i] + factors[i] y[i-1] along dim, or, in reverse, with
// y[i] = terms[i] + factors[i+1] y[i+1]. Neither is empty.
func linearScan(factors, terms *core.Tensor, dim int, reverse bool) *core.Tensor {
	op := begin("linear_scan").with(factors, terms)
	if op.err != nil {
		return op.fail()
	}
	f, t := op.dense(factors), op.dense(terms)
	y := op.out(terms.DType(), terms.Shape())
	if op.err != nil {
		return op.fail()
	}
	k := contract.LinearScan
	if y.DType().IsComplex() {
		k = contract.ComplexLinearScan
	}
	op.launch(contract.ScanAttrs{Dim: dim, Reverse: reverse}.AddTo(op.call(k).Out(y).In(f).In(t)))
	if op.grad {
		n := op.node(linearScanDeriv, factors, terms).Save(factors).SaveOutput(y, 0)
		n.Ints = []int{dim}
		if reverse {
			n.Ints = append(n.Ints, 1)
		}
		op.attach(n, y)
	}
	return op.done(y)
}

func linearScanDeriv(ctx *core.BackwardContext) {
	factors, y, dim := ctx.Saved(0), ctx.Saved(1), ctx.Node.Ints[0]
	if y.Err() != nil || factors.Err() != nil {
		return // d has failed
	}
	reverse := len(ctx.Node.Ints) == 2
	g := linearScan(Conj(factors), ctx.Grad(), dim, !reverse)
	if ctx.Needs(1) {
		ctx.Set(1, g)
	}
	if ctx.Needs(0) {
		nothing := sliceOf(y, dim, 0)
		if reverse {
			ctx.Set(0, Mul(shifted(g, dim, nothing), Conj(y)))
		} else {
			ctx.Set(0, Mul(g, Conj(shifted(y, dim, nothing))))
		}
	}
}
