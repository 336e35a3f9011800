package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// A scattering is an operation that writes values to where an index tensor says in one dimension.
type scattering struct {
	name  string
	mode  contract.ScatterMode
	deriv core.Deriv
}

var (
	scatterOp    = scattering{"scatter", contract.ScatterAssign, nil}
	scatterAddOp = scattering{"scatter_add", contract.ScatterAdd, nil}
)

func init() {
	scatterOp.deriv, scatterAddOp.deriv = scatterDeriv, scatterAddDeriv
}

// Scatter returns x with values of src written to where index, an int64 or int32 tensor, says in dimension dim:
// out[index[i][j][k]][j][k] = src[i][j][k] for dim 0. src is a tensor of x's dtype, in no dimension smaller than index, or
// a number. An index must lie in [0, size). Where several values go to one element the last one, in the order of
// dimension dim, stays.
func Scatter(x *core.Tensor, dim int, index, src *core.Tensor) *core.Tensor {
	return scatterOp.apply(x, dim, index, src)
}

// ScatterAdd returns x with values of src added to the elements that index names in dimension dim, like [Scatter].
// The order of the additions, and so the result, does not depend on the number of threads.
func ScatterAdd(x *core.Tensor, dim int, index, src *core.Tensor) *core.Tensor {
	return scatterAddOp.apply(x, dim, index, src)
}

// check returns the dimension counted from the front and fails unless the operands fit.
func (s *scattering) check(op *opContext, x *core.Tensor, dim int, index, src *core.Tensor) int {
	dim = op.dim(dim, x)
	op.indexDType(index)
	op.indexShape("a tensor", x, index, dim)
	if op.err != nil || src.IsNumber() {
		return dim
	}
	op.indexShape("a source", src, index, -1)
	if op.err == nil && src.DType() != x.DType() {
		op.failf(core.DTypeError, "the source must be %v like the tensor, got %v", x.DType(), src.DType())
	}
	return dim
}

// complexSource returns src, or where x is complex and src is a number, a tensor of it for each index.
func (op *opContext) complexSource(x, index, src *core.Tensor) *core.Tensor {
	if z := op.asComplex(x, src); z != src && op.err == nil {
		return op.own(op.repeated(z, index.Shape()))
	}
	return src
}

// rank1 reports whether some of the operands, but not all, have no dimensions; they count as having one.
func rank1(x, index, src *core.Tensor) bool {
	for _, t := range []*core.Tensor{x, index, src} {
		if t.Err() == nil && !t.IsNumber() && t.Dim() == 0 {
			return true
		}
	}
	return false
}

func (s *scattering) apply(x *core.Tensor, dim int, index, src *core.Tensor) *core.Tensor {
	if parts := distributed(x, index, src); parts != nil {
		return handOn(parts, s.name, x, dim, index, src)
	}
	op := begin(s.name, &x, &index, &src)
	if op.err == nil && rank1(x, index, src) {
		return op.compose(func() *core.Tensor {
			return Reshape(s.apply(atLeast(x, 1), dim, atLeast(index, 1), numberOr1D(src)), x.Shape()...)
		})
	}
	dim = s.check(&op, x, dim, index, src)
	src = op.complexSource(x, index, src)
	if op.err == nil {
		op.check(holds(s.name, x.DType(), src))
	}
	out := op.out(dtypeOf(x), shapeOf(x))
	if op.err != nil {
		return op.fail()
	}
	op.launch(op.call(contract.Copy).Out(out).In(x))
	s.launch(&op, out, dim, index, src, false)
	if op.grad && x.DType().Differentiable() {
		op.attach(s.node(&op, x, dim, index, src), out)
	}
	return op.done(out)
}

func (s *scattering) applyInPlace(x *core.Tensor, dim int, index, src *core.Tensor) *core.Tensor {
	if parts := distributed(x, index, src); parts != nil {
		return handOn(parts, s.name+"_", x, dim, index, src)
	}
	op := begin(s.name+"_", &x, &index, &src)
	if op.err == nil && rank1(x, index, src) {
		v := atLeast(x, 1)
		defer v.Release()
		if r := s.applyInPlace(v, dim, atLeast(index, 1), numberOr1D(src)); r.Err() != nil {
			return r
		}
		return x
	}
	dim = s.check(&op, x, dim, index, src)
	src = op.complexSource(x, index, src)
	op.inPlace(x)
	if op.err != nil {
		return op.fail()
	}
	src, index = op.apart(x, src), op.apart(x, index)
	if op.err != nil {
		return op.fail()
	}
	s.launch(&op, x, dim, index, src, true)
	op.changed(x)
	if op.grad && x.DType().Differentiable() {
		op.rebase(s.node(&op, x, dim, index, src), x)
	}
	return op.changedTo(x)
}

func numberOr1D(t *core.Tensor) *core.Tensor {
	if t.IsNumber() {
		return t
	}
	return atLeast(t, 1)
}

func dtypeOf(t *core.Tensor) core.DType {
	if t == nil || t.Err() != nil {
		return core.Bool
	}
	return t.DType()
}

// launch runs the kernel. A failure must fail a new tensor, but leave one that is changed in place as it was.
func (s *scattering) launch(op *opContext, out *core.Tensor, dim int, index, src *core.Tensor, inPlace bool) {
	c := contract.ScatterAttrs{Dim: dim, Mode: s.mode}.AddTo(op.call(contract.Scatter).Out(out).In(index).In(src))
	c.InPlace = inPlace
	c.Work = index.Numel()
	op.launch(c)
}

func (s *scattering) node(op *opContext, x *core.Tensor, dim int, index, src *core.Tensor) *core.Node {
	if src.IsNumber() {
		src = nil
	}
	n := op.node(s.deriv, x, src).Save(index)
	n.Ints = []int{dim}
	return n
}

func scatterDeriv(ctx *core.BackwardContext) {
	dim, index, g := ctx.Node.Ints[0], ctx.Saved(0), ctx.Grad()
	if ctx.Needs(0) {
		ctx.Set(0, Scatter(g, dim, index, core.IntNum(0)))
	}
	if ctx.Needs(1) {
		ctx.Set(1, padTo(Gather(g, dim, index), ctx.InputShape(1)))
	}
}

func scatterAddDeriv(ctx *core.BackwardContext) {
	if ctx.Needs(0) {
		ctx.Set(0, ctx.Grad())
	}
	if ctx.Needs(1) {
		ctx.Set(1, padTo(Gather(ctx.Grad(), ctx.Node.Ints[0], ctx.Saved(0)), ctx.InputShape(1)))
	}
}

// padTo returns t with zeros appended to each dimension, to have the given shape.
func padTo(t *core.Tensor, shape []int) *core.Tensor {
	if t.Err() != nil || slices.Equal(t.Shape(), shape) {
		return t
	}
	return embed(t, windowOf(shape, t.Shape(), func(s []int) ([]int, int) { return s, 0 }))
}
