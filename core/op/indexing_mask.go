package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

var (
	maskCountKernel     = core.Kernel("mask_count")     // Outs[0] = the number of true elements of Ins[0]
	maskPositionsKernel = core.Kernel("mask_positions") // Outs[0], [dims, count], = the indices of the true elements of Ins[0]
	maskedSelectKernel  = core.Kernel("masked_select")  // Outs[0] = the elements of Ins[0] where Ins[1] is true
	maskedScatterKernel = core.Kernel("masked_scatter") // in place: Outs[0] where Ins[0] is true = the elements of Ins[1], in order
	nonzeroKernel       = core.Kernel("nonzero")        // Outs[0], [count, dims], = the indices of the elements of Ins[0] that are not 0
)

// trueCount waits for a mask and returns the number of its true elements.
func (a *application) trueCount(mask *core.Tensor) int {
	n := a.temp(core.Int64)
	if a.err != nil {
		return 0
	}
	if a.launch(a.call(maskCountKernel).Out(n).In(mask)); a.err != nil {
		return 0
	}
	count, err := n.Int()
	a.check(err)
	return int(count)
}

// maskPositions waits for a mask and returns the indices of its true elements in the columns of an int64 tensor.
func maskPositions(mask *core.Tensor) *core.Tensor {
	a := beginGiven("index", mask)
	n := a.trueCount(mask)
	out := a.out(core.Int64, []int{len(shapeOf(mask)), n})
	if a.err != nil {
		return a.fail()
	}
	a.launch(a.call(maskPositionsKernel).Out(out).In(mask))
	return a.done(out)
}

// mask fails unless t is a mask.
func (a *application) mask(t *core.Tensor) {
	if a.err == nil && (t.IsNumber() || t.DType() != core.Bool) {
		a.failf(core.DTypeError, "the mask must be a tensor of bool, got %v", t)
	}
}

// MaskedSelect returns the elements of x where mask is true, row-major, in one dimension. Shapes broadcast. It waits for
// the mask, which decides the shape of the result.
func MaskedSelect(x, mask *core.Tensor) *core.Tensor {
	a := beginGiven("masked_select", x, mask)
	a.mask(mask)
	if a.err == nil && x.IsNumber() {
		a.failf(core.TypeError, "got a number, want a tensor")
	}
	shape := a.broadcast(x, mask)
	if a.err != nil {
		return a.fail()
	}
	full, where := a.own(a.repeated(x, shape)), a.own(a.repeated(mask, shape))
	n := a.trueCount(where)
	out := a.out(x.DType(), []int{n})
	if a.err != nil {
		return a.fail()
	}
	a.launch(a.call(maskedSelectKernel).Out(out).In(full).In(where))
	if a.grad {
		n := a.node(maskedSelectDeriv, x).Save(mask)
		n.Ints = shape
		a.attach(n, out)
	}
	return a.done(out)
}

func maskedSelectDeriv(d *core.Derivation) {
	g := d.Grad()
	d.Set(0, sumTo(MaskedScatterInPlace(zerosFor(g, g.DType(), d.Node.Ints), d.Saved(0), g), d.InputShape(0)))
}

// MaskedScatter returns x, broadcast with mask, with the elements where mask is true replaced by those of source, of x's
// dtype, in order. The source must have enough elements; what it has too many of is not used.
func MaskedScatter(x, mask, source *core.Tensor) *core.Tensor {
	a := beginGiven("masked_scatter", x, mask, source)
	if shape := a.broadcast(x, mask); a.err == nil && !slices.Equal(shape, x.Shape()) {
		return compose("masked_scatter", func() *core.Tensor { return MaskedScatter(Expand(x, shape...), mask, source) })
	}
	a.maskedScatter(x, mask, source)
	if a.err != nil {
		return a.fail()
	}
	out := a.out(x.DType(), x.Shape())
	if a.err != nil {
		return a.fail()
	}
	a.launch(a.call(copyKernel).Out(out).In(x))
	a.launchMaskedScatter(out, mask, source, false)
	if a.grad {
		a.attach(a.node(maskedScatterDeriv, x, source).Save(mask), out)
	}
	return a.done(out)
}

// MaskedScatterInPlace changes x as [MaskedScatter] does and returns it.
func MaskedScatterInPlace(x, mask, source *core.Tensor) *core.Tensor {
	a := beginGiven("masked_scatter_", x, mask, source)
	a.maskedScatter(x, mask, source)
	a.inPlace(x)
	if a.err != nil {
		return a.fail()
	}
	mask, source = a.apart(x, mask), a.apart(x, source)
	a.launchMaskedScatter(x, mask, source, true)
	if a.err != nil {
		return a.fail()
	}
	a.changed(x)
	if a.grad && x.DType().IsFloat() {
		a.rebase(a.node(maskedScatterDeriv, x, source).Save(mask), x)
	}
	return a.changedTo(x)
}

// maskedScatter checks the operands.
func (a *application) maskedScatter(x, mask, source *core.Tensor) {
	a.mask(mask)
	if a.err == nil && (x.IsNumber() || source.IsNumber()) {
		a.failf(core.TypeError, "got a number, want a tensor")
	}
	if a.err == nil && x.DType() != source.DType() {
		a.failf(core.DTypeError, "the source must be %v like the tensor, got %v", x.DType(), source.DType())
	}
	if shape := a.broadcast(x, mask); a.err == nil && !slices.Equal(shape, x.Shape()) {
		a.failf(core.ShapeError, "a mask of shape %v does not broadcast to %v", mask.Shape(), x.Shape())
	}
}

func (a *application) launchMaskedScatter(x, mask, source *core.Tensor, inPlace bool) {
	if a.err != nil {
		return
	}
	flat, where := a.dense(source), a.own(a.repeated(mask, x.Shape()))
	c := a.call(maskedScatterKernel).Out(x).In(where).In(flat)
	c.InPlace = inPlace
	a.launch(c)
}

func maskedScatterDeriv(d *core.Derivation) {
	g, mask := d.Grad(), d.Saved(0)
	if d.Needs(0) {
		d.Set(0, Where(mask, core.Num(0), g))
	}
	if !d.Needs(1) {
		return
	}
	taken := MaskedSelect(g, BroadcastTo(mask, g.Shape()...))
	if n := core.Numel(d.InputShape(1)); taken.Err() == nil && taken.Numel() < n {
		taken = padTo(taken, []int{n})
	}
	d.Set(1, Reshape(taken, d.InputShape(1)...))
}

// NonZero returns the coordinates of the elements of x that are not zero, in row-major order: an int64 tensor of shape
// [number of them, dimensions of x]. It waits for that number.
func NonZero(x *core.Tensor) *core.Tensor {
	a := beginTensor("nonzero", x)
	if a.err != nil {
		return a.fail()
	}
	return compose("nonzero", func() *core.Tensor {
		in := a.own(Contiguous(x.Detach()))
		n, err := CountNonzero(in, nil).Int()
		a.check(err)
		out := a.out(core.Int64, []int{int(n), x.Dim()})
		if a.err != nil {
			return a.fail()
		}
		a.launch(a.call(nonzeroKernel).Out(out).In(in))
		return a.done(out)
	})
}
