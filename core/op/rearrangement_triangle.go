package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// Tril returns the matrices in the last two dimensions of x with zeros above the given diagonal; 0 is the main diagonal,
// 1 the one above it.
func Tril(x *core.Tensor, diagonal int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "tril", x, diagonal)
	}
	return triangle("tril", x, diagonal, false)
}

// TrilInPlace changes x as [Tril] does and returns it.
func TrilInPlace(x *core.Tensor, diagonal int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "tril_", x, diagonal)
	}
	return triangleInPlace("tril_", x, diagonal, false)
}

// Triu returns the matrices in the last two dimensions of x with zeros below the given diagonal; 0 is the main diagonal,
// 1 the one above it.
func Triu(x *core.Tensor, diagonal int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "triu", x, diagonal)
	}
	return triangle("triu", x, diagonal, true)
}

// TriuInPlace changes x as [Triu] does and returns it.
func TriuInPlace(x *core.Tensor, diagonal int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "triu_", x, diagonal)
	}
	return triangleInPlace("triu_", x, diagonal, true)
}

// lastTwo fails unless x has the two dimensions of a matrix.
func (op *opContext) lastTwo(x *core.Tensor) {
	if op.err == nil && x.Dim() < 2 {
		op.failf(core.ShapeError, "got shape %v, want at least 2 dimensions", x.Shape())
	}
}

func triangle(name string, x *core.Tensor, diagonal int, upper bool) *core.Tensor {
	op := begin(name, &x)
	op.lastTwo(x)
	if op.err == nil && x.DType().IsComplex() {
		return op.compose(func() *core.Tensor {
			return Complex(triangle(name, Real(x), diagonal, upper), triangle(name, Imag(x), diagonal, upper))
		})
	}
	out := op.out(dtypeOf(x), shapeOf(x))
	if op.err != nil {
		return op.fail()
	}
	op.launch(contract.TriangleAttrs{Diagonal: corner(x, diagonal), Upper: upper}.AddTo(op.call(contract.Triangle).Out(out).In(x)))
	if op.grad {
		op.attach(op.triangleNode(x, diagonal, upper), out)
	}
	return op.done(out)
}

func triangleInPlace(name string, x *core.Tensor, diagonal int, upper bool) *core.Tensor {
	op := begin(name, &x)
	op.lastTwo(x)
	op.inPlace(x)
	if op.err == nil && x.DType().IsComplex() {
		return op.compose(func() *core.Tensor { return CopyInPlace(x, triangle(name, x, diagonal, upper)) })
	}
	if op.err != nil {
		return op.fail()
	}
	c := contract.TriangleAttrs{Diagonal: corner(x, diagonal), Upper: upper}.AddTo(op.call(contract.Triangle).Out(x).In(x))
	c.InPlace = true
	op.launch(c)
	op.changed(x)
	if op.grad {
		op.rebase(op.triangleNode(x, diagonal, upper), x)
	}
	return op.changedTo(x)
}

// corner returns the diagonal, or the corner of x's matrices it lies beyond.
func corner(x *core.Tensor, diagonal int) int64 {
	return int64(min(max(diagonal, -x.Size(-2)), x.Size(-1)))
}

func (op *opContext) triangleNode(x *core.Tensor, diagonal int, upper bool) *core.Node {
	n := op.node(triangleDeriv, x)
	n.Ints = []int{diagonal, 0}
	if upper {
		n.Ints[1] = 1
	}
	return n
}

func triangleDeriv(ctx *core.BackwardContext) {
	ctx.Set(0, triangle("triangle_backward", ctx.Grad(), ctx.Node.Ints[0], ctx.Node.Ints[1] != 0))
}

// Diag returns the matrix with the vector x on the given diagonal and zeros elsewhere; or, if x is a matrix, a copy of
// its diagonal.
func Diag(x *core.Tensor, diagonal int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "diag", x, diagonal)
	}
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
	if parts := distributed(x); parts != nil {
		return handOn(parts, "diag_embed", x, offset, dim1, dim2)
	}
	op := begin("diag_embed", &x)
	if op.err == nil && x.Dim() == 0 {
		op.failf(core.ShapeError, "cannot embed a 0-d tensor")
	}
	if op.err != nil {
		return op.fail()
	}
	dims := x.Dim() + 1
	first, err := core.WrapDim("diag_embed", dim1, dims)
	op.check(err)
	second, err := core.WrapDim("diag_embed", dim2, dims)
	op.check(err)
	if op.err == nil && first == second {
		op.failf(core.ValueError, "got dimension %d twice", first)
	}
	if op.err != nil {
		return op.fail()
	}
	n := x.Shape()[x.Dim()-1]
	side := n + max(offset, -offset)
	if side < n {
		op.failf(core.MemoryError, "offset %d is larger than the address space", offset)
		return op.fail()
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

// DiagFlat returns the matrix with the elements of x on the given diagonal and zeros elsewhere.
func DiagFlat(x *core.Tensor, offset int) *core.Tensor {
	return compose("diagflat", func() *core.Tensor { return Diag(Ravel(x), offset) })
}
