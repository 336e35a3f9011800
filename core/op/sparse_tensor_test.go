package op_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// entries returns the matrix [0 0 3; 4 0 5] with the last entry as two, in no order.
func entries(values *core.Tensor) *core.Tensor {
	return op.SparseCOO(op.Reshape(core.FromSlice([]int64{1, 0, 1, 1, 2, 2, 0, 2}), 2, 4), values, []int{2, 3})
}

func TestSparseTensorsBecomeDenseOnes(t *testing.T) {
	v := vector64(2, 3, 4, 3).SetRequiresGrad(true)
	s := entries(v)
	require.NoError(t, s.Err())
	require.True(t, s.IsSparse() && s.RequiresGrad() && !s.IsLeaf())
	require.Equal(t, []int{2, 3}, s.Shape())
	requireNear(t, op.ToDense(s), 0, 0, 3, 4, 0, 5)
	c := op.Coalesce(s)
	requireNear(t, op.SparseValues(c), 3, 4, 5)
	requireNear(t, op.SparseIndices(c), 0, 1, 1, 2, 0, 2)
	r := op.ToSparseCSR(s)
	crow, col := op.SparseRows(r)
	requireNear(t, crow, 0, 1, 3)
	requireNear(t, col, 2, 0, 2)
	for _, x := range []*core.Tensor{s, c, r} {
		v.SetGrad(nil)
		require.NoError(t, autograd.Backward(op.Sum(op.Mul(op.ToDense(x), op.Reshape(vector64(1, 2, 3, 4, 5, 6), 2, 3)), nil, false)))
		requireNear(t, v.Grad(), 6, 3, 4, 6)
	}
	back := op.ToSparse(op.Reshape(vector64(0, 0, 3, 4, 0, 5), 2, 3), -1)
	requireNear(t, op.SparseIndices(back), 0, 1, 1, 2, 0, 2)
	requireNear(t, op.SparseValues(back), 3, 4, 5)
}

func TestProductsOfSparseMatrices(t *testing.T) {
	x := op.Reshape(vector64(1, 2, 3, 4, 5, 6), 3, 2).Detach().SetRequiresGrad(true)
	for name, make := range map[string]func(*core.Tensor) *core.Tensor{
		"coo": entries, "coalesced": func(v *core.Tensor) *core.Tensor { return op.Coalesce(entries(v)) },
		"csr": func(v *core.Tensor) *core.Tensor { return op.ToSparseCSR(entries(v)) },
	} {
		t.Run(name, func(t *testing.T) {
			v := vector64(2, 3, 4, 3).SetRequiresGrad(true)
			s := make(v)
			y := op.MatMul(s, x)
			requireNear(t, y, 15, 18, 29, 38)
			x.SetGrad(nil)
			require.NoError(t, autograd.Backward(op.Sum(y, nil, false)))
			requireNear(t, x.Grad(), 4, 4, 0, 0, 8, 8)
			requireNear(t, v.Grad(), 11, 11, 3, 11)
			requireNear(t, op.MatMul(s, vector64(1, 1, 1)), 3, 9)
			requireNear(t, op.MM(op.TransposeMatrix(x), op.TransposeMatrix(op.ToDense(s))), 15, 29, 18, 38)
			requireNear(t, op.MM(op.Reshape(vector64(1, 2), 1, 2), s), 8, 0, 13)
			requireNear(t, op.AddMM(op.To(op.Ones(2, 2), core.Float64), s, x, 2, 3), 47, 56, 89, 116)
			square := op.MM(s, op.TransposeMatrix(op.ToSparse(s, -1)))
			require.True(t, square.IsSparse())
			requireNear(t, op.ToDense(square), 9, 15, 15, 41)
		})
	}
	v := vector64(2, 3, 4, 3).SetRequiresGrad(true)
	requireNear(t, op.MM(op.TransposeMatrix(entries(v)), op.Reshape(vector64(1, 2, 3, 4), 2, 2)), 12, 16, 0, 0, 18, 26)
	f := func(in []*core.Tensor) []*core.Tensor {
		s := entries(in[0])
		return []*core.Tensor{op.MatMul(s, in[1]), op.ToDense(op.MM(s, op.TransposeMatrix(s))), op.MM(op.TransposeMatrix(s), op.MatMul(s, in[1])),
			op.ToDense(op.Softmax(s, 1)), op.ToDense(op.LogSoftmax(s, 0)), op.ToDense(op.Sum(s, []int{1}, false)), op.ToDense(op.Mul(s, in[2])),
			op.ToDense(op.Square(s)), op.ToDense(op.Add(s, op.Coalesce(s))), op.Sub(in[2], s), op.ToDense(op.IndexSelect(s, 0, core.FromSlice([]int64{1, 1, 0}))),
			op.BMM(op.Stack([]*core.Tensor{s, op.Neg(s), op.Coalesce(s)}, 0), op.Stack([]*core.Tensor{in[1], in[1], in[1]}, 0))}
	}
	in := []*core.Tensor{v, x, op.Reshape(vector64(1, 2, 3, 4, 5, 6), 2, 3).Detach().SetRequiresGrad(true)}
	if coretest.Race {
		return
	}
	require.NoError(t, autograd.Check(f, in, 1e-6, 1e-6, 1e-5))
	require.NoError(t, autograd.CheckDouble(f, in, 1e-6, 1e-5, 1e-4))
}

func TestAGradientOfASparseLeafIsSparse(t *testing.T) {
	s := entries(vector64(2, 3, 4, 3)).SetRequiresGrad(true)
	require.NoError(t, s.Err())
	require.True(t, s.IsLeaf())
	for range 2 {
		require.NoError(t, autograd.Backward(op.Sum(op.MatMul(s, op.Reshape(vector64(1, 2, 3, 4, 5, 6), 3, 2)), nil, false)))
	}
	require.True(t, s.Grad().IsSparse())
	requireNear(t, op.SparseValues(s.Grad()), 22, 22, 6, 22)
}

func TestSparseTensorsRefuseWhatTheyDoNotKnow(t *testing.T) {
	s := entries(vector64(2, 3, 4, 3))
	require.ErrorContains(t, op.Exp(s).Err(), "exp: not defined for sparse tensors; to_dense()")
	require.ErrorContains(t, op.Add(s, core.Num(1)).Err(), "leaves no zeros")
	require.ErrorContains(t, op.SqrtInPlace(s).Err(), "coalesce()")
	require.ErrorContains(t, op.TransposeMatrix(op.ToSparseCSR(s)).Err(), "compressed columns")
	_, err := core.Values[float64](s)
	require.ErrorContains(t, err, "to_dense()")
	ints := func(v ...int64) *core.Tensor { return op.Reshape(core.FromSlice(v), 2, len(v)/2) }
	one := vector64(1)
	require.ErrorContains(t, op.SparseCOO(ints(0, 3), one, []int{2, 3}).Err(), "size is inconsistent with indices: for dim 1, size is 3 but found index 3")
	require.ErrorContains(t, op.SparseCOO(ints(0, -1), one, []int{2, 3}).Err(), "found negative index -1 for dim 1")
	require.ErrorContains(t, op.SparseCOO(ints(0, 1), vector64(1, 2), nil).Err(), "same nnz")
	require.ErrorContains(t, op.SparseCOO(ints(0, 1), one, []int{2}).Err(), "'len(size) == sparse_dim + dense_dim'")
	csr := func(crow, col []int64, v *core.Tensor) error {
		return op.SparseCSR(core.FromSlice(crow), core.FromSlice(col), v, []int{2, 2}).Err()
	}
	require.NoError(t, csr([]int64{0, 1, 2}, []int64{0, 1}, vector64(1, 2)))
	require.ErrorContains(t, csr([]int64{0, 2, 1}, []int64{0}, one), "row 1 is from 2 to 1")
	require.ErrorContains(t, csr([]int64{0, 1, 3}, []int64{0, 1}, vector64(1, 2)), "`crow_indices[..., -1] == nnz`")
	require.ErrorContains(t, csr([]int64{0, 1, 2}, []int64{0, 2}, vector64(1, 2)), "column 2 of 2")
	require.ErrorContains(t, csr([]int64{0, 1}, []int64{0}, one), "number of rows + 1")
}

func TestSparseTensorsAreCopied(t *testing.T) {
	s := entries(vector64(2, 3, 4, 3))
	other := op.SparseCOO(op.Reshape(core.FromSlice([]int64{0, 1}), 2, 1), vector64(7), []int{2, 3})
	require.NoError(t, op.CopyInPlace(s, other).Err())
	requireNear(t, op.ToDense(s), 0, 7, 0, 0, 0, 0)
	require.NoError(t, op.CopyInPlace(s, op.MulInPlace(op.Clone(other), core.Num(2))).Err())
	requireNear(t, op.ToDense(s), 0, 14, 0, 0, 0, 0)
	requireNear(t, op.ToDense(other), 0, 7, 0, 0, 0, 0)
	x := op.To(op.Ones(2, 3), core.Float64)
	require.NoError(t, op.CopyInPlace(x, s).Err())
	requireNear(t, x, 0, 14, 0, 0, 0, 0)
	require.ErrorContains(t, op.CopyInPlace(s, x).Err(), "takes the entries of another one")
	core.Tidy(func() { require.NoError(t, op.CopyInPlace(s, entries(vector64(2, 3, 4, 3))).Err()) })
	requireNear(t, op.ToDense(s), 0, 0, 3, 4, 0, 5)
}
