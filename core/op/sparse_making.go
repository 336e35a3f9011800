package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// SparseCOO returns a sparse tensor of the given shape with values [entries, dense dimensions...] at the indices, int64
// [sparse dimensions, entries]. Entries with equal indices are summed. Without a shape (nil), it is as small as the indices allow. Gradients
// flow to the values. It waits for the indices, to check them.
func SparseCOO(indices, values *core.Tensor, shape []int) *core.Tensor {
	const name = "sparse_coo_tensor"
	op := begin(name, &indices, &values)
	if op.err == nil && (indices.Dim() != 2 || !indices.DType().IsInt()) {
		op.failf(core.ShapeError, "indices must be a matrix of integers [sparse dimensions, entries], got %v", indices)
	}
	if op.err == nil && (values.IsNumber() || values.Dim() == 0 || values.Size(0) != indices.Size(1)) {
		op.failf(core.ShapeError, "indices and values must have same nnz, but got nnz from indices: %d, from values of shape %v", indices.Size(1), values.Shape())
	}
	if op.err == nil && shape != nil && len(shape) != indices.Size(0)+values.Dim()-1 {
		op.failf(core.ShapeError, "'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = %d, sparse_dim = %d, dense_dim = %d", len(shape), indices.Size(0), values.Dim()-1)
	}
	if op.err == nil && shape != nil && !slices.Equal(shape[indices.Size(0):], values.Shape()[1:]) {
		op.failf(core.ShapeError, "values has incorrect size, expected %v behind the entries, got %v", shape[indices.Size(0):], values.Shape()[1:])
	}
	if op.err != nil {
		return op.fail()
	}
	return op.compose(func() *core.Tensor {
		indices := castTo(indices.Detach(), core.Int64)
		sizes, err := checkedIndices(name, indices, shape)
		if err != nil {
			return core.ErrorTensor(err)
		}
		if shape == nil {
			sizes = append(sizes, values.Shape()[1:]...)
		}
		return newPattern(Clone(indices), sizes, indices.Size(1) < 2 && indices.Size(0) > 0).with(ownValues(values))
	})
}

// ownValues returns values for a sparse tensor: the given ones, as the result of an op if they require a gradient or may have a tangent.
func ownValues(values *core.Tensor) *core.Tensor {
	if values.RequiresGrad() && core.CurrentMode().GradEnabled() || core.ForwardActive() {
		return View(values, values.Shape()...)
	}
	return values.Alias(false)
}

// checkedIndices returns the sizes of sparse dimensions: the given ones, if all indices are below them.
func checkedIndices(name string, indices *core.Tensor, shape []int) ([]int, error) {
	n := indices.Size(0)
	if indices.Size(1) == 0 || n == 0 {
		if shape == nil {
			return make([]int, n), nil
		}
		return shape, nil
	}
	low, err := core.Values[int](Amin(indices, []int{1}, false))
	if err != nil {
		return nil, err
	}
	high, err := core.Values[int](Amax(indices, []int{1}, false))
	if err != nil {
		return nil, err
	}
	sizes := make([]int, n)
	for d := range sizes {
		if low[d] < 0 {
			return nil, core.Errorf(core.StateError, name, "found negative index %d for dim %d", low[d], d)
		}
		if sizes[d] = high[d] + 1; shape != nil && high[d] >= shape[d] {
			return nil, core.Errorf(core.StateError, name, "size is inconsistent with indices: for dim %d, size is %d but found index %d", d, shape[d], high[d])
		}
	}
	if shape != nil {
		return shape, nil
	}
	return sizes, nil
}

// SparseCSR returns a sparse matrix in compressed rows: row i has the entries from crow[i] to crow[i+1], in the columns col, with values
// [entries]. Without a shape (nil) it has as many columns as col needs. Gradients flow to the values. It waits for the indices, to check
// them.
func SparseCSR(crow, col, values *core.Tensor, shape []int) *core.Tensor {
	const name = "sparse_csr_tensor"
	op := begin(name, &crow, &col, &values)
	for i, t := range []*core.Tensor{crow, col, values} {
		if what := [...]string{"crow_indices", "col_indices", "values"}[i]; op.err == nil && (t.IsNumber() || t.Dim() != 1 || i < 2 && !t.DType().IsInt()) {
			op.failf(core.ShapeError, "%s must be a vector%s, got %v", what, [...]string{" of integers", " of integers", ""}[i], t)
		}
	}
	switch {
	case op.err != nil:
	case shape != nil && len(shape) != 2:
		op.failf(core.ShapeError, "want the size of a matrix, got %v", shape)
	case crow.Numel() == 0 || shape != nil && crow.Numel() != shape[0]+1:
		op.failf(core.ShapeError, "`crow_indices.shape[-1]` must be the number of rows + 1, got %d for the size %v", crow.Numel(), shape)
	case col.Numel() != values.Numel():
		op.failf(core.ShapeError, "col_indices and values must have same nnz, got %d and %d", col.Numel(), values.Numel())
	}
	if op.err != nil {
		return op.fail()
	}
	return op.compose(func() *core.Tensor {
		crow, col := Clone(castTo(crow.Detach(), core.Int64)), Clone(castTo(col.Detach(), core.Int64))
		starts, err := core.Values[int](crow)
		if err != nil {
			return core.ErrorTensor(err)
		}
		rows, entries := len(starts)-1, col.Numel()
		sizes := shape
		if shape == nil {
			sizes = []int{rows, -1}
		}
		fault := func(format string, args ...any) *core.Tensor {
			return core.ErrorTensor(core.Errorf(core.StateError, name, format, args...))
		}
		if starts[0] != 0 {
			return fault("`crow_indices[..., 0] == 0` is not satisfied: got %d", starts[0])
		}
		if starts[rows] != entries {
			return fault("`crow_indices[..., -1] == nnz` is not satisfied: got %d and %d entries", starts[rows], entries)
		}
		for i := range rows {
			if starts[i+1] < starts[i] {
				return fault("`0 <= crow_indices[..., 1:] - crow_indices[..., :-1]` is not satisfied: row %d is from %d to %d", i, starts[i], starts[i+1])
			}
		}
		bounds, err := checkedIndices(name, Unsqueeze(col, 0), nil)
		if err != nil {
			return fault("`0 <= col_indices` is not satisfied: %w", err)
		}
		if shape == nil {
			sizes[1] = bounds[0]
		} else if bounds[0] > shape[1] {
			return fault("`col_indices < ncols` is not satisfied: got column %d of %d", bounds[0]-1, shape[1])
		}
		return newRows(crow, col, sizes).with(ownValues(values))
	})
}

// ToSparse returns the elements of x that are not zero as a COO tensor whose first dims dimensions are sparse: all of them where dims is
// negative. It waits for x. A sparse tensor becomes a COO one.
func ToSparse(x *core.Tensor, dims int) *core.Tensor {
	const name = "to_sparse"
	if s := sparseOf(x); s != nil {
		return compose(name, func() *core.Tensor {
			if dims >= 0 && dims != s.sparse {
				return core.ErrorTensor(core.Errorf(core.ValueError, name, "want the %d sparse dimensions that the tensor has, got %d", s.sparse, dims))
			}
			if s.layout == COO {
				return x.Alias(true)
			}
			return newPattern(s.coordinates(), s.shape, true).with(s.values.Alias(true))
		})
	}
	op := begin(name, &x)
	if op.err == nil {
		if dims < 0 {
			dims = x.Dim()
		}
		if dims == 0 || dims > x.Dim() {
			op.failf(core.ValueError, "want from 1 to %d sparse dimensions, got %d", x.Dim(), dims)
		}
	}
	if op.err != nil {
		return op.fail()
	}
	return op.compose(func() *core.Tensor {
		filled := Ne(x.Detach(), core.Num(0))
		if dims < x.Dim() {
			filled = Any(Flatten(filled, dims, x.Dim()-1), []int{dims}, false)
		}
		p := newPattern(TransposeMatrix(NonZero(filled)), x.Shape(), true)
		return p.with(IndexTensors(x, p.list()))
	})
}

// ToSparseCSR returns a matrix in compressed rows: the elements of an ordinary one that are not zero, or the entries of a sparse one. It
// waits for x.
func ToSparseCSR(x *core.Tensor) *core.Tensor {
	return compose("to_sparse_csr", func() *core.Tensor {
		if x.Err() != nil {
			return x
		}
		if x.Dim() != 2 {
			return core.ErrorTensor(core.Errorf(core.ShapeError, "to_sparse_csr", "want a matrix, got %v", x))
		}
		s := sparseOf(x)
		if s == nil {
			if x = ToSparse(x, -1); x.Err() != nil {
				return x
			}
			s = sparseOf(x)
		}
		if s.layout == CSR {
			return x.Alias(true)
		}
		if s.values.Dim() != 1 {
			return core.ErrorTensor(core.Errorf(core.ShapeError, "to_sparse_csr", "want values without dense dimensions, got %v", x))
		}
		if s = s.coalesce(); s.values.Err() != nil {
			return s.values
		}
		c := s.rows(false)
		return newRows(c.crow.Alias(false), c.col.Alias(false), s.shape).with(s.values.Alias(true))
	})
}

// SparseMask returns the elements of x at the entries of a sparse tensor of the same shape, as a tensor with these entries.
func SparseMask(x, mask *core.Tensor) *core.Tensor {
	return compose("sparse_mask", func() *core.Tensor {
		if x.Err() != nil {
			return x
		}
		s, err := wantSparse("sparse_mask", mask)
		if err != nil {
			return core.ErrorTensor(err)
		}
		values, err := s.Take("sparse_mask", x)
		if err != nil {
			return core.ErrorTensor(err)
		}
		if values.Err() == nil {
			values = values.Alias(true)
		}
		return s.with(values)
	})
}

// ToDense returns all elements of a sparse tensor as an ordinary one, and an ordinary one as it is. Its gradient reaches the entries alone.
func ToDense(x *core.Tensor) *core.Tensor {
	s := sparseOf(x)
	if s == nil {
		return x
	}
	return compose("to_dense", func() *core.Tensor { return s.dense() })
}

func (s *sparseParts) dense() *core.Tensor {
	if s.sparse == 0 {
		return Sum(s.values, []int{0}, false)
	}
	zeros := zerosFor(s.values, s.values.DType(), s.shape)
	return IndexPut(zeros, s.list(), s.values, true)
}

// Coalesce returns a COO tensor with its entries in order, and those with equal indices summed. It waits for the indices.
func Coalesce(x *core.Tensor) *core.Tensor {
	return compose("coalesce", func() *core.Tensor {
		s, err := wantSparse("coalesce", x)
		if err != nil {
			return core.ErrorTensor(err)
		}
		if s.layout == CSR {
			return core.ErrorTensor(core.Errorf(core.TypeError, "coalesce", "expected sparse coordinate tensor layout but got %v", x))
		}
		if s.coalesced {
			return x.Alias(true)
		}
		s = s.coalesce()
		return s.with(s.values)
	})
}

// coalesce returns the parts with their entries in order and different. Its pattern may be new.
func (s *sparseParts) coalesce() *sparseParts {
	if s.coalesced {
		return s
	}
	dims := make([]int, s.sparse)
	for d := range dims {
		dims[d] = d
	}
	if len(dims) == 0 {
		return &sparseParts{newPattern(Zeros(0, 1), s.shape, true), Sum(s.values, []int{0}, true)}
	}
	return s.merged(dims, s.shape)
}

// merged sums the entries that are equal in the given sparse dimensions, which the result has, with the dense ones.
func (s *sparseParts) merged(dims []int, shape []int) *sparseParts {
	used, place, _ := Unique(s.linear(dims), nil, UniqueOptions{Inverse: true})
	if used.Err() != nil {
		return &sparseParts{&pattern{indices: used}, used}
	}
	n := used.Numel()
	rest, indices := used, make([]*core.Tensor, len(dims))
	for i := len(dims) - 1; i >= 0; i-- {
		size := core.IntNum(int64(max(1, s.shape[dims[i]])))
		if i == 0 {
			indices[i] = rest
			break
		}
		indices[i] = Remainder(rest, size)
		rest = FloorDivide(rest, size)
	}
	zeros := zerosFor(s.values, s.values.DType(), append([]int{n}, s.values.Shape()[1:]...))
	return &sparseParts{newPattern(Stack(indices, 0), shape, true), IndexAdd(zeros, 0, place, s.values)}
}

// A SparseForm says how a sparse tensor is made.
type SparseForm struct {
	Layout           SparseLayout
	SparseDim, Dense int // how many dimensions the indices and the values have
	Entries          int
	Coalesced        bool // the entries are in order, and all different
}

// SparseFormOf returns how a sparse tensor is made, and false of any other tensor.
func SparseFormOf(x *core.Tensor) (SparseForm, bool) {
	s := sparseOf(x)
	if s == nil {
		return SparseForm{}, false
	}
	return SparseForm{s.layout, s.sparse, len(s.shape) - s.sparse, s.entries(), s.coalesced}, true
}

// SparseValues returns the values of a sparse tensor, [entries, dense dimensions...], differentiably. They share its memory.
func SparseValues(x *core.Tensor) *core.Tensor {
	s, err := wantSparse("values", x)
	if err != nil {
		return core.ErrorTensor(err)
	}
	return s.values.Alias(true)
}

// SparseIndices returns the indices of a sparse tensor, [sparse dimensions, entries]. They share its memory.
func SparseIndices(x *core.Tensor) *core.Tensor {
	return compose("indices", func() *core.Tensor {
		s, err := wantSparse("indices", x)
		if err != nil {
			return core.ErrorTensor(err)
		}
		at := s.coordinates()
		if at.Err() != nil {
			return at
		}
		return at.Alias(false)
	})
}

// SparseRows returns where the rows of a CSR matrix begin, and the columns of its entries. They share its memory.
func SparseRows(x *core.Tensor) (crow, col *core.Tensor) {
	s, err := wantSparse("crow_indices", x)
	if err == nil && s.layout != CSR {
		err = core.Errorf(core.TypeError, "crow_indices", "expected sparse row compressed tensor layout but got %v", s.layout)
	}
	if err != nil {
		return core.ErrorTensor(err), core.ErrorTensor(err)
	}
	return s.crow.Alias(false), s.col.Alias(false)
}
