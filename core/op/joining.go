package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// Cat returns the tensors joined along dimension dim. Their other sizes must be equal; dtypes promote. One-dimensional
// tensors without elements count for nothing but their dtype.
func Cat(tensors []*core.Tensor, dim int) *core.Tensor {
	if parts := distributed(tensors...); parts != nil {
		return handOn(parts, "cat", tensors, dim)
	}
	op := begin("cat").list(&tensors)
	list := op.joinable(tensors)
	if op.err != nil {
		return op.fail()
	}
	dim = op.dim(dim, list[0])
	if op.err == nil && list[0].Dim() == 0 {
		op.failf(core.ShapeError, "0-d tensors cannot be joined; stack them")
	}
	if op.err != nil {
		return op.fail()
	}
	shape, d := slices.Clone(list[0].Shape()), tensors[0].DType()
	for _, t := range tensors[1:] {
		d = core.Promote(d, t.DType())
	}
	for _, t := range list[1:] {
		fits := t.Dim() == len(shape)
		for i := range shape {
			fits = fits && (i == dim || t.Shape()[i] == shape[i])
		}
		if !fits {
			op.failf(core.ShapeError, "shapes %v and %v differ in more than dimension %d", list[0].Shape(), t.Shape(), dim)
			return op.fail()
		}
		shape[dim] += t.Shape()[dim]
	}
	op.common(d, list...)
	if op.err == nil && d.IsComplex() {
		list = op.allAs(list, d)
	}
	out := op.outApart(d, shape, tensors...)
	if op.err != nil {
		return op.fail()
	}
	c := op.call(contract.Cat).Out(out).Int(int64(dim))
	for _, t := range list {
		c.In(t)
	}
	op.launch(c)
	if op.grad {
		n := op.node(catDeriv, tensors...)
		n.Ints = []int{dim}
		op.attach(n, out)
	}
	return op.done(out)
}

// allAs returns the tensors with those of another dtype than d converted.
func (op *opContext) allAs(tensors []*core.Tensor, d core.DType) []*core.Tensor {
	list := slices.Clone(tensors)
	for i, t := range list {
		if t.DType() != d {
			list[i] = op.own(To(t, d))
		}
	}
	return list
}

// joinable returns the tensors that Cat joins.
func (op *opContext) joinable(tensors []*core.Tensor) []*core.Tensor {
	if op.err == nil && len(tensors) == 0 {
		op.failf(core.ValueError, "got no tensors")
	}
	if op.err != nil {
		return nil
	}
	list := make([]*core.Tensor, 0, len(tensors))
	for i, t := range tensors {
		if t.IsNumber() {
			op.failf(core.TypeError, "tensor %d of the list is a number", i)
			return nil
		}
		if t.Dim() != 1 || t.Numel() > 0 {
			list = append(list, t)
		}
	}
	if len(list) == 0 {
		return tensors
	}
	return list
}

func catDeriv(ctx *core.BackwardContext) {
	dim, at := ctx.Node.Ints[0], 0
	for i := range ctx.Node.Edges() {
		shape := ctx.InputShape(i)
		if len(shape) == 1 && shape[0] == 0 { // one that counts for nothing
			if ctx.Needs(i) {
				ctx.Set(i, zerosFor(ctx.Grad(), ctx.InputDType(i), shape))
			}
			continue
		}
		n := shape[dim]
		if ctx.Needs(i) {
			ctx.Set(i, castTo(Narrow(ctx.Grad(), dim, at, n), ctx.InputDType(i)))
		}
		at += n
	}
}

// Stack returns the tensors, of one shape, joined along a new dimension, to be dimension dim of the result. Dtypes
// promote.
func Stack(tensors []*core.Tensor, dim int) *core.Tensor {
	if parts := distributed(tensors...); parts != nil {
		return handOn(parts, "stack", tensors, dim)
	}
	op := begin("stack").list(&tensors)
	if op.err == nil && len(tensors) == 0 {
		op.failf(core.ValueError, "got no tensors")
	}
	if op.err != nil {
		return op.fail()
	}
	first := tensors[0]
	dim, err := core.WrapDim("stack", dim, first.Dim()+1)
	op.check(err)
	d := first.DType()
	for i, t := range tensors {
		if op.err == nil && t.IsNumber() {
			op.failf(core.TypeError, "tensor %d of the list is a number", i)
		}
		if op.err == nil && !slices.Equal(t.Shape(), first.Shape()) {
			op.failf(core.ShapeError, "shapes differ, got %v and %v", first.Shape(), t.Shape())
		}
		d = core.Promote(d, t.DType())
	}
	if op.err != nil {
		return op.fail()
	}
	op.common(d, tensors...)
	if op.err == nil && d.IsComplex() {
		tensors = op.allAs(tensors, d)
	}
	out := op.outApart(d, slices.Insert(slices.Clone(first.Shape()), dim, len(tensors)), tensors...)
	if op.err != nil {
		return op.fail()
	}
	parts := make([]*core.Tensor, len(tensors))
	for i, t := range tensors {
		parts[i] = op.withUnit(t, dim)
	}
	c := op.call(contract.Cat).Out(out).Int(int64(dim))
	for _, p := range parts {
		c.In(p)
	}
	op.launch(c)
	for _, p := range parts {
		p.Release()
	}
	if op.grad {
		n := op.node(stackDeriv, tensors...)
		n.Ints = []int{dim}
		op.attach(n, out)
	}
	return op.done(out)
}

func stackDeriv(ctx *core.BackwardContext) {
	for i := range ctx.Node.Edges() {
		if ctx.Needs(i) {
			ctx.Set(i, castTo(Select(ctx.Grad(), ctx.Node.Ints[0], i), ctx.InputDType(i)))
		}
	}
}

// Hstack joins the tensors side by side: along the first dimension if they have only one, otherwise along the second.
func Hstack(tensors []*core.Tensor) *core.Tensor {
	if parts := distributed(tensors...); parts != nil {
		return handOn(parts, "hstack", tensors)
	}
	return joinAtLeast("hstack", tensors, 1, func(list []*core.Tensor) int { return min(list[0].Dim()-1, 1) })
}

// Vstack joins the tensors, of which vectors count as rows, along the first dimension.
func Vstack(tensors []*core.Tensor) *core.Tensor {
	if parts := distributed(tensors...); parts != nil {
		return handOn(parts, "vstack", tensors)
	}
	return joinAtLeast("vstack", tensors, 2, func([]*core.Tensor) int { return 0 })
}

// Dstack joins the tensors, with at least three dimensions, along the third.
func Dstack(tensors []*core.Tensor) *core.Tensor {
	if parts := distributed(tensors...); parts != nil {
		return handOn(parts, "dstack", tensors)
	}
	return joinAtLeast("dstack", tensors, 3, func([]*core.Tensor) int { return 2 })
}

func joinAtLeast(name string, tensors []*core.Tensor, n int, dim func([]*core.Tensor) int) *core.Tensor {
	op := begin(name).list(&tensors)
	if op.err == nil && len(tensors) == 0 {
		op.failf(core.ValueError, "got no tensors")
	}
	return op.compose(func() *core.Tensor {
		list := make([]*core.Tensor, len(tensors))
		for i, t := range tensors {
			list[i] = atLeast(t, n)
		}
		return Cat(list, dim(list))
	})
}

// ColumnStack joins the tensors, of which vectors count as columns, along the second dimension.
func ColumnStack(tensors []*core.Tensor) *core.Tensor {
	if parts := distributed(tensors...); parts != nil {
		return handOn(parts, "column_stack", tensors)
	}
	op := begin("column_stack").list(&tensors)
	if op.err == nil && len(tensors) == 0 {
		op.failf(core.ValueError, "got no tensors")
	}
	return op.compose(func() *core.Tensor {
		list := make([]*core.Tensor, len(tensors))
		for i, t := range tensors {
			list[i] = t
			if t.Dim() < 2 {
				list[i] = Reshape(t, t.Numel(), 1)
			}
		}
		return Cat(list, 1)
	})
}
