package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// sparseIndexSelect takes slices along a sparse dimension, or along a dense one.
func sparseIndexSelect(a core.Application) *core.Tensor {
	s, index := sparseOf(a.Args[0]), a.Args[2].(*core.Tensor)
	if s == nil || sparseOf(index) != nil {
		return refuseSparse(a, "the first tensor must be the sparse one, and the index an ordinary one")
	}
	dim, err := core.WrapDim(a.Op, a.Args[1].(int), len(s.shape))
	if err != nil {
		return core.ErrorTensor(err)
	}
	shape := slices.Clone(s.shape)
	if shape[dim] = index.Numel(); dim >= s.sparse {
		args := slices.Clone(a.Args)
		args[0], args[1] = s.values, dim-s.sparse+1
		q := &pattern{layout: COO, shape: shape, sparse: s.sparse, indices: s.coordinates().Alias(false), coalesced: s.coalesced}
		return q.with(a.Call(args)[0])
	}
	list, err := core.Values[int](index)
	if err != nil {
		return core.ErrorTensor(err)
	}
	for _, v := range list {
		if v < 0 || v >= s.shape[dim] {
			return core.ErrorTensor(core.Errorf(core.IndexError, a.Op, "index %d is out of range for dimension %d of size %d", v, dim, s.shape[dim]))
		}
	}
	// The entries sorted along dim: those of each index lie together.
	sorted, order := Sort(s.index(dim), 0, SortOptions{Stable: true})
	starts := firstOf(sorted, s.shape[dim])
	wide := castTo(index, core.Int64)
	first := IndexSelect(starts, 0, wide)
	counts := Sub(IndexSelect(starts, 0, Add(wide, core.IntNum(1))), first)
	group, at := spans(first, counts)
	if at.Err() != nil {
		return at
	}
	from := IndexSelect(order, 0, at)
	rows := s.list()
	for d := range rows {
		if rows[d] = IndexSelect(rows[d], 0, from); d == dim {
			rows[d] = group
		}
	}
	return newPattern(Stack(rows, 0), shape, false).with(IndexSelect(s.values, 0, from))
}

// spans returns, for spans of numbers that begin at first and have the given counts, the number of each one's span, and the number.
func spans(first, counts *core.Tensor) (group, at *core.Tensor) {
	zero := 0
	group = RepeatInterleave(counted(first, first.Numel()), counts, &zero)
	if group.Err() != nil {
		return group, group
	}
	before := Sub(CumSum(counts, 0), counts)
	at = Add(counted(first, group.Numel()), IndexSelect(Sub(first, before), 0, group))
	return group, at
}

// sparseSelect takes a slice along a dimension.
func sparseSelect(a core.Application) *core.Tensor {
	s := sparseOf(a.Args[0])
	dim, err := core.WrapDim(a.Op, a.Args[1].(int), len(s.shape))
	if err != nil {
		return core.ErrorTensor(err)
	}
	i := a.Args[2].(int)
	if i < -s.shape[dim] || i >= s.shape[dim] {
		return core.ErrorTensor(core.Errorf(core.IndexError, a.Op, "index %d is out of range for dimension %d of size %d", i, dim, s.shape[dim]))
	}
	if i < 0 {
		i += s.shape[dim]
	}
	shape := slices.Delete(slices.Clone(s.shape), dim, dim+1)
	if dim >= s.sparse {
		q := &pattern{shape: shape, sparse: s.sparse, indices: s.coordinates().Alias(false), coalesced: s.coalesced}
		return q.with(Select(s.values, dim-s.sparse+1, i))
	}
	here := Ravel(NonZero(Eq(s.index(dim), core.IntNum(int64(i)))))
	if here.Err() != nil {
		return here
	}
	values := IndexSelect(s.values, 0, here)
	if s.sparse == 1 {
		return Sum(values, []int{0}, false)
	}
	rows := slices.Delete(s.list(), dim, dim+1)
	for d := range rows {
		rows[d] = IndexSelect(rows[d], 0, here)
	}
	return newPattern(Stack(rows, 0), shape, s.coalesced).with(values)
}
