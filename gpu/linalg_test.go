package gpu_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

func transposed(x *core.Tensor) *core.Tensor { return op.Transpose(x, -1, -2) }

// near fails unless two tensors on the GPU differ by at most so much.
func near(t *testing.T, want, got *core.Tensor, most float64, what string) {
	t.Helper()
	v := value(t, op.Amax(op.Abs(op.Sub(want, got)), nil, false))
	require.LessOrEqual(t, v, most, what)
}

func identity(t *testing.T, n int) *core.Tensor {
	return op.Eye(n, n, op.TensorOptions{Device: device(t)})
}

// Stacks of matrices of sizes past a workgroup's and past a dispatch's, taken apart and put together again.
func TestDecompositionsMakeTheirMatrix(t *testing.T) {
	d := device(t)
	for _, shape := range [][]int{{3, 1, 1}, {2, 5, 3}, {2, 3, 7}, {70, 33}, {40, 65}} {
		core.Tidy(func() {
			x := op.ToDevice(op.Randn(shape...), d)
			m, n := x.Size(-2), x.Size(-1)
			q, r := op.QR(x)
			near(t, x, op.MatMul(q, r), 2e-5, "q r")
			near(t, identity(t, min(m, n)), op.MatMul(transposed(q), q), 1e-5, "q'q")
			near(t, op.Triu(r, 0), r, 0, "r is a triangle")
			u, s, v := op.SVD(x)
			near(t, x, op.MatMul(op.Mul(u, op.Unsqueeze(s, -2)), v), 3e-5, "u s v")
			near(t, identity(t, min(m, n)), op.MatMul(transposed(u), u), 1e-5, "u'u")
			near(t, identity(t, min(m, n)), op.MatMul(v, transposed(v)), 1e-5, "v v'")
			_, want, _ := op.SVD(op.ToDevice(x, cpuDevice(t)))
			near(t, op.ToDevice(want, d), s, 1e-4, "singular values")
		})
	}
	core.Tidy(func() {
		x := op.ToDevice(op.Randn(2, 60, 60), d)
		x = op.Add(x, transposed(x))
		w, v := op.Eigh(x)
		near(t, x, op.MatMul(op.Mul(v, op.Unsqueeze(w, -2)), transposed(v)), 1e-4, "v w v'")
		near(t, identity(t, 60), op.MatMul(transposed(v), v), 2e-5, "v'v")
		positive := op.Add(op.MatMul(x, x), identity(t, 60))
		l := op.Cholesky(positive, false)
		near(t, positive, op.MatMul(l, transposed(l)), 5e-4, "l l'")
	})
	core.Tidy(func() {
		x := op.Add(op.ToDevice(op.Randn(150, 150), d), op.Mul(identity(t, 150), core.Num(12)))
		b := op.ToDevice(op.Randn(150, 90), d)
		near(t, b, op.MatMul(x, op.Solve(x, b)), 1e-4, "a x")
		near(t, identity(t, 150), op.MatMul(x, op.Inv(x)), 1e-5, "a times its inverse")
		_, size := op.SlogDet(x)
		_, want := op.SlogDet(op.ToDevice(x, cpuDevice(t)))
		require.InDelta(t, value(t, want), value(t, size), 1e-2)
	})
}

func cpuDevice(t *testing.T) core.Device {
	d, err := core.OpenDevice("cpu")
	require.NoError(t, err)
	return d
}

// A matrix whose columns are few has singular values of 0, and vectors for them all the same.
func TestSingularVectorsOfAMatrixOfLowRank(t *testing.T) {
	d := device(t)
	core.Tidy(func() {
		x := op.ToDevice(op.MatMul(op.Randn(6, 2), op.Randn(2, 5)), d)
		u, s, v := op.SVD(x)
		near(t, x, op.MatMul(op.Mul(u, op.Unsqueeze(s, -2)), v), 1e-5, "u s v")
		near(t, identity(t, 5), op.MatMul(transposed(u), u), 1e-5, "u'u")
		u, s, v = op.SVD(op.ToDevice(op.Zeros(4, 3), d))
		near(t, identity(t, 3), op.MatMul(transposed(u), u), 0, "u'u of nothing")
		near(t, op.ToDevice(op.Zeros(3), d), s, 0, "values of nothing")
		near(t, identity(t, 3), v, 0, "v of nothing")
	})
}

func TestMatricesWithoutAResultAreErrors(t *testing.T) {
	d := device(t)
	core.Tidy(func() {
		good := core.FromSlice([]float32{2, 1, 1, 3}, 1, 2, 2)
		bad := func(v ...float32) *core.Tensor {
			return op.ToDevice(op.Cat([]*core.Tensor{good, core.FromSlice(v, 1, 2, 2)}, 0), d)
		}
		nan := float32(math.NaN())
		for _, c := range []struct {
			result *core.Tensor
			want   string
		}{
			{op.Inv(bad(1, 2, 2, 4)), "matrix 1 is singular"},
			{op.Cholesky(bad(1, 2, 2, 1), false), "matrix 1 is not positive definite"},
			{func() *core.Tensor { w, _ := op.Eigh(bad(1, nan, nan, 1)); return w }(), "no convergence for matrix 1"},
			{func() *core.Tensor { _, s, _ := op.SVD(bad(1, nan, 0, 1)); return s }(), "no convergence for matrix 1"},
			{op.SolveTriangular(bad(1, 0, 1, 0), op.ToDevice(op.Ones(2, 2, 1), d), false, false), "matrix 1 is singular"},
		} {
			_, err := c.result.Bytes()
			require.ErrorContains(t, err, c.want)
			_ = d.Synchronize() // says it once more
		}
	})
}
