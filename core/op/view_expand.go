package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// Expand returns a view of t in which dimensions of size 1 are repeated to the given sizes, and new ones are put in
// front; -1 keeps a size. All repetitions share memory.
func Expand(t *core.Tensor, shape ...int) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "expand", t, shape)
	}
	return expand("expand", t, shape)
}

// BroadcastTo returns a view of t broadcast to the given shape.
func BroadcastTo(t *core.Tensor, shape ...int) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "broadcast_to", t, shape)
	}
	return expand("broadcast_to", t, shape)
}

// ExpandAs returns Expand(t, other's shape).
func ExpandAs(t, other *core.Tensor) *core.Tensor {
	if parts := distributed(t, other); parts != nil {
		return handOn(parts, "expand_as", t, other)
	}
	if err := other.Usable("expand_as"); err != nil {
		return core.ErrorTensor(err)
	}
	return expand("expand_as", t, other.Shape())
}

func expand(name string, t *core.Tensor, shape []int) *core.Tensor {
	if parts := distributed(t); parts != nil { // a gradient
		return handOn(parts, "expand", t, shape)
	}
	op := begin(name, &t)
	if op.err != nil {
		return op.fail()
	}
	shape = slices.Clone(shape)
	lead := len(shape) - t.Dim()
	fits := lead >= 0
	for i := range shape {
		switch {
		case !fits:
		case shape[i] == -1 && i >= lead:
			shape[i] = t.Shape()[i-lead]
		case shape[i] < 0, i >= lead && t.Shape()[i-lead] != 1 && t.Shape()[i-lead] != shape[i]:
			fits = false
		}
	}
	if !fits {
		op.failf(core.ShapeError, "shape %v cannot be expanded to %v", t.Shape(), shape)
		return op.fail()
	}
	if _, err := core.CheckShape(name, shape, t.DType()); err != nil {
		return core.ErrorTensor(err)
	}
	strides := core.ExpandStrides(t.Shape(), t.Strides(), shape)
	return op.view(t, shape, strides, t.Offset(), expandDeriv, nil)
}

func expandDeriv(ctx *core.BackwardContext) { ctx.Set(0, sumTo(ctx.Grad(), ctx.InputShape(0))) }

// BroadcastTensors returns views of the tensors broadcast against one another.
func BroadcastTensors(tensors ...*core.Tensor) []*core.Tensor {
	if parts := distributed(tensors...); parts != nil {
		return handOnList(parts, "broadcast_tensors", tensors)
	}
	op := begin("broadcast_tensors").list(&tensors)
	shape := op.broadcast(tensors...)
	out := make([]*core.Tensor, len(tensors))
	for i, t := range tensors {
		if op.err != nil {
			out[i] = op.fail()
		} else {
			out[i] = expand("broadcast_tensors", t, shape)
		}
	}
	return out
}

// Squeeze returns a view of t without the given dimensions, of those that have size 1; none means all of them.
func Squeeze(t *core.Tensor, dims ...int) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "squeeze", t, dims)
	}
	op := begin("squeeze", &t)
	list := op.dims(dims, t)
	if op.err != nil {
		return op.fail()
	}
	shape, strides := make([]int, 0, t.Dim()), make([]int, 0, t.Dim())
	for i, n := range t.Shape() {
		if n == 1 && slices.Contains(list, i) {
			continue
		}
		shape, strides = append(shape, n), append(strides, t.Strides()[i])
	}
	return op.view(t, shape, strides, t.Offset(), reshapeDeriv, markRearranged)
}

// Unsqueeze returns a view of t with a dimension of size 1 inserted, to be dimension dim of the result.
func Unsqueeze(t *core.Tensor, dim int) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "unsqueeze", t, dim)
	}
	op := begin("unsqueeze", &t)
	if op.err != nil {
		return op.fail()
	}
	dim, err := core.WrapDim("unsqueeze", dim, t.Dim()+1)
	if err != nil {
		return core.ErrorTensor(err)
	}
	if _, err := core.CheckShape("unsqueeze", slices.Insert(slices.Clone(t.Shape()), dim, 1), t.DType()); err != nil {
		return core.ErrorTensor(err)
	}
	stride := 1
	if dim < t.Dim() {
		stride = t.Shape()[dim] * t.Strides()[dim]
	}
	shape, strides := slices.Insert(slices.Clone(t.Shape()), dim, 1), slices.Insert(slices.Clone(t.Strides()), dim, stride)
	return op.view(t, shape, strides, t.Offset(), reshapeDeriv, markRearranged)
}

// AtLeast1D returns t, a 0-d tensor as one of shape [1].
func AtLeast1D(t *core.Tensor) *core.Tensor {
	return atLeast(t, 1)
}

// AtLeast2D returns t with dimensions of size 1 in front, to have at least two.
func AtLeast2D(t *core.Tensor) *core.Tensor {
	return atLeast(t, 2)
}

// AtLeast3D returns t with at least three dimensions: a vector becomes a row [1, n, 1], a matrix [m, n, 1].
func AtLeast3D(t *core.Tensor) *core.Tensor {
	return atLeast(t, 3)
}

func atLeast(t *core.Tensor, n int) *core.Tensor {
	if err := t.Err(); err != nil {
		return core.ErrorTensor(err)
	}
	if t.Dim() >= n {
		return t.Alias(true)
	}
	shape := slices.Clone(t.Shape())
	if n == 3 && len(shape) == 2 {
		shape = append(shape, 1)
	}
	for len(shape) < n {
		if n == 3 && len(shape) == 2 {
			shape = append(shape, 1)
		} else {
			shape = slices.Insert(shape, 0, 1)
		}
	}
	return Reshape(t, shape...)
}
