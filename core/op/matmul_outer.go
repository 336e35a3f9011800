package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// Outer returns the products of every element of vector x [m] with every one of vector y [n], of shape [m, n].
func Outer(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "outer", x, y)
	}
	op := begin("outer", &x, &y)
	if op.err == nil && (x.Dim() != 1 || y.Dim() != 1 || y.IsNumber()) {
		op.failf(core.ShapeError, "want two vectors, got %s", shapes(x, y))
	}
	return op.compose(func() *core.Tensor { return Mul(y, Reshape(x, x.Numel(), 1)) }) // the second factor is a number for each row
}

// Inner returns the sum of the products of x's and y's elements over their last dimensions, which have one size. The
// result has the other dimensions of x, then those of y. With a 0-d tensor it is the product.
func Inner(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "inner", x, y)
	}
	op := begin("inner", &x, &y)
	op.multipliable(x, y)
	if op.err == nil && x.Dim() > 0 && y.Dim() > 0 && x.Size(-1) != y.Size(-1) {
		op.failf(core.ShapeError, "last dimensions differ, got %s", shapes(x, y))
	}
	return op.compose(func() *core.Tensor {
		if x.Dim() == 0 || y.Dim() == 0 {
			return Mul(x, y)
		}
		return TensorDot(x, y, []int{-1}, []int{-1})
	})
}

// Kron returns the Kronecker product of x and y: the products of every element of x with all of y, in blocks. The shorter
// shape gets leading dimensions of size 1.
func Kron(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "kron", x, y)
	}
	op := begin("kron", &x, &y)
	if op.err != nil {
		return op.fail()
	}
	rank := max(x.Dim(), y.Dim())
	pad := func(t *core.Tensor) []int { return append(slices.Repeat([]int{1}, rank-t.Dim()), t.Shape()...) }
	xs, ys := pad(x), pad(y)
	spreadX, spreadY, shape := make([]int, 2*rank), make([]int, 2*rank), make([]int, rank)
	for i := range rank {
		spreadX[2*i], spreadX[2*i+1] = xs[i], 1
		spreadY[2*i], spreadY[2*i+1] = 1, ys[i]
		shape[i] = xs[i] * ys[i]
	}
	return op.compose(func() *core.Tensor {
		return Reshape(Mul(Reshape(x, spreadX...), Reshape(y, spreadY...)), shape...)
	})
}
