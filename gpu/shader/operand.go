package shader

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// Image returns the view of an operand that begins at image n. An image has size elements.
func Image(o *core.Operand, n, size int) *core.Operand {
	from := *o
	from.Offset += n * size
	return &from
}

// Innermost returns an operand with the given dimension moved to the last place.
func Innermost(o *core.Operand, dim int) core.Operand {
	moved := *o
	moved.Shape = append(slices.Delete(slices.Clone(o.Shape), dim, dim+1), o.Shape[dim])
	moved.Strides = append(slices.Delete(slices.Clone(o.Strides), dim, dim+1), o.Strides[dim])
	return moved
}

// Trailing returns an operand's dimensions from index from on.
func Trailing(o *core.Operand, from int) core.Operand {
	rest := *o
	rest.Shape, rest.Strides = o.Shape[from:], o.Strides[from:]
	return rest
}

// Leading returns an operand's dimensions before index to.
func Leading(o *core.Operand, to int) core.Operand {
	front := *o
	front.Shape, front.Strides = o.Shape[:to], o.Strides[:to]
	return front
}

// OrNil returns the operand, or nil if it is an absent optional one.
func OrNil(o *core.Operand) *core.Operand {
	if !o.Present() {
		return nil
	}
	return o
}

// F32Operand returns a contiguous float32 operand of a shape in scratch memory.
func F32Operand(m core.Memory, offset int, shape ...int) *core.Operand {
	o := &core.Operand{Memory: m, Offset: offset, DType: core.Float32, Shape: shape, Strides: make([]int, len(shape))}
	core.ContiguousStrides(shape, o.Strides)
	return o
}

// F32Like returns an operand with the same memory and a contiguous shape.
func F32Like(o *core.Operand, shape ...int) *core.Operand {
	v := *o
	v.Shape, v.Strides = shape, make([]int, len(shape))
	core.ContiguousStrides(shape, v.Strides)
	return &v
}

// Bytes returns how many bytes of memory an operand's elements fill. An element that strides of 0 repeat counts once.
func Bytes(o *core.Operand) int {
	if o.IsNumber || !o.Present() {
		return 0
	}
	n := o.DType.Size()
	for d, size := range o.Shape {
		if size == 0 || o.Strides[d] != 0 {
			n *= size
		}
	}
	return n
}
