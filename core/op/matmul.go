package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// MatMul returns the matrix product of x and y. Of two vectors it is their dot product; a vector on the left counts as a
// row and one on the right as a column, which the result does not have; of stacks of matrices, of shapes [*, m, k] and
// [*, k, n], it is the stack of products, and the leading dimensions broadcast.
func MatMul(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "matmul", x, y)
	}
	op := begin("matmul", &x, &y)
	op.multipliable(x, y)
	if op.err == nil && (x.Dim() == 0 || y.Dim() == 0) {
		op.failf(core.ShapeError, "want at least one dimension, got %s", shapes(x, y))
	}
	if op.err != nil {
		return op.fail()
	}
	if x.Dim() > 1 && y.Dim() > 1 {
		return op.product(x, y, plainForms[0])
	}
	if x.Dim() == 1 && y.Dim() == 1 && x.Size(0) == y.Size(0) && hasDot(x) {
		return op.dot(x, y, false)
	}
	if kx, ky := x.Size(-1), y.Size(max(y.Dim()-2, 0)); kx != ky {
		op.failf(core.ShapeError, "inner dimensions differ, got %s", shapes(x, y))
		return op.fail()
	}
	return op.vectorProduct(x, y)
}

// vectorProduct is MatMul if at least one of the factors is a vector.
func (op *opContext) vectorProduct(x, y *core.Tensor) *core.Tensor {
	if op.grad || x.DType().IsComplex() {
		return op.compose(func() *core.Tensor { return composedVectorProduct(x, y) })
	}
	row, column := x.Dim() == 1, y.Dim() == 1
	a, b := x, y
	if row {
		a = op.withUnit(x, 0)
		defer a.Release()
	}
	if column {
		b = op.withUnit(y, 1)
		defer b.Release()
	}
	shape := op.productShape(a, b, plainForms[0])
	if op.err != nil {
		return op.fail()
	}
	n := len(shape)
	if column {
		shape = slices.Delete(shape, n-1, n)
	}
	if row {
		shape = slices.Delete(shape, n-2, n-1)
	}
	out := op.outApart(x.DType(), shape, x, y)
	if op.err != nil {
		return op.fail()
	}
	matrix := out
	if row {
		matrix = op.withUnit(matrix, n-2)
		defer matrix.Release()
	}
	if column {
		matrix = op.withUnit(matrix, n-1)
		defer matrix.Release()
	}
	op.multiply(matrix, a, b, nil, plainForms[0], 0, false)
	return op.done(out)
}

// withUnit returns a tensor over t's memory with a dimension of size 1 more, for a kernel of the operation alone.
func (op *opContext) withUnit(t *core.Tensor, dim int) *core.Tensor {
	var room [2 * (core.MaxDims + 1)]int
	n := t.Dim() + 1
	shape, strides := room[:n], room[n:2*n]
	copy(shape, t.Shape()[:dim])
	copy(strides, t.Strides()[:dim])
	shape[dim], strides[dim] = 1, 1
	copy(shape[dim+1:], t.Shape()[dim:])
	copy(strides[dim+1:], t.Strides()[dim:])
	return core.WrapTensor(op.mode, t.Storage(), t.DType(), shape, strides, t.Offset())
}

// composedVectorProduct is vectorProduct by operations that have derivatives.
func composedVectorProduct(x, y *core.Tensor) *core.Tensor {
	row, column := x.Dim() == 1, y.Dim() == 1
	if row {
		x = Reshape(x, 1, x.Numel())
	}
	if column {
		y = Reshape(y, y.Numel(), 1)
	}
	p := product("matmul", x, y, plainForms[0])
	if p.Err() != nil {
		return p
	}
	shape := append([]int(nil), p.Shape()[:p.Dim()-2]...)
	if !row {
		shape = append(shape, p.Size(-2))
	}
	if !column {
		shape = append(shape, p.Size(-1))
	}
	return Reshape(p, shape...)
}

// ranked is MatMul for factors that must have the given numbers of dimensions.
func ranked(name string, x, y *core.Tensor, dx, dy int, want string) *core.Tensor {
	op := begin(name, &x, &y)
	op.multipliable(x, y)
	if op.err == nil && (x.Dim() != dx || y.Dim() != dy) {
		op.failf(core.ShapeError, "want %s, got %s", want, shapes(x, y))
	}
	if op.err == nil && dx == 3 && x.Size(0) != y.Size(0) {
		op.failf(core.ShapeError, "the stacks have different heights, got %s", shapes(x, y))
	}
	if op.err == nil && x.Size(-1) != y.Size(max(y.Dim()-2, 0)) {
		op.failf(core.ShapeError, "inner dimensions differ, got %s", shapes(x, y))
	}
	if op.err != nil {
		return op.fail()
	}
	if dx > 1 && dy > 1 {
		return op.product(x, y, plainForms[0])
	}
	if dx == 1 && dy == 1 && hasDot(x) {
		return op.dot(x, y, false)
	}
	if dx == 1 && dy == 1 && x.DType().IsComplex() {
		return op.compose(func() *core.Tensor { return Sum(Mul(x, y), nil, false) })
	}
	return op.vectorProduct(x, y)
}

// MM returns the product of a matrix [m, k] and a matrix [k, n].
func MM(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "mm", x, y)
	}
	return ranked("mm", x, y, 2, 2, "two matrices")
}

// BMM returns the products of the matrices of two stacks [b, m, k] and [b, k, n].
func BMM(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "bmm", x, y)
	}
	return ranked("bmm", x, y, 3, 3, "two stacks of matrices")
}

// MV returns the product of a matrix [m, k] and a vector [k].
func MV(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "mv", x, y)
	}
	return ranked("mv", x, y, 2, 1, "a matrix and a vector")
}
