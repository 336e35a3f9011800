package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// sparseMatMul is matmul, mm and mv: of a sparse matrix and a dense matrix or vector, of a dense and a sparse one, or of two sparse ones,
// whose product is sparse.
func sparseMatMul(a core.Application) *core.Tensor {
	x, y := a.Args[0].(*core.Tensor), a.Args[1].(*core.Tensor)
	s, q := sparseOf(x), sparseOf(y)
	for _, t := range []*core.Tensor{x, y} {
		if t.IsNumber() || t.Dim() != 2 && (t.Dim() != 1 || t.Parts() != nil || a.Op == "mm") {
			return refuseSparse(a, "want matrices, one of them sparse, got %v and %v", x, y)
		}
		if p := sparseOf(t); p != nil && (p.sparse != 2 || p.values.Dim() != 1) {
			return refuseSparse(a, "want a sparse matrix without dense dimensions, got %v", t)
		}
	}
	inner := y.Size(0)
	if x.Size(-1) != inner {
		return core.ErrorTensor(core.Errorf(core.ShapeError, a.Op, "inner dimensions differ, got %v x %v", x.Shape(), y.Shape()))
	}
	if x.DType() != y.DType() {
		return core.ErrorTensor(core.Errorf(core.DTypeError, a.Op, "dtypes differ, got %v and %v", x.DType(), y.DType()))
	}
	switch {
	case s != nil && q != nil:
		return sparseProduct(s, q)
	case s != nil:
		return s.times(y)
	case x.Dim() == 1:
		return q.flipped().times(x)
	}
	return TransposeMatrix(q.flipped().times(TransposeMatrix(x)))
}

// A flippedMatrix is the transpose of a sparse one.
type flippedMatrix struct{ *sparseParts }

func (s *sparseParts) flipped() flippedMatrix { return flippedMatrix{s} }

// times returns the product with an ordinary matrix or vector.
func (s *sparseParts) times(x *core.Tensor) *core.Tensor {
	return s.product(s.rows(core.CurrentMode().GradEnabled() && x.RequiresGrad()), x)
}

func (f flippedMatrix) times(x *core.Tensor) *core.Tensor {
	c := f.rows(true)
	if c.crow.Err() != nil {
		return c.crow
	}
	return f.product(c.transposed(f.shape[1]), x)
}

func (s *sparseParts) product(c csr, x *core.Tensor) *core.Tensor {
	if c.crow.Err() != nil {
		return c.crow
	}
	if x.Dim() == 1 {
		return Select(CSRMatmul(c.crow, c.col, s.values, Unsqueeze(x, 1), c.options()), 1, 0)
	}
	return CSRMatmul(c.crow, c.col, s.values, x, c.options())
}

// sparseProduct returns the sparse product of two sparse matrices: each entry of the first meets a row of the second.
func sparseProduct(s, q *sparseParts) *core.Tensor {
	c, d := s.rows(false), q.rows(false)
	if err := firstBroken(c.crow, d.crow); err != nil {
		return err
	}
	first := IndexSelect(d.crow, 0, c.col)
	counts := Sub(IndexSelect(d.crow, 0, Add(c.col, core.IntNum(1))), first)
	left, right := spans(first, counts)
	if right.Err() != nil {
		return right
	}
	valueOf := func(values *core.Tensor, c csr, at *core.Tensor) *core.Tensor {
		if c.order != nil {
			at = IndexSelect(c.order, 0, at)
		}
		return IndexSelect(values, 0, at)
	}
	rows := IndexSelect(rowOfEach(c.crow, c.col), 0, left)
	indices := Stack([]*core.Tensor{rows, IndexSelect(d.col, 0, right)}, 0)
	values := Mul(valueOf(s.values, c, left), valueOf(q.values, d, right))
	if err := firstBroken(indices, values); err != nil {
		return err
	}
	terms := &sparseParts{newPattern(indices, []int{s.shape[0], q.shape[1]}, false), values}
	terms = terms.coalesce()
	out := terms.with(terms.values)
	if s.layout == CSR && q.layout == CSR && out.Err() == nil {
		return ToSparseCSR(out)
	}
	return out
}

// sparseAddMM adds a product to a matrix.
func sparseAddMM(a core.Application) *core.Tensor {
	product := sparseMatMul(core.Application{Op: "mm", Args: slices.Clone(a.Args[1:3])})
	if product.Err() != nil {
		return product
	}
	input, beta, alpha := a.Args[0].(*core.Tensor), a.Args[3].(float64), a.Args[4].(float64)
	if alpha != 1 {
		product = Mul(product, core.Num(alpha))
	}
	if beta == 0 && product.Parts() == nil {
		return Add(product, ZerosLike(input, TensorOptions{}))
	}
	if beta != 1 {
		input = Mul(input, core.Num(beta))
	}
	return Add(input, product)
}

// sparseBMM multiplies each of a batch of sparse matrices by a dense one: the product of one matrix with blocks along its diagonal and all
// of the dense ones below each other.
func sparseBMM(a core.Application) *core.Tensor {
	s, y := sparseOf(a.Args[0]), a.Args[1].(*core.Tensor)
	if s == nil || sparseOf(y) != nil || s.sparse != 3 || s.values.Dim() != 1 || y.Dim() != 3 {
		return refuseSparse(a, "want a sparse batch of matrices and a dense one, got %v and %v", a.Args[0], y)
	}
	if y.Size(0) != s.shape[0] || y.Size(1) != s.shape[2] {
		return core.ErrorTensor(core.Errorf(core.ShapeError, a.Op, "batches or inner dimensions differ, got %v x %v", s.shape, y.Shape()))
	}
	column := Add(Mul(s.index(0), core.IntNum(int64(s.shape[2]))), s.index(2))
	blocks := newPattern(Stack([]*core.Tensor{s.linear([]int{0, 1}), column}, 0), []int{s.shape[0] * s.shape[1], s.shape[0] * s.shape[2]}, s.coalesced)
	out := (&sparseParts{blocks, s.values}).times(Reshape(y, s.shape[0]*s.shape[2], y.Size(2)))
	if out.Err() != nil {
		return out
	}
	return Reshape(out, s.shape[0], s.shape[1], y.Size(2))
}
