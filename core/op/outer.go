package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// Outer returns the products of every element of vector x [m] with every one of vector y [n], of shape [m, n].
func Outer(x, y *core.Tensor) *core.Tensor {
	a := beginGiven("outer", x, y)
	if a.err == nil && (x.Dim() != 1 || y.Dim() != 1 || x.IsNumber() || y.IsNumber()) {
		a.failf(core.ShapeError, "want two vectors, got %s", shapes(x, y))
	}
	if a.err != nil {
		return a.fail()
	}
	return compose("outer", func() *core.Tensor { return Mul(Reshape(x, x.Numel(), 1), y) })
}

// Inner returns the sum of the products of x's and y's elements over their last dimensions, which have one size. The
// result has the other dimensions of x, then those of y. With a 0-d tensor it is the product.
func Inner(x, y *core.Tensor) *core.Tensor {
	defer autocast("inner", &x, &y).end()
	a := beginGiven("inner", x, y)
	a.multipliable(x, y)
	if a.err == nil && x.Dim() > 0 && y.Dim() > 0 && x.Size(-1) != y.Size(-1) {
		a.failf(core.ShapeError, "last dimensions differ, got %s", shapes(x, y))
	}
	switch {
	case a.err != nil:
		return a.fail()
	case x.Dim() == 0 || y.Dim() == 0:
		return Mul(x, y)
	}
	return TensorDot(x, y, []int{-1}, []int{-1})
}

// Kron returns the Kronecker product of x and y: the products of every element of x with all of y, in blocks. The shorter
// shape gets leading dimensions of size 1.
func Kron(x, y *core.Tensor) *core.Tensor {
	a := beginGiven("kron", x, y)
	if a.err != nil {
		return a.fail()
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
	return compose("kron", func() *core.Tensor {
		return Reshape(Mul(Reshape(x, spreadX...), Reshape(y, spreadY...)), shape...)
	})
}

// Trace returns the sum of the diagonal of a matrix.
func Trace(x *core.Tensor) *core.Tensor {
	defer autocast("trace", &x).end()
	a := beginGiven("trace", x)
	if a.err == nil && x.Dim() != 2 {
		a.failf(core.ShapeError, "want a matrix, got %v", x.Shape())
	}
	if a.err != nil {
		return a.fail()
	}
	return compose("trace", func() *core.Tensor { return Sum(Diagonal(x, 0, 0, 1), nil, false) })
}

// Bilinear returns x1 W_o x2 + bias_o for each output o: x1 is [*, in1], x2 [*, in2], weight [out, in1, in2] and bias
// [out], which may be nil; the result is [*, out].
func Bilinear(x1, x2, weight, bias *core.Tensor) *core.Tensor {
	defer autocast("bilinear", &x1, &x2, &weight, &bias).end()
	a := begin("bilinear", x1, x2, weight, bias)
	a.given(x1, x2, weight)
	a.multipliable(x1, x2, weight, bias)
	switch {
	case a.err != nil:
	case weight.Dim() != 3:
		a.failf(core.ShapeError, "got weight %v, want [out, in1, in2]", weight.Shape())
	case x1.Dim() == 0 || x2.Dim() == 0 || !slices.Equal(x1.Shape()[:x1.Dim()-1], x2.Shape()[:x2.Dim()-1]):
		a.failf(core.ShapeError, "want inputs that agree but for the last dimension, got %s", shapes(x1, x2))
	case x1.Size(-1) != weight.Size(1) || x2.Size(-1) != weight.Size(2):
		a.failf(core.ShapeError, "got inputs %s, want [*, %d] x [*, %d] for weight %v", shapes(x1, x2), weight.Size(1), weight.Size(2), weight.Shape())
	case bias != nil && (bias.Dim() != 1 || bias.Size(0) != weight.Size(0)):
		a.failf(core.ShapeError, "got bias %v, want [%d] for weight %v", bias.Shape(), weight.Size(0), weight.Shape())
	}
	if a.err != nil {
		return a.fail()
	}
	lead := x1.Shape()[:x1.Dim()-1]
	rows, outs, in1, in2 := core.Numel(lead), weight.Size(0), weight.Size(1), weight.Size(2)
	shape := append(slices.Clone(lead), outs)
	return compose("bilinear", func() *core.Tensor {
		w := Reshape(Permute(weight, 1, 0, 2), in1, outs*in2)
		left := Reshape(product("bilinear", Reshape(x1, rows, in1), w, plainForms[0]), rows, outs, in2)
		y := Reshape(product("bilinear", left, Reshape(x2, rows, in2, 1), plainForms[0]), shape...)
		if bias != nil {
			y = Add(y, bias)
		}
		return y
	})
}

// MatrixPower returns x @ x @ ... with n factors, for a stack of square matrices [*, m, m] and n >= 0.
func MatrixPower(x *core.Tensor, n int) *core.Tensor {
	defer autocast("matrix_power", &x).end()
	a := beginGiven("matrix_power", x)
	a.multipliable(x)
	switch {
	case a.err != nil:
	case x.Dim() < 2 || x.Size(-1) != x.Size(-2):
		a.failf(core.ShapeError, "want square matrices, got %v", x.Shape())
	case n < 0:
		a.failf(core.ValueError, "got power %d, want at least 0", n)
	}
	if a.err != nil {
		return a.fail()
	}
	return compose("matrix_power", func() *core.Tensor {
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
	defer autocastAll("multi_dot", &tensors).end()
	a := beginAll("multi_dot", tensors)
	if a.err == nil && len(tensors) < 2 {
		a.failf(core.ValueError, "got %d matrices, want at least 2", len(tensors))
	}
	a.multipliable(tensors...)
	if a.err != nil {
		return a.fail()
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
			a.failf(core.ShapeError, "tensor %d has shape %v, want a matrix", i, t.Shape())
			return a.fail()
		}
		if i > 0 && sizes[i] != rows {
			a.failf(core.ShapeError, "inner dimensions differ, got %s", shapes(tensors...))
			return a.fail()
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
	return compose("multi_dot", func() *core.Tensor {
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
