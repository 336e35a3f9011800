package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// Permute returns a view of t with its dimensions in the given order, which names each once.
func Permute(t *core.Tensor, dims ...int) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "permute", t, dims)
	}
	return permute("permute", t, dims)
}

func permute(name string, t *core.Tensor, dims []int) *core.Tensor {
	op := begin(name, &t)
	order := op.order(dims, t)
	if op.err != nil {
		return op.fail()
	}
	shape, strides := make([]int, len(order)), make([]int, len(order))
	for i, d := range order {
		shape[i], strides[i] = t.Shape()[d], t.Strides()[d]
	}
	return op.view(t, shape, strides, t.Offset(), permuteDeriv, func(n *core.Node) { n.Ints, n.Any = order, rearranged{} })
}

func permuteDeriv(ctx *core.BackwardContext) {
	order := ctx.Node.Ints
	inverse := make([]int, len(order))
	for i, from := range order {
		inverse[from] = i
	}
	ctx.Set(0, Permute(ctx.Grad(), inverse...))
}

// order returns dims counted from the front and fails unless they are a permutation of t's dimensions.
func (op *opContext) order(dims []int, t *core.Tensor) []int {
	if op.err != nil {
		return nil
	}
	if len(dims) != t.Dim() {
		op.failf(core.ShapeError, "got %d dimensions %v for shape %v, want each of its %d once", len(dims), dims, t.Shape(), t.Dim())
		return nil
	}
	order := make([]int, len(dims))
	var seen uint
	for i, d := range dims {
		order[i] = op.dim(d, t)
		if op.err == nil && seen&(1<<order[i]) != 0 {
			op.failf(core.ValueError, "dimension %d appears twice in %v", order[i], dims)
		}
		seen |= 1 << order[i]
	}
	return order
}

// Transpose returns a view of t with two dimensions swapped.
func Transpose(t *core.Tensor, dim0, dim1 int) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "transpose", t, dim0, dim1)
	}
	op := begin("transpose", &t)
	dim0, dim1 = op.dim(dim0, t), op.dim(dim1, t)
	if op.err != nil {
		return op.fail()
	}
	shape, strides := slices.Clone(t.Shape()), slices.Clone(t.Strides())
	if len(shape) > 0 {
		shape[dim0], shape[dim1] = shape[dim1], shape[dim0]
		strides[dim0], strides[dim1] = strides[dim1], strides[dim0]
	}
	return op.view(t, shape, strides, t.Offset(), transposeDeriv, func(n *core.Node) { n.Ints, n.Any = []int{dim0, dim1}, rearranged{} })
}

func transposeDeriv(ctx *core.BackwardContext) {
	ctx.Set(0, Transpose(ctx.Grad(), ctx.Node.Ints[0], ctx.Node.Ints[1]))
}

// SwapAxes returns Transpose(t, axis0, axis1).
func SwapAxes(t *core.Tensor, axis0, axis1 int) *core.Tensor {
	return Transpose(t, axis0, axis1)
}

// MT returns a view of t with its last two dimensions swapped.
func MT(t *core.Tensor) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "mT", t)
	}
	if t.Err() == nil && t.Dim() < 2 {
		return core.ErrorTensor(core.Errorf(core.ShapeError, "mT", "got shape %v, want at least 2 dimensions", t.Shape()))
	}
	return Transpose(t, -2, -1)
}

// TransposeMatrix is PyTorch's t: it returns a view of the matrix t transposed; a tensor of fewer dimensions stays as it
// is.
func TransposeMatrix(t *core.Tensor) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "t", t)
	}
	if t.Err() == nil && t.Dim() > 2 {
		return core.ErrorTensor(core.Errorf(core.ShapeError, "t", "got shape %v, want at most 2 dimensions", t.Shape()))
	}
	if t.Err() == nil && t.Dim() < 2 {
		return Transpose(t, 0, 0)
	}
	return Transpose(t, 0, 1)
}

// Movedim returns a view of t with the dimensions source moved to the places destination; the others keep their order.
func Movedim(t *core.Tensor, source, destination []int) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "movedim", t, source, destination)
	}
	op := begin("movedim", &t)
	if op.err == nil && len(source) != len(destination) {
		op.failf(core.ValueError, "got %d dimensions %v and %d places %v", len(source), source, len(destination), destination)
	}
	if op.err != nil {
		return op.fail()
	}
	order := make([]int, t.Dim(), core.MaxDims)
	for i := range order {
		order[i] = -1
	}
	var moved uint
	for i := range source {
		from, to := op.dim(source[i], t), op.dim(destination[i], t)
		if op.err != nil {
			return op.fail()
		}
		if t.Dim() == 0 {
			continue
		}
		if moved&(1<<from) != 0 || order[to] >= 0 {
			op.failf(core.ValueError, "a dimension appears twice in %v or %v", source, destination)
			return op.fail()
		}
		moved |= 1 << from
		order[to] = from
	}
	next := 0
	for i := range order {
		if order[i] >= 0 {
			continue
		}
		for moved&(1<<next) != 0 {
			next++
		}
		order[i] = next
		next++
	}
	return permute("movedim", t, order)
}
