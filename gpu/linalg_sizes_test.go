package gpu_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// linalgShapes are batches and sizes at the edges of panels, of pairs of blocks, and beyond them.
var linalgShapes = [][]int{{1, 1}, {2, 2}, {5, 7, 7}, {31, 31}, {2, 33, 33}, {64, 64}, {65, 65}, {100, 100}, {2, 3, 48, 48}, {130, 130}}

// accurate requires that got, computed on the GPU, equals the CPU's want in float64, up to a multiple of float32's epsilon of want's
// largest element.
func accurate(t *testing.T, want, got *core.Tensor, multiple float64, what string) {
	t.Helper()
	got = op.To(op.ToDevice(got, cpuDevice(t)), core.Float64)
	size := value(t, op.Amax(op.Abs(want), nil, false))
	error := value(t, op.Amax(op.Abs(op.Sub(want, got)), nil, false))
	require.LessOrEqual(t, error, multiple*0x1p-23*size, what)
}

// eachSquare calls fn with random matrices of every shape, in float64 on the CPU and as they are there in float32 on the GPU; the latter are
// transposed views, so that no operand is contiguous.
func eachSquare(t *testing.T, fn func(t *testing.T, x, onGPU *core.Tensor)) {
	d := device(t)
	core.ManualSeed(7)
	for _, shape := range linalgShapes {
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			core.Tidy(func() {
				x := op.Randn(shape...)
				fn(t, op.To(x, core.Float64), transposed(op.ToDevice(op.Contiguous(transposed(x)), d)))
			})
		})
	}
}

func identity64(n int) *core.Tensor { return op.To(op.Eye(n, n, op.TensorOptions{}), core.Float64) }

func TestCholeskyOfSizes(t *testing.T) {
	eachSquare(t, func(t *testing.T, x, _ *core.Tensor) {
		n := x.Size(-1)
		positive := op.Add(op.MatMul(x, transposed(x)), op.Mul(identity64(n), core.Num(float64(n))))
		positive = op.To(op.To(positive, core.Float32), core.Float64)
		onGPU := op.ToDevice(op.To(positive, core.Float32), device(t))
		accurate(t, op.Cholesky(positive, false), op.Cholesky(onGPU, false), float64(8+n/4), "l")
		accurate(t, op.Cholesky(positive, true), op.Cholesky(transposed(onGPU), true), float64(8+n/4), "u")
	})
}
