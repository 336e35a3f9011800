package op_test

import (
	"math"
	"slices"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

// Small matrices of a stack are factorised several at once, whatever the stack's size.
func TestStacksOfSmallMatrices(t *testing.T) {
	eachLinearAlgebra(t, func(t *testing.T) {
		core.ManualSeed(5)
		for _, d := range []core.DType{core.Float64, core.Float32} {
			for _, n := range []int{1, 2, 3, 5, 7, 8, 9} {
				for _, batch := range []int{1, 16, 37} {
					x := op.To(randn64(batch, n, n), d)
					eye := op.To(identity(n), d)
					positive := op.Add(op.MatMul(x, flipped(x)), eye)
					l := op.Cholesky(positive, false, "")
					requireSmall(t, op.Sub(op.MatMul(l, flipped(l)), positive), float64(8*n*n), "cholesky, %v %d %d", d, batch, n)
					requireSmall(t, op.Triu(l, 1), 0, "upper triangle, %v %d %d", d, batch, n)

					low := op.Narrow(x, -1, 0, (n+1)/2)
					for i, a := range []*core.Tensor{op.Add(x, flipped(x)), op.MatMul(low, flipped(low)), op.Mul(eye, op.Trunc(op.Mul(x, core.Num(2)))), op.ZerosLike(x, op.TensorOptions{})} {
						largest, err := op.Amax(op.Abs(a), nil, false).Item()
						require.NoError(t, err)
						w, v := op.Eigh(a, "")
						requireSmall(t, op.Sub(op.MatMul(op.Mul(v, op.Unsqueeze(w, -2)), flipped(v)), a), 8*float64(n+1)*(largest+1), "eigh of %d, %v %d %d", i, d, batch, n)
						requireSmall(t, op.Sub(op.MatMul(flipped(v), v), eye), float64(4*n+8), "v'v of %d, %v %d %d", i, d, batch, n)
						requireSmall(t, op.Sub(op.EigValsH(a, ""), w), 8*float64(n+1)*(largest+1), "eigenvalues of %d, %v %d %d", i, d, batch, n)
						require.True(t, slices.IsSorted(values(t, op.Select(w, 0, batch-1))))
					}
				}
			}
		}
	})
}

// Squares of these elements are no numbers, or 0.
func TestEigenvaluesOfExtremeMatrices(t *testing.T) {
	eachLinearAlgebra(t, func(t *testing.T) {
		a := vector64(1, 0.25, 0.125, 0.25, -1, 0.5, 0.125, 0.5, 0.75)
		want := values(t, op.EigValsH(op.Reshape(a, 3, 3), ""))
		for _, c := range []struct {
			dtype core.DType
			scale int
			error float64
		}{{core.Float64, 1023, 1e-14}, {core.Float64, 1000, 1e-14}, {core.Float64, -1020, 1e-14}, {core.Float64, -1060, 1e-3},
			{core.Float32, 127, 1e-6}, {core.Float32, 100, 1e-6}, {core.Float32, -120, 1e-6}, {core.Float32, -140, 1e-2}} {
			x := op.To(op.Mul(a, core.Num(math.Ldexp(1, c.scale))), c.dtype)
			w, v := op.Eigh(op.Reshape(x, 3, 3), "L")
			for i, got := range values(t, op.To(w, core.Float64)) {
				require.InDelta(t, want[i], math.Ldexp(got, -c.scale), c.error, "%v times 2^%d", c.dtype, c.scale)
			}
			requireSmall(t, op.Sub(op.MatMul(flipped(v), v), op.To(identity(3), c.dtype)), 40, "v'v, %v times 2^%d", c.dtype, c.scale)
		}
	})
}

func TestMatricesOfAStackFailAlone(t *testing.T) {
	eachLinearAlgebra(t, func(t *testing.T) {
		const batch, n = 40, 5
		x := make([]float64, batch*n*n)
		for i := range batch * n {
			x[i*n+i%n] = float64(i%n + 1)
		}
		x[(17*n+2)*n+2] = -1
		x[(33*n+4)*n+4] = math.NaN()
		stack := op.Reshape(vector64(x...), batch, n, n)
		l, infos := op.CholeskyInfo(stack, false, "")
		want := make([]int32, batch)
		want[17], want[33] = 3, 5
		require.Equal(t, want, int32s(t, infos))
		for _, i := range []int{0, 16, 18, 32, 39} {
			one := op.Select(l, 0, i)
			requireSame(t, op.Select(stack, 0, i), op.MatMul(one, flipped(one)))
		}
		require.ErrorContains(t, op.Cholesky(stack, false, "").Wait(), "matrix 17 is not positive definite; its leading minor of order 3 is not positive")
		require.ErrorContains(t, op.EigValsH(stack, "").Wait(), "no convergence for matrix 33")
	})
}
