package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// The gradient of a tensor that was split consists of those of its parts. An operation whose inputs are all the parts, such as
// attention of q, k and v, writes their gradients to one memory, in which they lie as the parts do; the derivative of the split
// finds them joined. Whether it does is seen from where they lie, whoever made them.

// divided is what nodes hold whose outputs are parts that together are all of their input.
type divided struct{}

// rearranged is what nodes hold whose derivatives make a view of any gradient.
type rearranged struct{}

func markRearranged(n *core.Node) { n.Any = rearranged{} }

// dividedBy returns the node that split input i off, if the input's gradient goes there by way of views and nobody sees it before;
// else nil.
func dividedBy(ctx *core.BackwardContext, i int) *core.Node {
	for n := ctx.Node; ctx.Hidden(n, i); i = 0 {
		n = n.Edges()[i].Node
		switch n.Any.(type) {
		case divided:
			return n
		case reshaped, rearranged:
		default:
			return nil
		}
	}
	return nil
}

// gradsOfParts allocates in grads, by input of d's node, the gradients of those inputs that were split off one tensor and fill a
// piece of its memory: together, and lying as the inputs do. Inputs that are nil are left out.
func (op *opContext) gradsOfParts(ctx *core.BackwardContext, inputs, grads []*core.Tensor) {
	from := make([]*core.Node, len(inputs))
	for i, t := range inputs {
		if t != nil {
			from[i] = dividedBy(ctx, i)
		}
	}
	for i, n := range from {
		if n == nil || slices.Index(from, n) < i {
			continue
		}
		var parts []*core.Tensor
		for j, t := range inputs {
			if from[j] == n {
				parts = append(parts, t)
			}
		}
		first, size, ok := tile(parts)
		if len(parts) < 2 || !ok {
			continue
		}
		memory := op.out(ctx.InputDType(i), []int{size})
		if op.err != nil {
			return
		}
		for j, t := range inputs {
			if from[j] == n {
				grads[j] = core.WrapTensor(op.mode, memory.Storage(), memory.DType(), t.Shape(), t.Strides(), t.Offset()-first)
			}
		}
		memory.Release()
	}
}

// tile reports whether the tensors fill a piece of one storage, each element of it once, and returns its first element and its
// size. They must lie beside one another in rows, each with a run of elements in every row.
func tile(parts []*core.Tensor) (first, size int, ok bool) {
	type dim struct{ size, stride int }
	var outer []dim // of the first part: those that step from row to row
	runs := make([]int, len(parts))
	row := 0
	for i, t := range parts {
		if t.Storage() != parts[0].Storage() || t.DType() != parts[0].DType() || t.Numel() == 0 {
			return 0, 0, false
		}
		var rows []dim
		runs[i] = 1
		for _, at := range byStride(t.Strides()) {
			switch n, s := t.Shape()[at], t.Strides()[at]; {
			case n == 1:
			case s == runs[i] && len(rows) == 0:
				runs[i] *= n
			default:
				rows = append(rows, dim{n, s})
			}
		}
		if i == 0 {
			outer = rows
		} else if !slices.Equal(outer, rows) {
			return 0, 0, false
		}
		row += runs[i]
	}
	size = row
	for _, r := range outer {
		if r.stride != size {
			return 0, 0, false
		}
		size *= r.size
	}
	// Each run begins where another ends, but for the first.
	order := make([]int, len(parts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return parts[i].Offset() - parts[j].Offset() })
	first = parts[order[0]].Offset()
	at := first
	for _, i := range order {
		if parts[i].Offset() != at {
			return 0, 0, false
		}
		at += runs[i]
	}
	return first, size, true
}

// partsGrad returns the gradient of a tensor from those of its parts along dimension dim, which have no such dimension if they were
// unbound. Where they lie like parts of a whole in memory that nobody else has, it is a view of them; otherwise join makes it.
func partsGrad(ctx *core.BackwardContext, unbound bool, join func(grads []*core.Tensor, dim int) *core.Tensor) *core.Tensor {
	dim := ctx.Node.Ints[0]
	if whole := wholeOf(ctx, dim, unbound); whole != nil {
		return whole
	}
	return join(outputGrads(ctx), dim)
}

// wholeOf returns the tensor that the gradients of the node's outputs are parts of, or nil.
func wholeOf(ctx *core.BackwardContext, dim int, unbound bool) *core.Tensor {
	// Hooks may see both the parts and the whole; what is recorded has its place in the graph by the operation that joins.
	if ctx.CreateGraph() || ctx.Node.HasHooks() {
		return nil
	}
	first, n := ctx.GradAt(0), ctx.Node.Outputs()
	if first == nil || first.Err() != nil || first.Storage().Refs() != n {
		return nil
	}
	shape := ctx.InputShape(0)
	along := func(t *core.Tensor) int {
		if unbound {
			return 1
		}
		return t.Shape()[dim]
	}
	// The strides of the whole are those of a part, and along dim the way from one part to the next.
	strides := slices.Clone(first.Strides())
	if unbound {
		strides = slices.Insert(strides, dim, 1)
	}
	if n > 1 {
		next := ctx.GradAt(1)
		if next == nil || next.Err() != nil || along(first) == 0 {
			return nil
		}
		strides[dim] = (next.Offset() - first.Offset()) / along(first)
	}
	at := first.Offset()
	for i := range n {
		t := ctx.GradAt(i)
		if t == nil || t.Err() != nil || t.Storage() != first.Storage() || t.Offset() != at || t.DType() != ctx.InputDType(0) {
			return nil
		}
		own := t.Strides()
		if unbound {
			own = slices.Insert(slices.Clone(own), dim, strides[dim])
		}
		for j, s := range own {
			if s != strides[j] && shape[j] > 1 && (j != dim || along(t) > 1) {
				return nil
			}
		}
		at += along(t) * strides[dim]
	}
	switch {
	case core.IsContiguous(shape, strides):
		core.ContiguousStrides(shape, strides)
	case !ctx.Hidden(ctx.Node, 0): // users expect what is contiguous
		return nil
	}
	whole := core.WrapTensor(core.CurrentMode(), first.Storage(), first.DType(), shape, strides, first.Offset())
	if _, size, ok := tile([]*core.Tensor{whole}); !ok || size*whole.DType().Size() != whole.Storage().Size() {
		whole.Release()
		return nil
	}
	return whole
}
