package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// A window is where a part of a tensor lies in a contiguous tensor of the same shape.
type window struct {
	base           []int // the shape of the whole
	shape, strides []int
	offset         int
}

// part returns a view of t of the given shape. layout turns the strides of a whole to the strides and the offset of the
// part.
func (op *opContext) part(t *core.Tensor, shape []int, layout func(strides []int) ([]int, int)) *core.Tensor {
	if op.err != nil {
		return op.fail()
	}
	strides, offset := layout(t.Strides())
	return op.view(t, shape, strides, t.Offset()+offset, partDeriv, func(n *core.Node) { n.Any = windowOf(t.Shape(), shape, layout) })
}

func windowOf(base, shape []int, layout func(strides []int) ([]int, int)) *window {
	whole := make([]int, len(base))
	core.ContiguousStrides(base, whole)
	strides, offset := layout(whole)
	return &window{base, shape, strides, offset}
}

func partDeriv(ctx *core.BackwardContext) { ctx.Set(0, embed(ctx.Grad(), ctx.Node.Any.(*window))) }

// embed returns zeros of shape w.base but for the window, which is g. It undoes part.
func embed(g *core.Tensor, w *window) *core.Tensor {
	if p := g.Parts(); p != nil && p.Depth() > 0 {
		n := p.Local().Size(0)
		lead := func(v int, list []int) []int { return append([]int{v}, list...) }
		return p.With(embed(p.Local(), &window{lead(n, w.base), lead(n, w.shape), lead(core.Numel(w.base), w.strides), w.offset}))
	}
	if Overlaps(w.shape, w.strides) {
		return asStridedAdd(zerosFor(g, g.DType(), w.base), g, w.shape, w.strides, w.offset)
	}
	op := begin("slice_backward").with(g)
	out := op.out(g.DType(), w.base)
	if op.err != nil {
		return op.fail()
	}
	if core.Numel(w.shape) != core.Numel(w.base) {
		op.launch(op.call(contract.Fill).Out(out).In(core.IntNum(0)))
	}
	part := core.WrapTensor(op.mode, out.Storage(), out.DType(), w.shape, w.strides, w.offset)
	c := op.call(contract.Copy).Out(part).In(g)
	c.InPlace = true
	op.launch(c)
	part.Release()
	if op.grad {
		n := op.node(embedDeriv, g)
		n.Any = w
		op.attach(n, out)
	}
	return op.done(out)
}

func embedDeriv(ctx *core.BackwardContext) {
	w := ctx.Node.Any.(*window)
	ctx.Set(0, AsStrided(Contiguous(ctx.Grad()), w.shape, w.strides, w.offset))
}

// Narrow returns a view of the length indices of dimension dim of t that begin at start, which may be negative to count
// from the end.
func Narrow(t *core.Tensor, dim, start, length int) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "narrow", t, dim, start, length)
	}
	op := begin("narrow", &t)
	dim = op.dim(dim, t)
	if op.err == nil && t.Dim() == 0 {
		op.failf(core.ShapeError, "cannot narrow a 0-d tensor")
	}
	if op.err != nil {
		return op.fail()
	}
	n := t.Shape()[dim]
	if start < -n || start > n {
		op.failf(core.IndexError, "start %d out of range for dimension %d of shape %v", start, dim, t.Shape())
		return op.fail()
	}
	if start < 0 {
		start += n
	}
	if length < 0 || length > n-start {
		op.failf(core.IndexError, "%d indices from %d on do not fit dimension %d of shape %v", length, start, dim, t.Shape())
		return op.fail()
	}
	return op.narrow(t, dim, start, length, 1)
}

// narrow returns every step-th index of dimension dim, length of them from start on, which must exist.
func (op *opContext) narrow(t *core.Tensor, dim, start, length, step int) *core.Tensor {
	shape := slices.Clone(t.Shape())
	shape[dim] = length
	return op.part(t, shape, func(s []int) ([]int, int) {
		s = slices.Clone(s)
		offset := 0
		if length > 0 {
			offset = start * s[dim]
		}
		if length > 1 {
			s[dim] *= step
		}
		return s, offset
	})
}

// Slice returns a view of every step-th index of dimension dim of t from start to before stop. As in Python, negative
// bounds count from the end and bounds past the ends are the ends; the step must be positive.
func Slice(t *core.Tensor, dim, start, stop, step int) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "slice", t, dim, start, stop, step)
	}
	op := begin("slice", &t)
	dim = op.dim(dim, t)
	if op.err == nil && t.Dim() == 0 {
		op.failf(core.ShapeError, "cannot slice a 0-d tensor")
	}
	if op.err == nil && step <= 0 {
		op.failf(core.ValueError, "the step must be positive, got %d", step)
	}
	if op.err != nil {
		return op.fail()
	}
	start, length := sliceBounds(start, stop, step, t.Shape()[dim])
	return op.narrow(t, dim, start, length, step)
}

// sliceBounds returns the first index of a slice of a dimension of size n and the number of its indices.
func sliceBounds(start, stop, step, n int) (first, length int) {
	bound := func(i int) int {
		if i < 0 {
			i += n
		}
		return min(max(i, 0), n)
	}
	start, stop = bound(start), bound(stop)
	if stop <= start {
		return start, 0
	}
	return start, (stop-start-1)/step + 1
}

// Select returns a view of t at the given index of dimension dim, which the result lacks. A negative index counts from
// the end.
func Select(t *core.Tensor, dim, index int) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "select", t, dim, index)
	}
	op := begin("select", &t)
	dim = op.dim(dim, t)
	if op.err == nil && t.Dim() == 0 {
		op.failf(core.IndexError, "cannot index a 0-d tensor")
	}
	if op.err != nil {
		return op.fail()
	}
	n := t.Shape()[dim]
	if index < -n || index >= n {
		op.failf(core.IndexError, "index %d out of range for dimension %d of shape %v", index, dim, t.Shape())
		return op.fail()
	}
	if index < 0 {
		index += n
	}
	return op.part(t, slices.Delete(slices.Clone(t.Shape()), dim, dim+1), func(s []int) ([]int, int) {
		return slices.Delete(slices.Clone(s), dim, dim+1), index * s[dim]
	})
}

// Diagonal returns a view of the diagonal of the matrices that dimensions dim1 and dim2 of t hold, as the last
// dimension; offset k is the k-th diagonal above the main one, or below if negative.
func Diagonal(t *core.Tensor, offset, dim1, dim2 int) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "diagonal", t, offset, dim1, dim2)
	}
	op := begin("diagonal", &t)
	dim1, dim2 = op.dim(dim1, t), op.dim(dim2, t)
	if op.err == nil && (t.Dim() < 2 || dim1 == dim2) {
		op.failf(core.ValueError, "dimensions %d and %d of shape %v span no matrix", dim1, dim2, t.Shape())
	}
	if op.err != nil {
		return op.fail()
	}
	rows, cols := t.Shape()[dim1], t.Shape()[dim2]
	length := max(0, min(rows, cols-offset))
	if offset < 0 {
		length = max(0, min(rows+offset, cols))
	}
	drop := func(v []int) []int {
		v = slices.Delete(slices.Clone(v), max(dim1, dim2), max(dim1, dim2)+1)
		return slices.Delete(v, min(dim1, dim2), min(dim1, dim2)+1)
	}
	return op.part(t, append(drop(t.Shape()), length), func(s []int) ([]int, int) {
		first := 0
		if length > 0 {
			first = max(offset, 0)*s[dim2] - min(offset, 0)*s[dim1]
		}
		return append(drop(s), s[dim1]+s[dim2]), first
	})
}

// Unfold returns a view of the windows of the given size of dimension dim of t, step apart. Dimension dim counts the
// windows and a new last dimension runs within them. Windows that overlap share memory.
func Unfold(t *core.Tensor, dim, size, step int) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "unfold", t, dim, size, step)
	}
	op := begin("unfold", &t)
	dim = op.dim(dim, t)
	if op.err != nil {
		return op.fail()
	}
	n := 1
	if t.Dim() > 0 {
		n = t.Shape()[dim]
	}
	if size < 0 || size > n || step <= 0 {
		op.failf(core.ValueError, "windows of size %d, %d apart, do not fit dimension %d of shape %v", size, step, dim, t.Shape())
		return op.fail()
	}
	shape := append(slices.Clone(t.Shape()), size)
	if t.Dim() == 0 {
		return op.part(t, shape, func(s []int) ([]int, int) { return []int{1}, 0 })
	}
	shape[dim] = (n-size)/step + 1
	return op.part(t, shape, func(s []int) ([]int, int) {
		out := append(slices.Clone(s), s[dim])
		if shape[dim] > 1 {
			out[dim] *= step
		}
		return out, 0
	})
}

// NarrowCopy returns a copy of what [Narrow] returns.
func NarrowCopy(t *core.Tensor, dim, start, length int) *core.Tensor {
	return compose("narrow_copy", func() *core.Tensor { return Clone(Narrow(t, dim, start, length)) })
}
