package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
)

// sparseSum sums all elements to an ordinary tensor; along some dimensions the result is sparse unless they are all of the sparse ones.
func sparseSum(a core.Application) *core.Tensor {
	s, dims, o := sparseOf(a.Args[0]), a.Args[1].([]int), a.Args[2].(ReduceOptions)
	if len(dims) == 0 && !o.KeepDim {
		return SumWith(s.values, nil, o)
	}
	list, err := core.WrapDims(a.Op, dims, len(s.shape))
	if err != nil {
		return core.ErrorTensor(err)
	}
	if o.KeepDim {
		return refuseSparse(a, "a sum of a sparse tensor leaves dimensions out, got keepdim")
	}
	if s = s.coalesce(); s.values.Err() != nil {
		return s.values
	}
	var kept, shape, dense []int
	for d, n := range s.shape {
		switch {
		case !slices.Contains(list, d):
			if shape = append(shape, n); d < s.sparse {
				kept = append(kept, d)
			}
		case d >= s.sparse:
			dense = append(dense, d-s.sparse+1)
		}
	}
	values := s.values
	if len(dense) > 0 {
		values = SumWith(values, dense, o)
	} else if d := sumType(values.DType()); o.DType != nil || d != values.DType() {
		if o.DType != nil {
			d = *o.DType
		}
		values = castTo(values, d)
	}
	switch {
	case values.Err() != nil:
		return values
	case len(kept) == 0:
		return SumWith(values, []int{0}, ReduceOptions{})
	case len(kept) == s.sparse:
		return (&pattern{layout: COO, shape: shape, sparse: s.sparse, indices: s.coordinates().Alias(false), coalesced: s.coalesced}).with(values)
	}
	m := (&sparseParts{s.pattern, values}).merged(kept, shape)
	return m.with(m.values)
}

// sparseSoftmax takes zeros that are no entries as -inf.
func sparseSoftmax(a core.Application) *core.Tensor {
	s := sparseOf(a.Args[0])
	dim, err := core.WrapDim(a.Op, a.Args[1].(int), len(s.shape))
	if err != nil {
		return core.ErrorTensor(err)
	}
	log := a.Op == "log_softmax"
	if s = s.coalesce(); s.values.Err() != nil {
		return s.values
	}
	if dim >= s.sparse {
		args := slices.Clone(a.Args)
		args[0], args[1] = s.values, dim-s.sparse+1
		return s.with(a.Call(args)[0])
	}
	group, n := zerosFor(s.values, core.Int64, []int{s.entries()}), 1
	if s.sparse > 1 {
		var others []int
		for d := range s.sparse {
			if d != dim {
				others = append(others, d)
			}
		}
		var used *core.Tensor
		if len(others) == 1 {
			group, n = s.index(others[0]), s.shape[others[0]]
		} else if used, group, _ = Unique(s.linear(others), nil, UniqueOptions{Inverse: true}); used.Err() == nil {
			n = used.Numel()
		}
	}
	sizes := append([]int{n}, s.values.Shape()[1:]...)
	v := s.values
	if v.DType().IsHalf() {
		v = castTo(v, core.Float32)
	}
	top := IndexReduce(fullLike(v, math.Inf(-1), v.DType(), sizes), 0, group, v.Detach(), "amax", true)
	shifted := Sub(v, IndexSelect(top, 0, group))
	total := IndexSelect(IndexAdd(zerosFor(v, v.DType(), sizes), 0, group, Exp(shifted)), 0, group)
	if log {
		v = Sub(shifted, Log(total))
	} else {
		v = Div(Exp(shifted), total)
	}
	return s.with(castTo(v, s.values.DType()))
}

func sparseNorm(a core.Application) *core.Tensor {
	s := sparseOf(a.Args[0])
	if dims, _ := a.Args[2].([]int); len(dims) > 0 {
		return refuseSparse(a, "the norm of a sparse tensor is that of all elements, got dimensions %v", dims)
	}
	if p, _ := a.Args[1].(float64); p <= 0 {
		return refuseSparse(a, "the order must be positive, got %v", p)
	}
	s = s.coalesce()
	return callOn(a, s.values)
}
