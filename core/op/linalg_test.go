package op_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

func randn64(shape ...int) *core.Tensor {
	return op.RandnWith(shape, op.RandomOptions{DType: new(core.Float64)})
}

// requireSame fails unless two tensors agree to 1e-9.
func requireSame(t *testing.T, want, got *core.Tensor) {
	t.Helper()
	w, err := core.Values[float64](want)
	require.NoError(t, err)
	require.Equal(t, want.Shape(), got.Shape())
	requireNear(t, got, w...)
}

func identity(n int) *core.Tensor {
	d := core.Float64
	return op.Eye(n, n, op.TensorOptions{DType: &d})
}

func flipped(x *core.Tensor) *core.Tensor { return op.Transpose(x, -1, -2) }

func TestDecompositionsGiveTheirMatricesBack(t *testing.T) {
	core.ManualSeed(3)
	low := op.MatMul(randn64(9, 2), randn64(2, 6)) // of rank 2
	for _, x := range []*core.Tensor{randn64(1, 1), randn64(7, 7), randn64(40, 13), randn64(5, 31), low, flipped(low), op.Zeros(3, 2), op.Mul(randn64(6, 4), core.Num(1e-12))} {
		x = op.To(x, core.Float64)
		k := min(x.Size(0), x.Size(1))
		q, r := op.QR(x)
		requireSame(t, x, op.MatMul(q, r))
		requireSame(t, identity(k), op.MatMul(flipped(q), q))
		requireSame(t, r, op.Triu(r, 0))
		u, s, vh := op.SVD(x)
		requireSame(t, x, op.MatMul(op.Mul(u, s), vh))
		requireSame(t, identity(k), op.MatMul(flipped(u), u))
		requireSame(t, identity(k), op.MatMul(vh, flipped(vh)))
		sorted, _ := op.Sort(s, 0, op.SortOptions{Descending: true})
		requireSame(t, sorted, s)
		requireSame(t, x, op.MatMul(op.MatMul(x, op.Pinv(x, -1)), x))
	}
	x := randn64(3, 20, 20)
	x = op.Add(x, flipped(x))
	w, v := op.Eigh(x, "")
	requireSame(t, x, op.MatMul(op.Mul(v, op.Unsqueeze(w, -2)), flipped(v)))
	requireSame(t, op.MSort(flipped(w)), flipped(w))
	positive := op.Add(op.MatMul(x, x), identity(20))
	l := op.Cholesky(positive, false, "")
	requireSame(t, positive, op.MatMul(l, flipped(l)))
	requireSame(t, l, op.Tril(l, 0))
	requireSame(t, flipped(l), op.Cholesky(positive, true, ""))
}

func TestSolutions(t *testing.T) {
	core.ManualSeed(4)
	x := randn64(2, 3, 30, 30)
	requireSame(t, op.Expand(identity(30), 2, 3, 30, 30), op.MatMul(op.Inv(x), x))
	b := randn64(3, 30, 4)
	requireSame(t, op.Expand(b, 2, 3, 30, 4), op.MatMul(x, op.Solve(x, b)))
	lower := op.Tril(op.Add(randn64(5, 5), op.Mul(identity(5), core.Num(5))), 0)
	right := randn64(5, 2)
	requireSame(t, right, op.MatMul(lower, op.SolveTriangular(lower, right, false, false)))
	requireSame(t, right, op.MatMul(flipped(lower), op.SolveTriangular(flipped(lower), right, true, false)))
	requireNear(t, op.Det(op.Reshape(vector64(0, 2, 1, 0, 0, 3, 4, 0, 0), 3, 3)), 24)
	sign, logabs := op.SlogDet(op.Reshape(vector64(-2, 0, 1, 3), 2, 2))
	requireNear(t, sign, -1)
	requireNear(t, logabs, math.Log(6))
	sign, logabs = op.SlogDet(op.Reshape(vector64(1, 2, 2, 4), 2, 2))
	requireNear(t, sign, 0)
	v, err := logabs.Item()
	require.NoError(t, err)
	require.True(t, math.IsInf(v, -1))
	// Least squares: the remainder is orthogonal to the columns.
	m, y := randn64(12, 4), randn64(12, 3)
	least, _ := op.LstSq(m, y, -1, false)
	rest := op.Sub(op.MatMul(m, least), y)
	requireNear(t, op.MatMul(flipped(m), rest), make([]float64, 12)...)
	wide := randn64(4, 9)
	least, _ = op.LstSq(wide, op.Narrow(y, 0, 0, 4), -1, false)
	requireSame(t, op.MatMul(op.Pinv(wide, -1), op.Narrow(y, 0, 0, 4)), least)
}

func TestMatrixNorms(t *testing.T) {
	x := op.Reshape(vector64(3, 0, 0, -4), 2, 2)
	for order, want := range map[string]float64{"fro": 5, "nuc": 7, "1": 4, "-1": 3, "2": 4, "-2": 3, "inf": 4, "-inf": 3} {
		requireNear(t, op.MatrixNorm(x, order), want)
	}
	require.ErrorContains(t, op.MatrixNorm(x, "max").Err(), "unknown norm")
}

func TestLinearAlgebraErrors(t *testing.T) {
	singular := op.Stack([]*core.Tensor{identity(2), op.Reshape(vector64(1, 2, 2, 4), 2, 2)}, 0)
	require.ErrorContains(t, op.Inv(singular).Wait(), "matrix 1 is singular")
	require.ErrorContains(t, op.Solve(singular, op.To(op.Zeros(2, 1), core.Float64)).Wait(), "matrix 1 is singular")
	require.ErrorContains(t, op.Cholesky(op.Neg(identity(2)), false, "").Wait(), "matrix 0 is not positive definite")
	w, _ := op.Eigh(op.Reshape(vector64(math.NaN(), 0, 0, 1), 2, 2), "")
	require.ErrorContains(t, w.Wait(), "NaN")
	require.ErrorContains(t, op.Det(op.Zeros(2, 3)).Err(), "want square matrices")
	half := core.Float16
	require.ErrorContains(t, op.Inv(op.OnesWith([]int{1, 1}, op.TensorOptions{DType: &half})).Err(), "want float32 or float64")
	require.ErrorContains(t, op.Solve(identity(2), op.To(op.Zeros(3, 1), core.Float64)).Err(), "right sides [3 1]")
}

func TestLUFactorsGiveTheirMatricesBack(t *testing.T) {
	core.ManualSeed(4)
	for _, x := range []*core.Tensor{randn64(1, 1), randn64(3, 8, 8), randn64(2, 9, 4), randn64(5, 31), op.To(op.Zeros(2, 3, 3), core.Float64), randn64(0, 3, 3), randn64(2, 0, 3)} {
		lu, pivots, _ := op.LUFactor(x)
		p, l, u := op.LUUnpack(lu, pivots)
		requireSame(t, x, op.MatMul(p, op.MatMul(l, u)))
		requireSame(t, l, op.Tril(l, 0))
		requireSame(t, u, op.Triu(u, 0))
	}
	x, b := randn64(3, 7, 7), randn64(7, 2)
	lu, pivots, infos := op.LUFactor(x)
	requireSame(t, op.Expand(b, 3, 7, 2), op.MatMul(x, op.LUSolve(lu, pivots, b, false)))
	requireSame(t, op.Expand(b, 3, 7, 2), op.MatMul(flipped(x), op.LUSolve(lu, pivots, b, true)))
	require.Equal(t, []int32{0, 0, 0}, int32s(t, infos))
	_, _, infos = op.LUFactor(op.Reshape(vector64(1, 2, 2, 4, 0, 1, 0, 1), 2, 2, 2))
	require.Equal(t, []int32{2, 1}, int32s(t, infos))

	wrong := op.LUSolve(lu, op.Mul(pivots, core.IntNum(9)), b, false)
	_, err := wrong.Bytes()
	require.ErrorContains(t, err, "is not within its 7 rows")
	require.ErrorContains(t, op.LUSolve(lu, op.To(pivots, core.Int64), b, false).Err(), "want pivots of int32 and shape [3 7]")
	require.ErrorContains(t, op.LUSolve(randn64(3, 2), op.To(op.Zeros(2), core.Int32), b, false).Err(), "square")
}

func TestCholeskySaysWhereAMatrixIsNotPositiveDefinite(t *testing.T) {
	x := op.Reshape(vector64(4, 2, 2, 5, 1, 2, 2, 1, -1, 0, 0, 1), 3, 2, 2)
	l, infos := op.CholeskyInfo(x, false, "")
	require.Equal(t, []int32{0, 2, 1}, int32s(t, infos))
	requireNear(t, op.Select(l, 0, 0), 2, 0, 1, 2)
}

func int32s(t *testing.T, x *core.Tensor) []int32 {
	t.Helper()
	v, err := core.Values[int32](x)
	require.NoError(t, err)
	return v
}

// Small matrices are factorised in vectors of their rows. Of equal columns, ever smaller numbers are left to reflect.
func TestSmallQR(t *testing.T) {
	for _, d := range []core.DType{core.Float64, core.Float32} {
		tolerance := map[core.DType]float64{core.Float64: 1e-14, core.Float32: 1e-5}[d]
		for m := 1; m <= 10; m++ {
			for n := 1; n <= 10; n++ {
				x := op.Stack([]*core.Tensor{randn64(m, n), op.Ones(m, n), op.Zeros(m, n), op.Eye(m, n, op.TensorOptions{})}, 0)
				x = op.To(x, d)
				q, r := op.QR(x)
				requireLess := func(want, got *core.Tensor) {
					off, err := op.Amax(op.Abs(op.Sub(want, got)), nil, false).Item()
					require.NoError(t, err)
					require.Less(t, off, tolerance, "%d x %d of %v", m, n, d)
				}
				requireLess(x, op.MatMul(q, r))
				requireLess(op.Expand(op.To(identity(min(m, n)), d), 4, min(m, n), min(m, n)), op.MatMul(flipped(q), q))
				requireLess(op.Triu(r, 0), r)
			}
		}
	}
}
