package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

var (
	triangleKernel        = core.Kernel("triangle")         // Outs[0] = Ins[0] below (Ints[1]: above) the diagonal Ints[0], else 0
	triangleIndicesKernel = core.Kernel("triangle_indices") // Outs[0] = rows and columns of a triangle; Ints: rows, columns, diagonal, upper
)

// Tril returns the matrices in the last two dimensions of x with zeros above the given diagonal; 0 is the main diagonal,
// 1 the one above it.
func Tril(x *core.Tensor, diagonal int) *core.Tensor { return triangle("tril", x, diagonal, false) }

// TrilInPlace changes x as [Tril] does and returns it.
func TrilInPlace(x *core.Tensor, diagonal int) *core.Tensor {
	return triangleInPlace("tril_", x, diagonal, false)
}

// Triu returns the matrices in the last two dimensions of x with zeros below the given diagonal; 0 is the main diagonal,
// 1 the one above it.
func Triu(x *core.Tensor, diagonal int) *core.Tensor { return triangle("triu", x, diagonal, true) }

// TriuInPlace changes x as [Triu] does and returns it.
func TriuInPlace(x *core.Tensor, diagonal int) *core.Tensor {
	return triangleInPlace("triu_", x, diagonal, true)
}

// lastTwo fails unless x has the two dimensions of a matrix.
func (a *application) lastTwo(x *core.Tensor) {
	if a.err == nil && x.Dim() < 2 {
		a.failf(core.ShapeError, "got shape %v, want at least 2 dimensions", x.Shape())
	}
}

func triangle(name string, x *core.Tensor, diagonal int, upper bool) *core.Tensor {
	a := beginView(name, x)
	a.lastTwo(x)
	out := a.out(dtypeOf(x), shapeOf(x))
	if a.err != nil {
		return a.fail()
	}
	a.launch(a.call(triangleKernel).Out(out).In(x).Int(corner(x, diagonal)).Bool(upper))
	if a.grad {
		a.attach(a.triangleNode(x, diagonal, upper), out)
	}
	return a.done(out)
}

func triangleInPlace(name string, x *core.Tensor, diagonal int, upper bool) *core.Tensor {
	a := beginView(name, x)
	a.lastTwo(x)
	a.inPlace(x)
	if a.err != nil {
		return a.fail()
	}
	c := a.call(triangleKernel).Out(x).In(x).Int(corner(x, diagonal)).Bool(upper)
	c.InPlace = true
	a.launch(c)
	a.changed(x)
	if a.grad {
		a.rebase(a.triangleNode(x, diagonal, upper), x)
	}
	return a.changedTo(x)
}

// corner returns the diagonal, or the corner of x's matrices it lies beyond.
func corner(x *core.Tensor, diagonal int) int64 {
	return int64(min(max(diagonal, -x.Size(-2)), x.Size(-1)))
}

func (a *application) triangleNode(x *core.Tensor, diagonal int, upper bool) *core.Node {
	n := a.node(triangleDeriv, x)
	n.Ints = []int{diagonal, 0}
	if upper {
		n.Ints[1] = 1
	}
	return n
}

func triangleDeriv(d *core.Derivation) {
	d.Set(0, triangle("triangle_backward", d.Grad(), d.Node.Ints[0], d.Node.Ints[1] != 0))
}

// TrilIndices returns the rows and the columns, in an int64 tensor of shape [2, n], of the elements on and below a
// diagonal of a matrix, row by row.
func TrilIndices(rows, columns, offset int, o TensorOptions) *core.Tensor {
	return triangleIndices("tril_indices", rows, columns, offset, false, o)
}

// TriuIndices returns the rows and the columns, in an int64 tensor of shape [2, n], of the elements on and above a
// diagonal of a matrix, row by row.
func TriuIndices(rows, columns, offset int, o TensorOptions) *core.Tensor {
	return triangleIndices("triu_indices", rows, columns, offset, true, o)
}

func triangleIndices(name string, rows, columns, offset int, upper bool, o TensorOptions) *core.Tensor {
	a := beginNew(name, nil, o)
	if rows < 0 || columns < 0 {
		a.failf(core.ValueError, "got a matrix of %d rows and %d columns, want none negative", rows, columns)
	}
	if d := o.dtype(core.Int64); d != core.Int64 {
		a.failf(core.DTypeError, "got dtype %v, want int64", d)
	}
	if a.err == nil {
		_, err := core.CheckShape(name, []int{rows, columns}, core.Int64)
		a.check(err)
	}
	if a.err != nil {
		return a.fail()
	}
	offset = min(max(offset, -rows), columns) // past the corners nothing changes
	n := belowDiagonal(rows, columns, offset)
	if upper {
		n = rows*columns - belowDiagonal(rows, columns, offset-1)
	}
	out := a.out(core.Int64, []int{2, n})
	if a.err == nil {
		a.launch(a.call(triangleIndicesKernel).Out(out).Int(int64(rows), int64(columns), int64(offset)).Bool(upper))
	}
	return a.finish(out, o)
}

// belowDiagonal returns the number of elements on and below a diagonal, which lies from -rows-1 to columns.
func belowDiagonal(rows, columns, diagonal int) int {
	first := max(0, -diagonal)                           // the first row with an element
	full := min(max(columns-diagonal-1, first), rows)    // the first row with all of them
	shortest, longest := first+diagonal+1, full+diagonal // in the rows between
	n := 0
	if full > first {
		n = (shortest + longest) * (full - first) / 2
	}
	return n + max(rows-max(full, first), 0)*columns
}

// Diag returns the matrix with the vector x on the given diagonal and zeros elsewhere; or, if x is a matrix, a copy of
// its diagonal.
func Diag(x *core.Tensor, diagonal int) *core.Tensor {
	if x.Err() == nil && x.Dim() == 1 {
		return DiagEmbed(x, diagonal, 0, 1)
	}
	if x.Err() == nil && x.Dim() != 2 {
		return core.ErrorTensor(core.Errorf(core.ShapeError, "diag", "got shape %v, want a vector or a matrix", x.Shape()))
	}
	return compose("diag", func() *core.Tensor { return Clone(Diagonal(x, diagonal, 0, 1)) })
}

// DiagEmbed returns matrices, in the dimensions dim1 and dim2 of the result, with the last dimension of x on the given
// diagonal and zeros elsewhere.
func DiagEmbed(x *core.Tensor, offset, dim1, dim2 int) *core.Tensor {
	a := beginView("diag_embed", x)
	if a.err == nil && x.Dim() == 0 {
		a.failf(core.ShapeError, "cannot embed a 0-d tensor")
	}
	if a.err != nil {
		return a.fail()
	}
	dims := x.Dim() + 1
	first, err := core.WrapDim("diag_embed", dim1, dims)
	a.check(err)
	second, err := core.WrapDim("diag_embed", dim2, dims)
	a.check(err)
	if a.err == nil && first == second {
		a.failf(core.ValueError, "got dimension %d twice", first)
	}
	if a.err != nil {
		return a.fail()
	}
	n := x.Shape()[x.Dim()-1]
	side := n + max(offset, -offset)
	if side < n {
		a.failf(core.MemoryError, "offset %d is larger than the address space", offset)
		return a.fail()
	}
	shape := slices.Clone(x.Shape()[:x.Dim()-1])
	shape = slices.Insert(shape, min(first, second), side)
	shape = slices.Insert(shape, max(first, second), side)
	if _, err := core.CheckShape("diag_embed", shape, x.DType()); err != nil {
		return core.ErrorTensor(err)
	}
	w := windowOf(shape, x.Shape(), func(s []int) ([]int, int) {
		out := make([]int, 0, len(s))
		for i := range s {
			if i != first && i != second {
				out = append(out, s[i])
			}
		}
		start := 0
		if n > 0 {
			start = max(offset, 0)*s[second] - min(offset, 0)*s[first]
		}
		return append(out, s[first]+s[second]), start
	})
	return embed(x, w)
}

// OneHot returns, for each index, a vector with a one at the index and zeros elsewhere, along a new last dimension.
// Without a number of classes (-1), it is one more than the largest index, for which the function waits.
func OneHot(index *core.Tensor, classes int) *core.Tensor {
	a := beginView("one_hot", index)
	a.indexDType(index)
	if a.err == nil && (classes == 0 || classes < -1) {
		a.failf(core.ValueError, "the number of classes must be positive, or -1, got %d", classes)
	}
	if a.err == nil && classes < 0 {
		values, err := core.Values[int](index)
		a.check(err)
		if err == nil && len(values) == 0 {
			a.failf(core.ValueError, "got no indices to find the number of classes from")
		} else if err == nil {
			classes = slices.Max(values) + 1
			if low := slices.Min(values); low < 0 {
				a.failf(core.IndexError, "index %d is negative", low)
			}
		}
	}
	if a.err != nil {
		return a.fail()
	}
	out := a.out(core.Int64, append(slices.Clone(index.Shape()), classes))
	if a.err != nil {
		return a.fail()
	}
	a.launch(a.call(fillKernel).Out(out).In(core.IntNum(0)))
	dims := index.Dim()
	column := core.WrapTensor(a.mode, index.Storage(), index.DType(), append(slices.Clone(index.Shape()), 1),
		append(slices.Clone(index.Strides()), 1), index.Offset())
	a.launch(a.call(scatterKernel).Out(out).In(column).In(core.IntNum(1)).Int(int64(dims), assignMode))
	column.Release()
	return a.done(out)
}

// Meshgrid returns, for vectors x, y, ..., tensors of shape [len(x), len(y), ...] that hold the coordinates of a grid:
// views in which vector i runs along dimension i. With indexing "xy" instead of "ij" the first two dimensions are
// swapped.
func Meshgrid(tensors []*core.Tensor, indexing string) []*core.Tensor {
	a := beginAll("meshgrid", tensors)
	if a.err == nil && len(tensors) == 0 {
		a.failf(core.ValueError, "got no tensors")
	}
	if indexing != "ij" && indexing != "xy" {
		a.failf(core.ValueError, "unknown indexing %q, want \"ij\" or \"xy\"", indexing)
	}
	shape := make([]int, len(tensors))
	for i, t := range tensors {
		if a.err == nil && (t.IsNumber() || t.Dim() > 1) {
			a.failf(core.ShapeError, "tensor %d has shape %v, want a vector", i, t.Shape())
		}
		if a.err == nil {
			shape[i] = t.Numel()
		}
	}
	if a.err != nil {
		return []*core.Tensor{a.fail()}
	}
	out := make([]*core.Tensor, len(tensors))
	for i, t := range tensors {
		out[i] = compose("meshgrid", func() *core.Tensor {
			line := make([]int, len(tensors))
			for j := range line {
				line[j] = 1
			}
			line[i] = shape[i]
			grid := Expand(Reshape(t, line...), shape...)
			if indexing == "xy" && len(tensors) > 1 {
				grid = Transpose(grid, 0, 1)
			}
			return grid
		})
	}
	return out
}

// CartesianProd returns the combinations of elements of the vectors, one in each row, the last vector's fastest; for one
// vector, that vector.
func CartesianProd(tensors ...*core.Tensor) *core.Tensor {
	if len(tensors) == 1 {
		return Reshape(tensors[0], -1)
	}
	return compose("cartesian_prod", func() *core.Tensor {
		grids := Meshgrid(tensors, "ij")
		for i, g := range grids {
			grids[i] = Ravel(g)
		}
		return Stack(grids, 1)
	})
}
