package op

import "github.com/plait-ml/plait/core"

// MatrixPower returns x @ x @ ... with n factors, for a stack of square matrices [*, m, m] and n >= 0.
func MatrixPower(x *core.Tensor, n int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "matrix_power", x, n)
	}
	op := begin("matrix_power", &x)
	op.multipliable(x)
	switch {
	case op.err != nil:
	case x.Dim() < 2 || x.Size(-1) != x.Size(-2):
		op.failf(core.ShapeError, "want square matrices, got %v", x.Shape())
	case n < 0:
		op.failf(core.ValueError, "got power %d, want at least 0", n)
	}
	return op.compose(func() *core.Tensor {
		if n == 0 {
			one := Eye(x.Size(-1), x.Size(-1), TensorOptions{DType: new(x.DType()), Device: x.Device()})
			return Where(Eq(one, one), one, x) // a constant that follows from x, as the other powers do
		}
		var result *core.Tensor
		for square := x; ; square = product("matrix_power", square, square, plainForms[0]) {
			if n%2 == 1 {
				if result == nil {
					result = square
				} else {
					result = product("matrix_power", result, square, plainForms[0])
				}
			}
			if n /= 2; n == 0 {
				break
			}
		}
		if result == x {
			return Clone(x)
		}
		return result
	})
}

// MultiDot returns the product of two or more matrices, multiplied in the order that takes the least work. The first may
// be a vector, which counts as a row, and the last one, which counts as a column; the result does not have those
// dimensions.
func MultiDot(tensors []*core.Tensor) *core.Tensor {
	if parts := distributed(tensors...); parts != nil {
		return handOn(parts, "chain_matmul", tensors)
	}
	op := begin("multi_dot").list(&tensors)
	if op.err == nil && len(tensors) < 2 {
		op.failf(core.ValueError, "got %d matrices, want at least 2", len(tensors))
	}
	op.multipliable(tensors...)
	if op.err != nil {
		return op.fail()
	}
	first, last := tensors[0], tensors[len(tensors)-1]
	sizes := make([]int, 0, len(tensors)+1)
	for i, t := range tensors {
		rows, cols := t.Size(0), t.Size(-1)
		switch {
		case t.Dim() == 2:
		case t.Dim() == 1 && i == 0:
			rows = 1
		case t.Dim() == 1 && i == len(tensors)-1:
			cols = 1
		default:
			op.failf(core.ShapeError, "tensor %d has shape %v, want a matrix", i, t.Shape())
			return op.fail()
		}
		if i > 0 && sizes[i] != rows {
			op.failf(core.ShapeError, "inner dimensions differ, got %s", shapes(tensors...))
			return op.fail()
		}
		if i == 0 {
			sizes = append(sizes, rows)
		}
		sizes = append(sizes, cols)
	}
	var shape []int
	if first.Dim() == 2 {
		shape = append(shape, first.Size(0))
	}
	if last.Dim() == 2 {
		shape = append(shape, last.Size(1))
	}
	split := cheapestOrder(sizes)
	return op.compose(func() *core.Tensor {
		var multiply func(i, j int) *core.Tensor
		multiply = func(i, j int) *core.Tensor {
			if i == j {
				return Reshape(tensors[i], sizes[i], sizes[i+1])
			}
			k := split[i][j]
			return product("multi_dot", multiply(i, k), multiply(k+1, j), plainForms[0])
		}
		return Reshape(multiply(0, len(tensors)-1), shape...)
	})
}

// cheapestOrder returns for each run i..j of matrices, of which matrix i is sizes[i] x sizes[i+1], the last of those to
// multiply before the others.
func cheapestOrder(sizes []int) [][]int {
	n := len(sizes) - 1
	cost, split := make([][]float64, n), make([][]int, n)
	for i := range n {
		cost[i], split[i] = make([]float64, n), make([]int, n)
	}
	for length := 1; length < n; length++ {
		for i := 0; i+length < n; i++ {
			j := i + length
			for k := i; k < j; k++ {
				c := cost[i][k] + cost[k+1][j] + float64(sizes[i])*float64(sizes[k+1])*float64(sizes[j+1])
				if k == i || c < cost[i][j] {
					cost[i][j], split[i][j] = c, k
				}
			}
		}
	}
	return split
}
