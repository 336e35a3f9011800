package op_test

import (
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/cpu/blas"
	"github.com/plait-ml/plait/core/op"
)

// chooseBLAS sets PLAIT_BLAS for the rest of the test, and reports whether that gives LAPACK.
func chooseBLAS(t *testing.T, setting string) bool {
	t.Helper()
	t.Setenv("PLAIT_BLAS", setting)
	blas.SetPath("")
	lapack, err := blas.Lapack()
	require.NoError(t, err)
	return lapack != nil
}

// eachLinearAlgebra runs a test with LAPACK, where it is found, and without.
func eachLinearAlgebra(t *testing.T, test func(t *testing.T)) {
	setting := os.Getenv("PLAIT_BLAS")
	t.Cleanup(func() { blas.SetPath("") })
	if setting == "none" {
		setting = "openblas"
	}
	for name, choice := range map[string]string{"lapack": setting, "plain": "none"} {
		t.Run(name, func(t *testing.T) {
			if found := chooseBLAS(t, choice); !found && choice != "none" {
				t.Skip("no LAPACK on this machine")
			}
			core.ManualSeed(8)
			test(t)
		})
	}
}

// requireSmall fails unless no element of x exceeds a multiple of the dtype's epsilon.
func requireSmall(t *testing.T, x *core.Tensor, scale float64, what string, args ...any) {
	t.Helper()
	eps := 0x1p-52
	if x.DType() == core.Float32 {
		eps = 0x1p-23
	}
	if x.Numel() == 0 {
		return
	}
	v, err := op.Amax(op.Abs(x), nil, false).Item()
	require.NoError(t, err)
	require.LessOrEqual(t, v, scale*eps, append([]any{what}, args...)...)
}

// TestFactorsOfEverySize checks what a backward stable method gives, for matrices on both sides of the sizes that are left to plain
// loops, and of magnitudes whose squares overflow or vanish.
func TestFactorsOfEverySize(t *testing.T) {
	shapes := [][]int{{1, 1}, {3, 3}, {8, 8}, {9, 9}, {2, 3, 20, 20}, {9, 40}, {40, 9}, {3, 0, 4}, {3, 4, 0}, {0, 5, 5}}
	shapes = shapes[:coretest.Rounds(len(shapes))]
	eachLinearAlgebra(t, func(t *testing.T) {
		for _, dtype := range []core.DType{core.Float32, core.Float64} {
			for _, scale := range []float64{1, 1e30, 1e-30} {
				for _, shape := range shapes {
					core.Tidy(func() { checkFactors(t, dtype, scale, shape) })
				}
			}
		}
	})
}

func checkFactors(t *testing.T, dtype core.DType, scale float64, shape []int) {
	x := op.RandnWith(shape, op.RandomOptions{DType: &dtype})
	m, n := x.Size(-2), x.Size(-1)
	low, tolerance := min(m, n), float64(20+4*max(m, n))
	eye := func(n int) *core.Tensor { return op.Eye(n, n, op.TensorOptions{DType: &dtype}) }
	up, down := core.Num(scale), core.Num(1/scale)
	large := op.Mul(x, up)
	q, r := op.QR(large)
	requireSmall(t, op.Sub(op.MatMul(q, op.Mul(r, down)), x), tolerance, "q r, %v %v %g", dtype, shape, scale)
	requireSmall(t, op.Sub(op.MatMul(flipped(q), q), eye(low)), tolerance, "q'q, %v %v %g", dtype, shape, scale)
	requireSmall(t, op.Tril(op.Mul(r, down), -1), 0, "r, %v %v", dtype, shape)
	u, s, vh := op.SVD(large)
	s = op.Mul(s, down)
	requireSmall(t, op.Sub(op.MatMul(op.Mul(u, op.Unsqueeze(s, -2)), vh), x), tolerance, "u s v, %v %v %g", dtype, shape, scale)
	requireSmall(t, op.Sub(op.MatMul(flipped(u), u), eye(low)), tolerance, "u'u, %v %v %g", dtype, shape, scale)
	requireSmall(t, op.Sub(op.MatMul(vh, flipped(vh)), eye(low)), tolerance, "v'v, %v %v %g", dtype, shape, scale)
	requireSmall(t, op.Sub(op.Mul(op.SVDVals(large), down), s), tolerance, "singular values, %v %v %g", dtype, shape, scale)
	a, tau := op.Geqrf(large)
	requireSmall(t, op.Sub(op.Mul(op.Triu(op.Narrow(a, -2, 0, low), 0), down), op.Mul(r, down)), tolerance, "r of geqrf, %v %v %g", dtype, shape, scale)
	requireSmall(t, op.Sub(op.HouseholderProduct(op.Narrow(a, -1, 0, low), tau), q), tolerance, "q of geqrf, %v %v %g", dtype, shape, scale)
	requireSmall(t, op.Sub(op.Mul(op.Ormqr(a, tau, large, true, true), down), op.Mul(op.Triu(a, 0), down)), tolerance, "ormqr, %v %v %g", dtype, shape, scale)
	if m != n {
		return
	}
	even := op.Mul(op.Add(x, flipped(x)), up)
	for _, triangle := range []string{"", "L", "U"} {
		half := even
		switch triangle {
		case "L":
			half = op.Tril(even, 0)
		case "U":
			half = op.Triu(even, 0)
		}
		w, v := op.Eigh(half, triangle)
		w = op.Mul(w, down)
		requireSmall(t, op.Sub(op.MatMul(op.Mul(v, op.Unsqueeze(w, -2)), flipped(v)), op.Mul(even, down)), 8*tolerance, "eigh, %v %v %g", dtype, shape, scale)
		requireSmall(t, op.Sub(op.MatMul(flipped(v), v), eye(n)), tolerance, "v'v of eigh, %v %v %g", dtype, shape, scale)
		requireSmall(t, op.Sub(op.Mul(op.EigValsH(half, triangle), down), w), 4*tolerance, "eigenvalues, %v %v %g", dtype, shape, scale)
		if scale == 1 {
			positive := op.Add(op.MatMul(x, flipped(x)), eye(n))
			if triangle == "L" {
				half = op.Tril(positive, 0)
			} else if triangle == "U" {
				half = op.Triu(positive, 0)
			} else {
				half = positive
			}
			l := op.Cholesky(half, false, triangle)
			requireSmall(t, op.Sub(op.MatMul(l, flipped(l)), positive), float64(4+n)*tolerance, "cholesky, %v %v", dtype, shape)
		}
	}
	hollow := op.Sub(even, op.DiagEmbed(op.Diagonal(even, 0, -2, -1), 0, -2, -1)) // whose first pivots are of two rows
	for _, a := range []*core.Tensor{even, hollow} {
		if n < 2 {
			break
		}
		ld, pivots, infos := op.LDLFactor(op.Tril(a, 0), false)
		requireSmall(t, op.To(infos, dtype), 0, "infos of ldl, %v %v", dtype, shape)
		back := op.MatMul(a, op.LDLSolve(ld, pivots, x, false))
		requireSmall(t, op.Div(op.Sub(back, x), op.VectorNorm(op.LDLSolve(ld, pivots, op.Mul(x, up), false), math.Inf(1), []int{-2, -1}, op.ReduceOptions{KeepDim: true})), 8*tolerance,
			"ldl, %v %v %g", dtype, shape, scale)
	}
	dominant := op.Add(x, op.Mul(eye(n), core.Num(float64(4+2*n))))
	inverse := op.Inv(op.Mul(dominant, up))
	requireSmall(t, op.Sub(op.MatMul(dominant, op.Mul(inverse, up)), eye(n)), tolerance, "inverse, %v %v %g", dtype, shape, scale)
	requireSmall(t, op.Sub(op.MatMul(dominant, op.Solve(dominant, x)), x), tolerance, "solve, %v %v", dtype, shape)
	requireSmall(t, op.Sub(op.Mul(op.Det(op.Mul(dominant, core.Num(0.5/float64(2+n)))), op.Det(op.Mul(inverse, core.Num(2*float64(2+n)*scale)))), core.Num(1)), 4*tolerance,
		"determinant, %v %v", dtype, shape)
}

// TestMatricesOfAStackAreIndependent checks that the bits of a result depend on its matrix alone.
func TestMatricesOfAStackAreIndependent(t *testing.T) {
	eachLinearAlgebra(t, func(t *testing.T) {
		for _, n := range []int{5, 21} {
			x := op.Randn(60, n, n)
			for name, f := range map[string]func(x *core.Tensor) *core.Tensor{
				"inv": op.Inv, "det": op.Det, "svdvals": op.SVDVals,
				"qr":    func(x *core.Tensor) *core.Tensor { q, _ := op.QR(x); return q },
				"svd":   func(x *core.Tensor) *core.Tensor { u, _, _ := op.SVD(x); return u },
				"eigh":  func(x *core.Tensor) *core.Tensor { _, v := op.Eigh(x, ""); return v },
				"lu":    func(x *core.Tensor) *core.Tensor { lu, _, _ := op.LUFactor(x); return lu },
				"ldl":   func(x *core.Tensor) *core.Tensor { ld, _, _ := op.LDLFactor(x, false); return ld },
				"geqrf": func(x *core.Tensor) *core.Tensor { a, _ := op.Geqrf(x); return a },
			} {
				all := f(x)
				for _, i := range []int{0, 7, 59} {
					want, err := core.Values[float32](f(op.Select(x, 0, i)))
					require.NoError(t, err)
					got, err := core.Values[float32](op.Select(all, 0, i))
					require.NoError(t, err)
					require.Equal(t, want, got, "%s, matrix %d of size %d", name, i, n)
				}
			}
		}
	})
}

func TestUnusableMatricesAreNamed(t *testing.T) {
	eachLinearAlgebra(t, func(t *testing.T) {
		for _, n := range []int{3, 30} {
			bad := func(at, row int, v float64) *core.Tensor {
				x := make([]float64, 4*n*n)
				for i := range 4 * n {
					x[i*n+i%n] = 1
				}
				x[(at*n+row)*n+row] = v
				return op.Reshape(vector64(x...), 4, n, n)
			}
			require.ErrorContains(t, op.Inv(bad(2, 1, 0)).Wait(), "matrix 2 is singular, want one that can be inverted; place 2 on the diagonal is 0")
			require.ErrorContains(t, op.Cholesky(bad(1, 2, -1), false, "L").Wait(), "matrix 1 is not positive definite; its leading minor of order 3 is not positive")
			nan := bad(3, 0, math.NaN())
			require.ErrorContains(t, op.Cholesky(nan, false, "L").Wait(), "leading minor of order 1")
			require.ErrorContains(t, op.SVDVals(nan).Wait(), "no convergence for matrix 3")
			require.ErrorContains(t, op.EigValsH(nan, "U").Wait(), "no convergence for matrix 3")
		}
	})
}

func TestLeastSquaresOfEveryRank(t *testing.T) {
	eachLinearAlgebra(t, func(t *testing.T) {
		for _, shape := range [][3]int{{12, 5, 5}, {12, 5, 3}, {5, 12, 5}, {5, 12, 2}, {6, 6, 0}} {
			a := op.MatMul(randn64(2, shape[0], shape[2]), randn64(2, shape[2], shape[1]))
			b := randn64(shape[0], 3)
			x, ranks := op.LstSq(a, b, 1e-9, false)
			requireSame(t, op.MatMul(op.Pinv(a, 1e-9), b), x)
			got, err := core.Values[int64](ranks)
			require.NoError(t, err)
			require.Equal(t, []int64{int64(shape[2]), int64(shape[2])}, got, "shape %v", shape)
		}
	})
}
