package op

import (
	"math"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
)

// A sparseRule applies an op some of whose arguments are sparse tensors.
type sparseRule func(a core.Application) *core.Tensor

// sparseRules holds what ops do to sparse tensors, by the names of their rows. Ops that are not here are not defined for them.
var sparseRules map[string]sparseRule

func init() {
	sparseRules = map[string]sparseRule{
		"mul": sparseMul, "div": sparseDiv, "add": sparseAdd, "sub": sparseAdd, "add_scaled": sparseAdd, "add_": sparseAddInPlace, "sub_": sparseAddInPlace, "add_scaled_": sparseAddInPlace, "pow": sparsePow,
		"matmul": sparseMatMul, "mm": sparseMatMul, "mv": sparseMatMul, "addmm": sparseAddMM,
		"sum": sparseSum, "softmax": sparseSoftmax, "log_softmax": sparseSoftmax, "norm": sparseNorm, "vector_norm": sparseNorm,
		"transpose": sparseTranspose, "t": sparseTranspose, "mT": sparseTranspose, "permute": sparsePermute,
		"index_select": sparseIndexSelect, "select": sparseSelect, "cat": sparseCat, "stack": sparseStack,
		"unsqueeze": sparseUnsqueeze, "bmm": sparseBMM, "zeros_like": sparseZerosLike, "copy_": sparseCopy,
	}
	// Where the function of a sum is the sum of the functions, entries need not be merged.
	for _, name := range strings.Fields("neg deg2rad rad2deg to clone contiguous real imag neg_ zero_ mul_ div_ deg2rad_ rad2deg_") {
		sparseRules[name] = onValues
	}
	for _, name := range strings.Fields(`abs sqrt square sin tan asin atan sinh tanh asinh atanh expm1 log1p erf erfinv ceil floor round trunc
		frac sign sgn relu isnan isinf signbit angle`) {
		sparseRules[name] = onMergedValues
	}
	for _, name := range strings.Fields("abs_ sqrt_ square_ sin_ tan_ asin_ atan_ sinh_ tanh_ asinh_ atanh_ expm1_ log1p_ erf_ ceil_ floor_ round_ trunc_ sign_ relu_") {
		sparseRules[name] = onMergedValues
	}
}

// refuseSparse returns the error of an op that has a rule, but not for such arguments.
func refuseSparse(a core.Application, format string, args ...any) *core.Tensor {
	return core.ErrorTensor(core.Errorf(core.NotImplemented, a.Op, format+"; to_dense() makes an ordinary tensor", args...))
}

// onValues applies an op to the values of its first tensor.
func onValues(a core.Application) *core.Tensor {
	s := sparseOf(a.Args[0])
	if s == nil {
		return refuseSparse(a, "the first tensor must be the sparse one")
	}
	for _, x := range a.Args[1:] {
		if t, ok := x.(*core.Tensor); ok && !t.IsNumber() && (t.Dim() > 0 || sparseOf(t) != nil) {
			return refuseSparse(a, "a sparse tensor is changed by a number or a 0-d tensor only, got %v", t)
		}
	}
	args := slices.Clone(a.Args)
	args[0] = s.values
	out := a.Call(args)[0]
	switch {
	case out.Err() != nil:
		return out
	case strings.HasSuffix(a.Op, "_"):
		return a.Args[0].(*core.Tensor)
	case out == s.values:
		out = out.Alias(true)
	}
	return s.with(out)
}

// onMergedValues is onValues for a function that is not linear, and is zero at zero.
func onMergedValues(a core.Application) *core.Tensor {
	s := sparseOf(a.Args[0])
	if s != nil && !s.coalesced {
		if strings.HasSuffix(a.Op, "_") {
			return core.ErrorTensor(core.Errorf(core.StateError, a.Op, "entries with equal indices must be summed first: call coalesce()"))
		}
		a.Args = slices.Clone(a.Args)
		if a.Args[0] = Coalesce(a.Args[0].(*core.Tensor)); a.Args[0].(*core.Tensor).Err() != nil {
			return a.Args[0].(*core.Tensor)
		}
	}
	return onValues(a)
}

func sparsePow(a core.Application) *core.Tensor {
	e, _ := a.Args[1].(*core.Tensor)
	if sparseOf(a.Args[0]) == nil || e == nil || !e.IsNumber() || e.Number().Float <= 0 {
		return refuseSparse(a, "defined for a sparse tensor and a positive number, which keep zeros, got %v and %v", a.Args[0], e)
	}
	return onMergedValues(a)
}

// scalarTensor reports whether t is a number, or an ordinary tensor of no dimensions.
func scalarTensor(t *core.Tensor) bool { return t.IsNumber() || t.Dim() == 0 && t.Parts() == nil }

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

func firstBroken(list ...*core.Tensor) *core.Tensor {
	for _, t := range list {
		if t.Err() != nil {
			return t
		}
	}
	return nil
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

// callOn calls the op with other first tensors.
func callOn(a core.Application, first ...*core.Tensor) *core.Tensor {
	if err := firstBroken(first...); err != nil {
		return err
	}
	args := slices.Clone(a.Args)
	for i, t := range first {
		args[i] = t
	}
	return a.Call(args)[0]
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
		} else if used, group, _ = Unique(s.linear(others), nil); used.Err() == nil {
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
