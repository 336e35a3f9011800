package gpu_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

func transposed(x *core.Tensor) *core.Tensor { return op.Transpose(x, -1, -2) }

// near requires that two tensors on the GPU differ by at most a tolerance.
func near(t *testing.T, want, got *core.Tensor, most float64, what string) {
	t.Helper()
	v := value(t, op.Amax(op.Abs(op.Sub(want, got)), nil, false))
	require.LessOrEqual(t, v, most, what)
}

// sweeps is about how often Jacobi's rotations go over a matrix.
const sweeps = 8

// requireBackwardStable requires that got equals the product of factors up to the error of a backward stable method that changes
// each element n times: n roundings of the product of their absolute values.
func requireBackwardStable(t *testing.T, n int, got *core.Tensor, what string, factors ...*core.Tensor) {
	t.Helper()
	product, size := factors[0], op.Abs(factors[0])
	for _, f := range factors[1:] {
		product, size = op.MatMul(product, f), op.MatMul(size, op.Abs(f))
	}
	near(t, got, product, float64(n)*0x1p-23*value(t, op.Amax(size, nil, false)), what)
}

func identity(t *testing.T, n int) *core.Tensor {
	return op.Eye(n, n, op.TensorOptions{Device: device(t)})
}

// TestDecompositions checks that the product of the factors is the matrix, for batches and for matrices larger than a workgroup
// or a dispatch.
func TestDecompositions(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	core.ManualSeed(1)
	for _, shape := range [][]int{{3, 1, 1}, {2, 5, 3}, {2, 3, 7}, {70, 33}, {40, 65}} {
		core.Tidy(func() {
			x := op.ToDevice(op.Randn(shape...), d)
			m, n := x.Size(-2), x.Size(-1)
			q, r := op.QR(x)
			requireBackwardStable(t, max(m, n), x, "q r", q, r)
			near(t, identity(t, min(m, n)), op.MatMul(transposed(q), q), 1e-5, "q'q")
			near(t, op.Triu(r, 0), r, 0, "r is a triangle")
			u, s, v := op.SVD(x)
			requireBackwardStable(t, sweeps*max(m, n), x, "u s v", op.Mul(u, op.Unsqueeze(s, -2)), v)
			requireBackwardStable(t, sweeps*max(m, n), identity(t, min(m, n)), "u'u", transposed(u), u) // each rotation has one rounding error
			requireBackwardStable(t, sweeps*max(m, n), identity(t, min(m, n)), "v v'", v, transposed(v))
			_, want, _ := op.SVD(op.ToDevice(x, cpuDevice(t)))
			near(t, op.ToDevice(want, d), s, 1e-4, "singular values")
		})
	}
	core.Tidy(func() {
		x := op.ToDevice(op.Randn(2, 60, 60), d)
		x = op.Add(x, transposed(x))
		w, v := op.Eigh(x, "")
		requireBackwardStable(t, sweeps*60, x, "v w v'", op.Mul(v, op.Unsqueeze(w, -2)), transposed(v))
		requireBackwardStable(t, sweeps*60, identity(t, 60), "v'v", transposed(v), v)
		positive := op.Add(op.MatMul(x, x), identity(t, 60))
		l := op.Cholesky(positive, false, "")
		requireBackwardStable(t, 60, positive, "l l'", l, transposed(l))
	})
	core.Tidy(func() {
		x := op.Add(op.ToDevice(op.Randn(150, 150), d), op.Mul(identity(t, 150), core.Num(12)))
		b := op.ToDevice(op.Randn(150, 90), d)
		requireBackwardStable(t, 150, b, "a x", x, op.Solve(x, b))
		requireBackwardStable(t, 150, identity(t, 150), "a times its inverse", x, op.Inv(x))
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

// TestSVDOfLowRank checks that a matrix of low rank has singular values of 0 and orthogonal singular vectors.
func TestSVDOfLowRank(t *testing.T) {
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

func TestLinalgErrors(t *testing.T) {
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
			{op.Cholesky(bad(1, 2, 2, 1), false, ""), "matrix 1 is not positive definite"},
			{func() *core.Tensor { w, _ := op.Eigh(bad(1, nan, nan, 1), ""); return w }(), "no convergence for matrix 1"},
			{func() *core.Tensor { _, s, _ := op.SVD(bad(1, nan, 0, 1)); return s }(), "no convergence for matrix 1"},
			{op.SolveTriangular(bad(1, 0, 1, 0), op.ToDevice(op.Ones(2, 2, 1), d), false, false), "matrix 1 is singular"},
		} {
			_, err := c.result.Bytes()
			require.ErrorContains(t, err, c.want)
			_ = d.Synchronize() // reports the error again
		}
	})
}
