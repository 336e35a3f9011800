package gpu_test

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TestFlip compares flipped tensors with the CPU's: rows of whole vec4 and others, along each of the dimensions and all of them.
func TestFlip(t *testing.T) {
	device(t)
	for _, d := range []core.DType{core.Float32, core.Float16, core.BFloat16, core.Int64} {
		for _, shape := range [][]int{{8}, {5, 64}, {3, 7, 12}, {6, 10}} {
			x := op.To(op.Mul(op.Randn(shape...), core.Num(9)), d)
			last := len(shape) - 1
			sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
				part := op.Narrow(x[0], last, 4, shape[last]-4)
				return []*core.Tensor{op.Flip(x[0], []int{last}), op.Flip(x[0], []int{0}), op.Flip(x[0], nil), op.Flip(part, []int{last}),
					op.Flip(op.Narrow(x[0], last, 1, 4), []int{last})}
			}, x)
		}
	}
}
