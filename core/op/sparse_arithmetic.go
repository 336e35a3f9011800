package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

func sparsePow(a core.Application) *core.Tensor {
	e, _ := a.Args[1].(*core.Tensor)
	if sparseOf(a.Args[0]) == nil || e == nil || !e.IsNumber() || e.Number().Float <= 0 {
		return refuseSparse(a, "defined for a sparse tensor and a positive number, which keep zeros, got %v and %v", a.Args[0], e)
	}
	return onMergedValues(a)
}

func sparseMul(a core.Application) *core.Tensor {
	x, y := a.Args[0].(*core.Tensor), a.Args[1].(*core.Tensor)
	s, q := sparseOf(x), sparseOf(y)
	switch {
	case s != nil && q != nil:
		return intersection(a, s, q)
	case s == nil:
		s, y = q, x
	}
	if scalarTensor(y) {
		return s.with(Mul(s.values, y))
	}
	shape, err := core.Broadcast(a.Op, s.shape, y.Shape())
	if err != nil {
		return core.ErrorTensor(err)
	}
	if !slices.Equal(shape, s.shape) {
		return refuseSparse(a, "the dense factor of shape %v must broadcast to the sparse one's shape %v", y.Shape(), s.shape)
	}
	return s.with(Mul(s.values, s.at(Expand(y, shape...))))
}

// intersection multiplies two sparse tensors of one shape.
func intersection(a core.Application, s, q *sparseParts) *core.Tensor {
	if !slices.Equal(s.shape, q.shape) || s.sparse != q.sparse || s.layout != q.layout {
		return refuseSparse(a, "want sparse tensors of one shape and layout, got %v of %v and %v of %v", s, s.shape, q, q.shape)
	}
	if s.pattern == q.pattern && s.coalesced {
		return s.with(Mul(s.values, q.values))
	}
	if s, q = s.coalesce(), q.coalesce(); s.values.Err() != nil || q.values.Err() != nil {
		return firstBroken(s.values, q.values)
	}
	dims := make([]int, s.sparse)
	for d := range dims {
		dims[d] = d
	}
	mine, theirs := s.linear(dims), q.linear(dims)
	if q.entries() == 0 {
		return s.with(MulInPlace(Clone(s.values), core.Num(0)))
	}
	place := Clamp(SearchSorted(theirs, mine, SearchOptions{}), nil, core.IntNum(int64(q.entries()-1)))
	here := Ravel(NonZero(Eq(IndexSelect(theirs, 0, place), mine)))
	if here.Err() != nil {
		return here
	}
	p := newPattern(IndexSelect(s.coordinates(), 1, here), s.shape, true)
	out := p.with(Mul(IndexSelect(s.values, 0, here), IndexSelect(q.values, 0, IndexSelect(place, 0, here))))
	if s.layout == CSR && out.Err() == nil {
		return ToSparseCSR(out)
	}
	return out
}

func sparseDiv(a core.Application) *core.Tensor {
	y := a.Args[1].(*core.Tensor)
	if sparseOf(a.Args[0]) == nil || !scalarTensor(y) {
		return refuseSparse(a, "Sparse division requires a scalar or zero-dim dense tensor divisor (got %v for divisor)", y)
	}
	return onValues(a)
}

// sparseAdd is add, sub and add_scaled.
func sparseAdd(a core.Application) *core.Tensor {
	x, y := a.Args[0].(*core.Tensor), a.Args[1].(*core.Tensor)
	s, q := sparseOf(x), sparseOf(y)
	switch {
	case s != nil && q != nil:
	case s == nil && !x.IsNumber():
		return callOn(a, x, ToDense(y))
	case q == nil && !y.IsNumber():
		return callOn(a, ToDense(x), y)
	default:
		return refuseSparse(a, "a number added to a sparse tensor leaves no zeros")
	}
	if !slices.Equal(s.shape, q.shape) || s.sparse != q.sparse {
		return refuseSparse(a, "want sparse tensors of one shape with the same sparse dimensions, got %v of %v and %v of %v", s, s.shape, q, q.shape)
	}
	if same, err := s.equal(q.pattern); err != nil {
		return core.ErrorTensor(err)
	} else if same && s.layout == q.layout {
		return s.with(callOn(a, s.values, q.values))
	}
	second := callOn(a, ZerosLike(q.values, TensorOptions{}), q.values) // with its sign and factor
	indices := Cat([]*core.Tensor{s.coordinates(), q.coordinates()}, 1)
	if indices.Err() != nil {
		return indices
	}
	out := newPattern(indices, s.shape, false).with(Cat([]*core.Tensor{s.values, second}, 0))
	if s.coalesced && q.coalesced && out.Err() == nil {
		out = Coalesce(out)
	}
	if s.layout == CSR && q.layout == CSR && out.Err() == nil {
		return ToSparseCSR(out)
	}
	return out
}

// sparseAddInPlace adds to an ordinary tensor, or to a sparse one with the same entries.
func sparseAddInPlace(a core.Application) *core.Tensor {
	x, y := a.Args[0].(*core.Tensor), a.Args[1].(*core.Tensor)
	s, q := sparseOf(x), sparseOf(y)
	if q == nil {
		return refuseSparse(a, "want a second sparse tensor, got %v", y)
	}
	if s == nil {
		return callOn(a, x, q.dense())
	}
	same, err := s.equal(q.pattern)
	if err != nil {
		return core.ErrorTensor(err)
	}
	if !same {
		return refuseSparse(a, "the sum has other entries than the tensor that is changed: add out of place")
	}
	if out := callOn(a, s.values, q.values); out.Err() != nil {
		return out
	}
	return x
}

// sparseCopy gives a sparse tensor the entries and values of another one, or an ordinary tensor all of its elements.
func sparseCopy(a core.Application) *core.Tensor {
	x, y := a.Args[0].(*core.Tensor), a.Args[1].(*core.Tensor)
	s, q := sparseOf(x), sparseOf(y)
	switch {
	case s == nil:
		return callOn(a, x, q.dense())
	case q == nil:
		return refuseSparse(a, "a sparse tensor takes the entries of another one, got %v", y)
	case !slices.Equal(s.shape, q.shape) || s.layout != q.layout || s.sparse != q.sparse:
		return refuseSparse(a, "want sparse tensors of one shape and layout, got %v of %v and %v of %v", s, s.shape, q, q.shape)
	case core.CurrentMode().GradEnabled() && (s.values.RequiresGrad() || q.values.RequiresGrad()):
		return refuseSparse(a, "sparse tensors are copied without gradients: use no_grad()")
	}
	if same, err := s.equal(q.pattern); err != nil {
		return core.ErrorTensor(err)
	} else if same {
		if out := callOn(a, s.values, q.values); out.Err() != nil {
			return out
		}
		return x
	}
	values := Clone(castTo(ToDevice(q.values.Detach(), s.values.Device()), s.values.DType()))
	made := (&sparseParts{q.pattern, values}).With(values)
	if made.Err() != nil {
		return made
	}
	of := sparseOf(made)
	*s, *of = sparseParts{of.pattern, of.values}, sparseParts{s.pattern, s.values} // and made, released with its scope, ends the old ones
	return x
}

func sparseZerosLike(a core.Application) *core.Tensor {
	s := sparseOf(a.Args[0])
	if s.layout == CSR {
		return s.with(callOn(a, s.values))
	}
	return newPattern(Narrow(s.coordinates(), 1, 0, 0), s.shape, true).with(callOn(a, Narrow(s.values, 0, 0, 0)))
}
