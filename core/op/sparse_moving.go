package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

func sparseTranspose(a core.Application) *core.Tensor {
	s := sparseOf(a.Args[0])
	d0, d1 := 0, 1
	if a.Op == "transpose" {
		d0, d1 = a.Args[1].(int), a.Args[2].(int)
	} else if len(s.shape) != 2 {
		return core.ErrorTensor(core.Errorf(core.ShapeError, a.Op, "want a matrix, got shape %v", s.shape))
	}
	order := make([]int, len(s.shape))
	for d := range order {
		order[d] = d
	}
	d0, err := core.WrapDim(a.Op, d0, len(order))
	if err != nil {
		return core.ErrorTensor(err)
	}
	if d1, err = core.WrapDim(a.Op, d1, len(order)); err != nil {
		return core.ErrorTensor(err)
	}
	order[d0], order[d1] = order[d1], order[d0]
	return permuted(a, s, order)
}

func sparsePermute(a core.Application) *core.Tensor {
	s := sparseOf(a.Args[0])
	order, err := core.WrapDims(a.Op, slices.Clone(a.Args[1].([]int)), len(s.shape))
	given := slices.Clone(a.Args[1].([]int))
	if err == nil && len(given) != len(order) {
		err = core.Errorf(core.ShapeError, a.Op, "want each dimension of %v once, got %v", s.shape, given)
	}
	if err != nil {
		return core.ErrorTensor(err)
	}
	for i, d := range given {
		if d < 0 {
			given[i] = d + len(s.shape)
		}
	}
	return permuted(a, s, given)
}

// permuted returns the tensor with its dimensions in another order, in which the sparse ones stay in front.
func permuted(a core.Application, s *sparseParts, order []int) *core.Tensor {
	identity := true
	shape, first, inner := make([]int, len(order)), []int{}, []int{0}
	for i, d := range order {
		identity = identity && i == d
		if shape[i] = s.shape[d]; (i < s.sparse) != (d < s.sparse) {
			return refuseSparse(a, "sparse and dense dimensions do not change places, got the order %v of %d sparse ones", order, s.sparse)
		}
		if d < s.sparse {
			first = append(first, d)
		} else {
			inner = append(inner, d-s.sparse+1)
		}
	}
	if identity {
		return a.Args[0].(*core.Tensor).Alias(true)
	}
	if s.layout == CSR {
		return refuseSparse(a, "the transpose of compressed rows would be compressed columns, which are not there: use to_sparse_coo() first")
	}
	values := s.values.Alias(true)
	if len(inner) > 2 {
		values = Permute(s.values, inner...)
	}
	at := core.FromSlice(int64s(first))
	if dev := s.device(); at.Device() != dev {
		at = ToDevice(at, dev)
	}
	p := newPattern(IndexSelect(s.coordinates(), 0, at), shape, false)
	if len(shape) == 2 && s.sparse == 2 {
		// A product with the transpose needs what the matrix has found, or will find for its own derivatives.
		if c := s.rows(true); c.crow.Err() == nil {
			t := c.transposed(s.shape[1])
			p.compressed = &csr{alias(t.crow), alias(t.col), alias(t.order), alias(t.tcrow), alias(t.trow), alias(t.torder)}
		}
	}
	return p.with(values)
}

func alias(t *core.Tensor) *core.Tensor {
	if t == nil {
		return nil
	}
	return t.Alias(false)
}

func int64s(list []int) []int64 {
	out := make([]int64, len(list))
	for i, v := range list {
		out[i] = int64(v)
	}
	return out
}

// sparseUnsqueeze adds a dimension of size 1, a sparse one where it stands among or behind the sparse ones.
func sparseUnsqueeze(a core.Application) *core.Tensor {
	s := sparseOf(a.Args[0])
	dim, err := core.WrapDim(a.Op, a.Args[1].(int), len(s.shape)+1)
	if err != nil {
		return core.ErrorTensor(err)
	}
	if s.layout == CSR {
		return refuseSparse(a, "compressed rows are those of a matrix: use to_sparse_coo() first")
	}
	shape := slices.Insert(slices.Clone(s.shape), dim, 1)
	if dim > s.sparse {
		q := &pattern{shape: shape, sparse: s.sparse, indices: s.coordinates().Alias(false), coalesced: s.coalesced}
		return q.with(Unsqueeze(s.values, dim-s.sparse+1))
	}
	at := slices.Insert(s.list(), dim, zerosFor(s.values, core.Int64, []int{s.entries()}))
	return newPattern(Stack(at, 0), shape, s.coalesced).with(s.values.Alias(true))
}

// sparseStack joins sparse tensors along a new dimension.
func sparseStack(a core.Application) *core.Tensor {
	list := slices.Clone(a.Args[0].([]*core.Tensor))
	for i, t := range list {
		if sparseOf(t) == nil {
			return refuseSparse(a, "want sparse tensors only, got %v", t)
		}
		if list[i] = Unsqueeze(t, a.Args[1].(int)); list[i].Err() != nil {
			return list[i]
		}
	}
	return Cat(list, a.Args[1].(int))
}

// sparseCat joins sparse tensors along a dimension.
func sparseCat(a core.Application) *core.Tensor {
	list := a.Args[0].([]*core.Tensor)
	all := make([]*sparseParts, len(list))
	for i, t := range list {
		if all[i] = sparseOf(t); all[i] == nil || all[i].layout != COO || all[i].sparse != all[0].sparse {
			return refuseSparse(a, "want COO tensors with the same sparse dimensions only, got %v", t)
		}
	}
	first := all[0]
	dim, err := core.WrapDim(a.Op, a.Args[1].(int), len(first.shape))
	if err != nil {
		return core.ErrorTensor(err)
	}
	shape := slices.Clone(first.shape)
	shape[dim] = 0
	var indices, values []*core.Tensor
	for _, s := range all {
		for d, n := range s.shape {
			if len(s.shape) != len(shape) || d != dim && n != shape[d] {
				return core.ErrorTensor(core.Errorf(core.ShapeError, a.Op, "shapes differ outside of dimension %d, got %v and %v", dim, first.shape, s.shape))
			}
		}
		if dim >= first.sparse && len(all) > 1 {
			return refuseSparse(a, "sparse tensors are joined along a sparse dimension, got %d", dim)
		}
		at := s.coordinates()
		if shape[dim] > 0 {
			rows := s.list()
			rows[dim] = Add(rows[dim], core.IntNum(int64(shape[dim])))
			at = Stack(rows, 0)
		}
		shape[dim] += s.shape[dim]
		indices, values = append(indices, at), append(values, s.values)
	}
	joined := Cat(indices, 1)
	if joined.Err() != nil {
		return joined
	}
	return newPattern(joined, shape, false).with(Cat(values, 0))
}
