package gpu_test

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TestFillIntegers compares filled int64 tensors with the CPU's: few and many elements, an odd number, and part of a tensor.
func TestFillIntegers(t *testing.T) {
	device(t)
	for _, n := range []int{1, 1000, 1 << 14, 1<<14 + 1, 1<<14 + 2, 1<<15 + 1030} {
		x := op.To(op.Rand(n+3), core.Int64)
		sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
			all, later, next := op.ZerosLike(x[0], op.TensorOptions{}), op.OnesLike(x[0], op.TensorOptions{}), op.OnesLike(x[0], op.TensorOptions{})
			op.FillInPlace(all, core.IntNum(-1<<40-7))
			op.FillInPlace(op.Narrow(later, 0, 1, n), core.IntNum(1<<33+5))
			op.FillInPlace(op.Narrow(next, 0, 2, n), core.IntNum(-2))
			return []*core.Tensor{all, later, next}
		}, x)
	}
}
