package op

import "github.com/plait-ml/plait/core"

// Put returns x with src written to, or with accumulate added to, its elements, taken as flat, at the indices; see
// [PutInPlace].
func Put(x, index, src *core.Tensor, accumulate bool) *core.Tensor {
	if parts := distributed(x, index, src); parts != nil {
		return handOn(parts, "put", x, index, src, accumulate)
	}
	op := begin("put", &x, &index, &src)
	return op.compose(func() *core.Tensor { return PutInPlace(Clone(x), index, src, accumulate) })
}

// IndexReduce returns x with the parts of src along dim combined with those that the indices, a vector, name: their "prod",
// "mean", "amax" or "amin". With includeSelf the parts of x take part; see [ScatterReduce].
func IndexReduce(x *core.Tensor, dim int, index, src *core.Tensor, reduce string, includeSelf bool) *core.Tensor {
	if parts := distributed(x, index, src); parts != nil {
		return handOn(parts, "index_reduce", x, dim, index, src, reduce, includeSelf)
	}
	op := begin("index_reduce", &x, &index, &src)
	if op.err == nil && scalar(x) && scalar(src) {
		return op.compose(func() *core.Tensor {
			return Reshape(IndexReduce(atLeast(x, 1), dim, atLeast(index, 1), atLeast(src, 1), reduce, includeSelf))
		})
	}
	dim = op.dim(dim, x)
	switch {
	case op.err != nil:
	case reduce == "sum":
		op.failf(core.ValueError, "unknown reduction %q, want prod, mean, amax or amin", reduce)
	case x.Dim() == 0 || src.Dim() != x.Dim():
		op.failf(core.ShapeError, "got %s, want as many dimensions", shapes(x, src))
	case index.Dim() != 1 || index.Numel() != src.Size(dim):
		op.failf(core.ShapeError, "got indices of shape %v, want [%d] for a source of shape %v", index.Shape(), src.Size(dim), src.Shape())
	}
	return op.compose(func() *core.Tensor {
		shape := make([]int, src.Dim())
		for i := range shape {
			shape[i] = 1
		}
		shape[dim] = index.Numel()
		return ScatterReduce(x, dim, Expand(Reshape(index, shape...), src.Shape()...), src, reduce, includeSelf)
	})
}

// IndexReduceInPlace changes x as [IndexReduce] does and returns it.
func IndexReduceInPlace(x *core.Tensor, dim int, index, src *core.Tensor, reduce string, includeSelf bool) *core.Tensor {
	if parts := distributed(x, index, src); parts != nil {
		return handOn(parts, "index_reduce_", x, dim, index, src, reduce, includeSelf)
	}
	op := begin("index_reduce_", &x, &index, &src)
	return op.replace(x, func(old *core.Tensor) *core.Tensor { return IndexReduce(old, dim, index, src, reduce, includeSelf) })
}

// replace changes x to what f makes of its value, of which it gets a copy: the derivative needs what is overwritten.
func (op *opContext) replace(x *core.Tensor, f func(old *core.Tensor) *core.Tensor) *core.Tensor {
	op.inPlace(x)
	if op.err != nil {
		return op.fail()
	}
	return op.done(CopyInPlace(x, op.own(f(op.own(Clone(x))))))
}
