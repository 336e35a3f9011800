package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// extremeGrad gives what is chosen where x is the extreme. All elements have the gradient NaN if one of them is NaN.
var extremeGrad = elementwise("extreme_grad", "x, extreme, share", "where(isnan(extreme), extreme, where(x == extreme, share, 0))",
	"", "", "where(x == extreme, grad, 0)")

// ChoiceOptions are the options of operations that choose elements.
type ChoiceOptions struct {
	KeepDim bool
	// Even makes all elements that equal the chosen one share its gradient evenly, and NaNs that of a NaN.
	Even bool
}

// evenArg is the argument for Even.
var evenArg = Arg{Name: "even", Field: "Even", Default: false, Doc: "whether all elements that equal the result share its gradient evenly, and NaNs that of a NaN"}

// Amax returns the largest elements of x over dims, or over all dimensions if there are none; NaN where there is one. The
// gradient is shared evenly among equal largest elements. It fails if there are no elements to choose from.
func Amax(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	return AmaxWith(x, dims, ChoiceOptions{KeepDim: keepdim})
}

// AmaxWith is [Amax] with options.
func AmaxWith(x *core.Tensor, dims []int, o ChoiceOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "amax", x, dims, o)
	}
	return extreme("amax", contract.Amax, x, dims, o)
}

// Amin returns the smallest elements of x over dims, or over all dimensions if there are none; NaN where there is one. The
// gradient is shared evenly among equal smallest elements. It fails if there are no elements to choose from.
func Amin(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	return AminWith(x, dims, ChoiceOptions{KeepDim: keepdim})
}

// AminWith is [Amin] with options.
func AminWith(x *core.Tensor, dims []int, o ChoiceOptions) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "amin", x, dims, o)
	}
	return extreme("amin", contract.Amin, x, dims, o)
}

func extreme(name string, k core.KernelID, x *core.Tensor, dims []int, o ChoiceOptions) *core.Tensor {
	op := begin(name, &x)
	r := op.reduction(x, dims, o.KeepDim)
	op.nonempty(x, r)
	if op.err != nil {
		return op.fail()
	}
	out := op.reduce(k, x, r, x.DType())
	if op.err != nil {
		return op.fail()
	}
	if op.grad {
		derive := extremeDeriv
		if o.Even {
			derive = evenDeriv
		}
		n := op.node(derive, x).Save(x).SaveOutput(out, 0)
		n.Ints = r.dims
		op.attach(n, out)
	}
	return op.done(out)
}

func extremeDeriv(ctx *core.BackwardContext) {
	x, out := ctx.Saved(0), ctx.Saved(1)
	ctx.Set(0, shareAmong(x, spread(out, x.Shape(), ctx.Node.Ints), ctx.Grad(), ctx.Node.Ints))
}

// shareAmong returns g, a gradient of x reduced over dims, shared evenly among the elements of x that equal extreme.
func shareAmong(x, extreme, g *core.Tensor, dims []int) *core.Tensor {
	ties := count("eq", contract.CountNonzero, Eq(x, extreme), dims, g.Dim() == x.Dim(), core.Int64)
	return extremeGrad.apply(nil, x, extreme, spread(Div(g, castTo(ties, g.DType())), x.Shape(), dims))
}

// evenDeriv is the derivative where [ChoiceOptions].Even is set.
func evenDeriv(ctx *core.BackwardContext) {
	x, out, g, dims := ctx.Saved(0), ctx.Saved(1), ctx.GradAt(0), ctx.Node.Ints
	if g == nil {
		return
	}
	chosen := IsClose(x, spread(out, x.Shape(), dims), 0, 0, true)
	ties := count("eq", contract.CountNonzero, chosen, dims, g.Dim() == x.Dim(), core.Int64)
	ctx.Set(0, Where(chosen, spread(Div(g, castTo(ties, g.DType())), x.Shape(), dims), core.Num(0)))
}

// ArgMax returns the indices, as int64, of the largest elements of x along a dimension, or in the flattened x if dims is
// empty. Of equal ones it is the first; a NaN counts as the largest.
func ArgMax(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "argmax", x, dims, keepdim)
	}
	return arg("argmax", contract.ArgMax, x, dims, keepdim)
}

// ArgMin returns the indices, as int64, of the smallest elements of x along a dimension, or in the flattened x if dims is
// empty. Of equal ones it is the first; a NaN counts as the smallest.
func ArgMin(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "argmin", x, dims, keepdim)
	}
	return arg("argmin", contract.ArgMin, x, dims, keepdim)
}

func arg(name string, k core.KernelID, x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	op := begin(name, &x)
	if len(dims) > 1 {
		op.failf(core.ValueError, "got dimensions %v, want one or none", dims)
	}
	r := op.reduction(x, dims, keepdim)
	op.nonempty(x, r)
	if op.err != nil {
		return op.fail()
	}
	return op.done(op.reduce(k, x, r, core.Int64))
}
