package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// trueCount waits for a mask and returns the number of its true elements.
func (op *opContext) trueCount(mask *core.Tensor) int {
	n := op.temp(core.Int64)
	if op.err != nil {
		return 0
	}
	if op.launch(op.call(contract.MaskCount).Out(n).In(mask)); op.err != nil {
		return 0
	}
	count, err := n.Int()
	op.check(err)
	return int(count)
}

// maskPositions waits for a mask and returns the indices of its true elements in the columns of an int64 tensor.
func maskPositions(mask *core.Tensor) *core.Tensor {
	op := begin("index", &mask)
	n := op.trueCount(mask)
	out := op.out(core.Int64, []int{len(shapeOf(mask)), n})
	if op.err != nil {
		return op.fail()
	}
	op.launch(op.call(contract.MaskPositions).Out(out).In(mask))
	return op.done(out)
}

// mask fails unless t is a mask.
func (op *opContext) mask(t *core.Tensor) {
	if op.err == nil && (t.IsNumber() || t.DType() != core.Bool) {
		op.failf(core.DTypeError, "the mask must be a tensor of bool, got %v", t)
	}
}

// MaskedSelect returns the elements of x where mask is true, row-major, in one dimension. Shapes broadcast. It waits for
// the mask, which decides the shape of the result.
func MaskedSelect(x, mask *core.Tensor) *core.Tensor {
	if parts := distributed(x, mask); parts != nil {
		return handOn(parts, "masked_select", x, mask)
	}
	return maskedSelect("masked_select", x, mask)
}

func maskedSelect(name string, x, mask *core.Tensor) *core.Tensor {
	op := begin(name, &x, &mask)
	op.mask(mask)
	shape := op.broadcast(x, mask)
	if op.err != nil {
		return op.fail()
	}
	full, where := op.own(op.repeated(x, shape)), op.own(op.repeated(mask, shape))
	n := op.trueCount(where)
	out := op.out(x.DType(), []int{n})
	if op.err != nil {
		return op.fail()
	}
	op.launch(op.call(contract.MaskedSelect).Out(out).In(full).In(where))
	if op.grad {
		n := op.node(maskedSelectDeriv, x).Save(mask)
		n.Ints = shape
		op.attach(n, out)
	}
	return op.done(out)
}

func maskedSelectDeriv(ctx *core.BackwardContext) {
	g := ctx.Grad()
	ctx.Set(0, sumTo(MaskedScatterInPlace(zerosFor(g, g.DType(), ctx.Node.Ints), ctx.Saved(0), g), ctx.InputShape(0)))
}

// MaskedScatter returns x, broadcast with mask, with the elements where mask is true replaced by those of source, of x's
// dtype, in order. The source must have enough elements; what it has too many of is not used.
func MaskedScatter(x, mask, source *core.Tensor) *core.Tensor {
	if parts := distributed(x, mask, source); parts != nil {
		return handOn(parts, "masked_scatter", x, mask, source)
	}
	op := begin("masked_scatter", &x, &mask, &source)
	if shape := op.broadcast(x, mask); op.err == nil && !slices.Equal(shape, x.Shape()) {
		return op.compose(func() *core.Tensor { return MaskedScatter(Expand(x, shape...), mask, source) })
	}
	op.maskedScatter(x, mask, source)
	if op.err != nil {
		return op.fail()
	}
	out := op.out(x.DType(), x.Shape())
	if op.err != nil {
		return op.fail()
	}
	op.launch(op.call(contract.Copy).Out(out).In(x))
	op.launchMaskedScatter(out, mask, source, false)
	if op.grad {
		op.attach(op.node(maskedScatterDeriv, x, source).Save(mask), out)
	}
	return op.done(out)
}

// MaskedScatterInPlace changes x as [MaskedScatter] does and returns it.
func MaskedScatterInPlace(x, mask, source *core.Tensor) *core.Tensor {
	if parts := distributed(x, mask, source); parts != nil {
		return handOn(parts, "masked_scatter_", x, mask, source)
	}
	op := begin("masked_scatter_", &x, &mask, &source)
	op.maskedScatter(x, mask, source)
	op.inPlace(x)
	if op.err != nil {
		return op.fail()
	}
	mask, source = op.apart(x, mask), op.apart(x, source)
	op.launchMaskedScatter(x, mask, source, true)
	if op.err != nil {
		return op.fail()
	}
	op.changed(x)
	if op.grad && x.DType().Differentiable() {
		op.rebase(op.node(maskedScatterDeriv, x, source).Save(mask), x)
	}
	return op.changedTo(x)
}

// maskedScatter checks the operands.
func (op *opContext) maskedScatter(x, mask, source *core.Tensor) {
	op.mask(mask)
	if op.err == nil && source.IsNumber() {
		op.failf(core.TypeError, "got a number, want a tensor")
	}
	if op.err == nil && x.DType() != source.DType() {
		op.failf(core.DTypeError, "the source must be %v like the tensor, got %v", x.DType(), source.DType())
	}
	if shape := op.broadcast(x, mask); op.err == nil && !slices.Equal(shape, x.Shape()) {
		op.failf(core.ShapeError, "a mask of shape %v does not broadcast to %v", mask.Shape(), x.Shape())
	}
}

func (op *opContext) launchMaskedScatter(x, mask, source *core.Tensor, inPlace bool) {
	if op.err != nil {
		return
	}
	flat, where := op.dense(source), op.own(op.repeated(mask, x.Shape()))
	c := op.call(contract.MaskedScatter).Out(x).In(where).In(flat)
	c.InPlace = inPlace
	op.launch(c)
}

func maskedScatterDeriv(ctx *core.BackwardContext) {
	g, mask := ctx.Grad(), ctx.Saved(0)
	if ctx.Needs(0) {
		ctx.Set(0, Where(mask, core.Num(0), g))
	}
	if !ctx.Needs(1) {
		return
	}
	taken := MaskedSelect(g, BroadcastTo(mask, g.Shape()...))
	if n := core.Numel(ctx.InputShape(1)); taken.Err() == nil && taken.Numel() < n {
		taken = padTo(taken, []int{n})
	}
	ctx.Set(1, Reshape(taken, ctx.InputShape(1)...))
}

// NonZero returns the coordinates of the elements of x that are not zero, in row-major order: an int64 tensor of shape
// [number of them, dimensions of x]. It waits for that number.
func NonZero(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "nonzero", x)
	}
	op := begin("nonzero", &x)
	return op.compose(func() *core.Tensor {
		in := op.own(Contiguous(x.Detach()))
		if op.err == nil && in.DType().IsComplex() {
			in = op.own(castTo(in, core.Bool))
		}
		n, err := CountNonzero(in, nil).Int()
		op.check(err)
		out := op.out(core.Int64, []int{int(n), x.Dim()})
		if op.err != nil {
			return op.fail()
		}
		op.launch(op.call(contract.Nonzero).Out(out).In(in))
		return op.done(out)
	})
}
