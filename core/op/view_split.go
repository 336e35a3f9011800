package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// Split returns views of t cut along dimension dim into parts of the given size, the last of which may be smaller.
func Split(t *core.Tensor, size, dim int) []*core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOnList(parts, "split", t, size, dim)
	}
	op := begin("split", &t)
	dim, n := op.splitDim(dim, t)
	if op.err == nil && (size < 0 || size == 0 && n > 0) {
		op.failf(core.ValueError, "the size of a part must be positive, got %d", size)
	}
	if op.partCount(n, size); op.err != nil {
		return []*core.Tensor{op.fail()}
	}
	if n == 0 {
		return op.split(t, dim, []int{0})
	}
	return op.splitEvenly(t, dim, n, size)
}

// SplitSizes returns views of t cut along dimension dim into parts of the given sizes, which must add up to its size.
func SplitSizes(t *core.Tensor, sizes []int, dim int) []*core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOnList(parts, "split_with_sizes", t, sizes, dim)
	}
	op := begin("split", &t)
	dim, n := op.splitDim(dim, t)
	sum := 0
	for _, s := range sizes {
		if op.err == nil && (s < 0 || s > n-sum) {
			sum = -1
			break
		}
		sum += s
	}
	if op.err == nil && (sum != n || len(sizes) == 0) {
		op.failf(core.ValueError, "sizes %v do not add up to the size %d of dimension %d", sizes, n, dim)
	}
	if op.err != nil {
		return []*core.Tensor{op.fail()}
	}
	return op.split(t, dim, sizes)
}

// Chunk returns views of t cut along dimension dim into the given number of equal parts, but for the last; there may be
// fewer parts if the size does not divide.
func Chunk(t *core.Tensor, chunks, dim int) []*core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOnList(parts, "chunk", t, chunks, dim)
	}
	op := begin("chunk", &t)
	dim, n := op.splitDim(dim, t)
	if op.err == nil && chunks <= 0 {
		op.failf(core.ValueError, "the number of chunks must be positive, got %d", chunks)
	}
	size := (n-1)/max(chunks, 1) + 1
	if n == 0 {
		op.partCount(chunks, 1)
	} else {
		op.partCount(n, size)
	}
	if op.err != nil {
		return []*core.Tensor{op.fail()}
	}
	if n == 0 {
		return op.split(t, dim, make([]int, chunks))
	}
	return op.splitEvenly(t, dim, n, size)
}

// TensorSplit returns views of t cut along dimension dim into the given number of parts, whose sizes differ by at most
// one.
func TensorSplit(t *core.Tensor, sections, dim int) []*core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOnList(parts, "tensor_split", t, sections, dim)
	}
	op := begin("tensor_split", &t)
	dim, n := op.splitDim(dim, t)
	if op.err == nil && sections <= 0 {
		op.failf(core.ValueError, "the number of sections must be positive, got %d", sections)
	}
	if op.partCount(sections, 1); op.err != nil {
		return []*core.Tensor{op.fail()}
	}
	sizes := make([]int, sections)
	for i := range sizes {
		sizes[i] = n / sections
		if i < n%sections {
			sizes[i]++
		}
	}
	return op.split(t, dim, sizes)
}

// TensorSplitAt returns views of t cut along dimension dim before each of the given indices, as slices of Python are.
func TensorSplitAt(t *core.Tensor, indices []int, dim int) []*core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOnList(parts, "tensor_split_at", t, indices, dim)
	}
	op := begin("tensor_split", &t)
	dim, n := op.splitDim(dim, t)
	if op.err != nil {
		return []*core.Tensor{op.fail()}
	}
	out := make([]*core.Tensor, 0, len(indices)+1)
	start := 0
	for _, stop := range append(slices.Clone(indices), n) {
		first, length := sliceBounds(start, stop, 1, n)
		b := begin("tensor_split", &t)
		out = append(out, b.narrow(t, dim, first, length, 1))
		start = stop
	}
	return out
}

// Unbind returns views of t at each index of dimension dim, which they lack.
func Unbind(t *core.Tensor, dim int) []*core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOnList(parts, "unbind", t, dim)
	}
	op := begin("unbind", &t)
	dim, n := op.splitDim(dim, t)
	if op.partCount(n, 1); op.err != nil {
		return []*core.Tensor{op.fail()}
	}
	shape := slices.Delete(slices.Clone(t.Shape()), dim, dim+1)
	strides := slices.Delete(slices.Clone(t.Strides()), dim, dim+1)
	out := make([]*core.Tensor, n)
	for i := range out {
		out[i] = op.view(t, shape, strides, t.Offset()+i*t.Strides()[dim], nil, nil)
	}
	op.parts(unbindDeriv, t, dim, out)
	return out
}

func unbindDeriv(ctx *core.BackwardContext) { ctx.Set(0, partsGrad(ctx, true, Stack)) }

// splitDim returns dim counted from the front and its size.
func (op *opContext) splitDim(dim int, t *core.Tensor) (int, int) {
	dim = op.dim(dim, t)
	if op.err == nil && t.Dim() == 0 {
		op.failf(core.ShapeError, "cannot split a 0-d tensor")
	}
	if op.err != nil {
		return 0, 0
	}
	return dim, t.Shape()[dim]
}

// maxParts bounds how many tensors one call returns: a mistaken size must not take all of the host's memory.
const maxParts = 1 << 24

// partCount fails where n, cut into parts of a size, makes more than maxParts.
func (op *opContext) partCount(n, size int) {
	if op.err == nil && n > 0 && (n-1)/size >= maxParts {
		op.failf(core.ValueError, "want at most %d parts, got %d", maxParts, (n-1)/size+1)
	}
}

// splitEvenly returns views of parts of a size, the last of which may be smaller.
func (op *opContext) splitEvenly(t *core.Tensor, dim, n, size int) []*core.Tensor {
	sizes := make([]int, 0, (n-1)/size+1)
	for rest := n; rest > 0; rest -= size {
		sizes = append(sizes, min(rest, size))
	}
	return op.split(t, dim, sizes)
}

func (op *opContext) split(t *core.Tensor, dim int, sizes []int) []*core.Tensor {
	shape := slices.Clone(t.Shape())
	out := make([]*core.Tensor, len(sizes))
	at := 0
	for i, n := range sizes {
		shape[dim] = n
		out[i] = op.view(t, shape, t.Strides(), t.Offset()+at*t.Strides()[dim], nil, nil)
		at += n
	}
	op.parts(splitDeriv, t, dim, out)
	return out
}

// parts records views that together are all of t as the outputs of one node.
func (op *opContext) parts(deriv core.Deriv, t *core.Tensor, dim int, out []*core.Tensor) {
	if !op.recorded() || len(out) == 0 {
		return
	}
	op.forward = nil // a view's tangents are its base's
	n := op.node(deriv, t)
	n.Ints, n.Any = []int{dim}, divided{}
	op.attach(n, out...)
}

func splitDeriv(ctx *core.BackwardContext) { ctx.Set(0, partsGrad(ctx, false, Cat)) }

// outputGrads returns the gradients of all outputs, zeros where there is none.
func outputGrads(ctx *core.BackwardContext) []*core.Tensor {
	grads := make([]*core.Tensor, ctx.Node.Outputs())
	var some *core.Tensor
	for i := range grads {
		if grads[i] = ctx.GradAt(i); grads[i] != nil {
			some = grads[i]
		}
	}
	for i, g := range grads {
		if g == nil {
			grads[i] = zerosFor(some, ctx.InputDType(0), ctx.OutputShape(i))
		}
	}
	return grads
}

// HSplit is [TensorSplit] into columns: along dimension 1, or 0 of a vector.
func HSplit(t *core.Tensor, sections int) []*core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOnList(parts, "hsplit", t, sections)
	}
	dim := 1
	if t.Err() == nil && t.Dim() == 1 {
		dim = 0
	}
	return evenSplit("hsplit", t, sections, dim, 1)
}

// VSplit is [TensorSplit] into rows: along dimension 0 of at least two dimensions.
func VSplit(t *core.Tensor, sections int) []*core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOnList(parts, "vsplit", t, sections)
	}
	return evenSplit("vsplit", t, sections, 0, 2)
}

// DSplit is [TensorSplit] along dimension 2 of at least three dimensions.
func DSplit(t *core.Tensor, sections int) []*core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOnList(parts, "dsplit", t, sections)
	}
	return evenSplit("dsplit", t, sections, 2, 3)
}

func evenSplit(name string, t *core.Tensor, sections, dim, least int) []*core.Tensor {
	op := begin(name, &t)
	switch {
	case op.err != nil:
	case t.Dim() < least:
		op.failf(core.ShapeError, "want at least %d dimensions, got shape %v", least, t.Shape())
	case sections < 1 || t.Size(dim)%sections != 0:
		op.failf(core.ValueError, "cannot cut dimension %d of shape %v into %d equal parts", dim, t.Shape(), sections)
	}
	if op.err != nil {
		return []*core.Tensor{op.fail()}
	}
	return TensorSplit(t, sections, dim)
}
