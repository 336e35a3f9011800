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

// TestLUOfSizes compares the factors, and the pivots exactly.
func TestLUOfSizes(t *testing.T) {
	check := func(t *testing.T, x, onGPU *core.Tensor) {
		n := max(x.Size(-1), x.Size(-2))
		want, pivots, _ := op.LUFactor(x)
		got, same, infos := op.LUFactor(onGPU)
		require.Equal(t, int32s(t, pivots), int32s(t, same))
		require.NotContains(t, int32s(t, infos), int32(1))
		accurate(t, want, got, float64(16+4*n), "lu") // elements of random matrices grow by a small factor
	}
	eachSquare(t, check)
	core.ManualSeed(8)
	for _, shape := range [][]int{{300, 5}, {2, 70, 40}, {3, 40, 70}, {5, 1}, {1, 5}, {33, 200}, {1100, 40}} {
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			core.Tidy(func() {
				x := op.Randn(shape...)
				check(t, op.To(x, core.Float64), op.ToDevice(x, device(t)))
			})
		})
	}
}

func int32s(t *testing.T, x *core.Tensor) []int32 {
	t.Helper()
	v, err := core.Values[int32](op.ToDevice(x, cpuDevice(t)))
	require.NoError(t, err)
	return v
}

// conditioned returns a matrix with a small condition, so that its inverse is known accurately.
func conditioned(x *core.Tensor) *core.Tensor {
	n := float64(x.Size(-1))
	return op.Add(x, op.Mul(op.ToDevice(op.To(op.Eye(int(n), int(n), op.TensorOptions{}), x.DType()), x.Device()), core.Num(3*n)))
}

func TestSystemsOfSizes(t *testing.T) {
	eachSquare(t, func(t *testing.T, x, onGPU *core.Tensor) {
		n := x.Size(-1)
		shape := append(append([]int{}, x.Shape()[:x.Dim()-1]...), 3)
		b := op.Randn(shape...)
		b64, bGPU := op.To(b, core.Float64), op.ToDevice(b, device(t))
		well, wellGPU := conditioned(x), conditioned(onGPU)
		accurate(t, op.Inv(well), op.Inv(wellGPU), float64(8+n/4), "inverse")
		accurate(t, op.Solve(well, b64), op.Solve(wellGPU, bGPU), float64(8+n/4), "solution")
		for _, upper := range []bool{false, true} {
			accurate(t, op.SolveTriangular(well, b64, upper, false), op.SolveTriangular(wellGPU, bGPU, upper, false), float64(8+n/4), "triangular solution")
			unit, unitGPU := op.Div(x, core.Num(float64(n))), op.Div(onGPU, core.Num(float64(n)))
			accurate(t, op.SolveTriangular(unit, b64, upper, true), op.SolveTriangular(unitGPU, bGPU, upper, true), float64(8+n/4), "unit triangular solution")
		}
	})
}
