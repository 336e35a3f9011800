package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// indexDType fails unless t can hold indices.
func (op *opContext) indexDType(t *core.Tensor) {
	if op.err == nil && (t.IsNumber() || t.DType() != core.Int64 && t.DType() != core.Int32) {
		op.failf(core.DTypeError, "indices must be a tensor of int64 or int32, got %v", t)
	}
}

// indexShape fails unless index has x's number of dimensions and in each but dim at most x's size.
func (op *opContext) indexShape(what string, x, index *core.Tensor, dim int) {
	if op.err != nil {
		return
	}
	fits := x.Dim() == index.Dim()
	for i := 0; fits && i < x.Dim(); i++ {
		fits = i == dim || index.Shape()[i] <= x.Shape()[i]
	}
	if !fits {
		op.failf(core.ShapeError, "indices of shape %v do not fit %s of shape %v, want as many dimensions and none larger outside dimension %d",
			index.Shape(), what, x.Shape(), dim)
	}
}

// Gather returns the elements of x that index, an int64 or int32 tensor, names in dimension dim: out[i][j][k] =
// x[index[i][j][k]][j][k] for dim 0. The result has index's shape, which may be smaller than x's in other dimensions. An
// index must lie in [0, size).
func Gather(x *core.Tensor, dim int, index *core.Tensor) *core.Tensor {
	if parts := distributed(x, index); parts != nil {
		return handOn(parts, "gather", x, dim, index)
	}
	op := begin("gather", &x, &index)
	dim = op.dim(dim, x)
	op.indexDType(index)
	if op.err == nil && (x.Dim() == 0 || index.Dim() == 0) {
		return op.compose(func() *core.Tensor {
			return Reshape(Gather(atLeast(x, 1), dim, atLeast(index, 1)), index.Shape()...)
		})
	}
	op.indexShape("a tensor", x, index, dim)
	if op.err != nil {
		return op.fail()
	}
	out := op.outApart(x.DType(), shapeOf(index), x, index)
	if op.err != nil {
		return op.fail()
	}
	c := op.call(contract.Gather).Out(out).In(x).In(index).Int(int64(dim))
	c.Work = 2 * out.Numel()
	op.launch(c)
	if op.grad {
		n := op.node(gatherDeriv, x).Save(index)
		n.Ints = []int{dim}
		op.attach(n, out)
	}
	return op.done(out)
}

// shapeOf returns t's shape, or nil where t has none.
func shapeOf(t *core.Tensor) []int {
	if t == nil || t.Err() != nil {
		return nil
	}
	return t.Shape()
}

func gatherDeriv(ctx *core.BackwardContext) {
	g := ctx.Grad()
	ctx.Set(0, ScatterAddInPlace(zerosFor(g, g.DType(), ctx.InputShape(0)), ctx.Node.Ints[0], ctx.Saved(0), g))
}

// TakeAlongDim returns the elements of x that index names in dimension dim, after the other dimensions of the two were
// broadcast against one another; what ArgMax and ArgSort return fits. Without a dimension (nil), x is taken as flat.
func TakeAlongDim(x, index *core.Tensor, dim *int) *core.Tensor {
	if parts := distributed(x, index); parts != nil {
		return handOn(parts, "take_along_dim", x, index, dim)
	}
	op := begin("take_along_dim", &x, &index)
	if op.err != nil {
		return op.fail()
	}
	if dim == nil {
		return op.compose(func() *core.Tensor { return Gather(Ravel(x), 0, Ravel(index)) })
	}
	at := op.dim(*dim, x)
	if op.err == nil && x.Dim() != index.Dim() {
		op.failf(core.ShapeError, "got a tensor of shape %v and indices of shape %v, want as many dimensions", x.Shape(), index.Shape())
	}
	if op.err != nil {
		return op.fail()
	}
	if x.Dim() == 0 {
		return Gather(x, 0, index)
	}
	xs, is := slices.Clone(x.Shape()), slices.Clone(index.Shape())
	xs[at], is[at] = 1, 1
	shape, err := core.Broadcast("take_along_dim", xs, is)
	if err != nil {
		return core.ErrorTensor(err)
	}
	return op.compose(func() *core.Tensor {
		xs, is := slices.Clone(shape), slices.Clone(shape)
		xs[at], is[at] = x.Shape()[at], index.Shape()[at]
		return Gather(Expand(x, xs...), at, Expand(index, is...))
	})
}
