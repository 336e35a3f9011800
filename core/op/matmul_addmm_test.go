package op_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

func TestAddMMDoesNotReadAnUnusedInput(t *testing.T) {
	nan := float32(math.NaN())
	input := core.FromSlice([]float32{nan, nan}, 2, 1)
	x, y := core.FromSlice([]float32{1, 2}, 2, 1), core.FromSlice([]float32{3}, 1, 1)
	require.Equal(t, []float64{3, 6}, values(t, op.AddMM(input, x, y, 0, 1)))
	require.Equal(t, []float64{3, 6}, values(t, op.AddMMInPlace(input, x, y, 0, 1)))
}

func TestAddMMOfIntegers(t *testing.T) {
	x, y := core.FromSlice([]int32{1, 2, 3, 4}, 2, 2), core.FromSlice([]int32{1, -1}, 2, 1)
	input := core.FromSlice([]int32{5}, 1)
	require.Equal(t, []float64{13, 13}, values(t, op.AddMM(input, x, y, 3, 2)))
}

func TestAddMMInPlaceReadsAFactorBeforeItChanges(t *testing.T) {
	t1 := core.FromSlice([]float64{1, 2, 3, 4}, 2, 2)
	require.NoError(t, op.AddMMInPlace(t1, t1, t1, 1, 1).Err())
	require.Equal(t, []float64{8, 12, 18, 26}, values(t, t1))
	row := op.Select(t1, 0, 0)
	require.NoError(t, op.AddMVInPlace(row, core.FromSlice([]float64{1, 0, 0, 1}, 2, 2), core.FromSlice([]float64{1, 2}, 2), 1, 1).Err())
	require.Equal(t, []float64{9, 14, 18, 26}, values(t, t1))
}

func TestAddMMErrors(t *testing.T) {
	f := func(shape ...int) *core.Tensor { return core.FromSlice(make([]float32, core.Numel(shape)), shape...) }
	i := core.FromSlice([]int64{1}, 1, 1)
	leaf := f(2, 2).SetRequiresGrad(true)
	for want, got := range map[string]*core.Tensor{
		"addmm: input [3] does not broadcast to [2 4]":                                                    op.AddMM(f(3), f(2, 3), f(3, 4), 1, 1),
		"addmm: inner dimensions differ, got [2 3] x [2 4]":                                               op.AddMM(f(4), f(2, 3), f(2, 4), 1, 1),
		"addmm: want two tensors of 2 dimensions, got [2 3 1] x [2 4]":                                    op.AddMM(f(4), f(2, 3, 1), f(2, 4), 1, 1),
		"addmm: beta and alpha must be whole numbers for int64, got 0.5 and 1":                            op.AddMM(i, i, i, 0.5, 1),
		"addmm_: got [1 4] to change, want [2 4]":                                                         op.AddMMInPlace(f(1, 4), f(2, 3), f(3, 4), 1, 1),
		"addmv: input [3] does not broadcast to [2]":                                                      op.AddMV(f(3), f(2, 3), f(3), 1, 1),
		"addmv_: got [1] to change, want [2]":                                                             op.AddMVInPlace(f(1), f(2, 3), f(3), 1, 1),
		"baddbmm: the stacks have different heights, got [2 2 2] x [1 2 2]":                               op.BAddBMM(f(2), f(2, 2, 2), f(1, 2, 2), 1, 1),
		"addbmm: want two stacks of matrices, got [2 2] x [1 2 2]":                                        op.AddBMM(f(2), f(2, 2), f(1, 2, 2), 1, 1),
		"addr: want two vectors, got [2] x [1 2]":                                                         op.AddR(f(2), f(2), f(1, 2), 1, 1),
		"addmm_: a leaf that requires a gradient cannot be changed in place while gradients are recorded": op.AddMMInPlace(leaf, f(2, 2), f(2, 2), 1, 1),
		"outer: want two vectors, got [2] x [1 2]":                                                        op.Outer(f(2), f(1, 2)),
		"inner: last dimensions differ, got [2] x [3]":                                                    op.Inner(f(2), f(3)),
		"tensordot: dimension 1 of [2 3] does not fit dimension 0 of [2]":                                 op.TensorDot(f(2, 3), f(2), []int{1}, []int{0}),
		"tensordot: a dimension appears twice in [0 0] or [0 1]":                                          op.TensorDot(f(2, 2), f(2, 2), []int{0, 0}, []int{0, 1}),
		"trace: want a matrix, got [2]":                                                                   op.Trace(f(2)),
		"matrix_power: want square matrices, got [2 3]":                                                   op.MatrixPower(f(2, 3), 2),
		"matrix_power: got power -1, want at least 0":                                                     op.MatrixPower(f(2, 2), -1),
		"multi_dot: got 1 matrices, want at least 2":                                                      op.MultiDot([]*core.Tensor{f(2, 2)}),
		"multi_dot: inner dimensions differ, got [2 3] x [3 2] x [3 2]":                                   op.MultiDot([]*core.Tensor{f(2, 3), f(3, 2), f(3, 2)}),
		"bilinear: got inputs [2 3] x [2 4], want [*, 3] x [*, 5] for weight [1 3 5]":                     op.Bilinear(f(2, 3), f(2, 4), f(1, 3, 5), nil),
	} {
		require.EqualError(t, got.Err(), want)
	}
}

func TestProductsAgreeWithEinsum(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	f := func(shape ...int) *core.Tensor { return integral(r, core.Float64, shape...) }
	a, b, c := f(3, 4), f(4, 5), f(5, 2)
	x1, x2, w := f(6, 3), f(6, 4), f(2, 3, 4)
	p, q := f(2, 3, 4), f(4, 3, 5)
	v, u := f(4), f(3)
	stack1, stack2 := f(2, 3, 4), f(2, 4, 5)
	square := f(3, 3)
	for name, pair := range map[string][2]*core.Tensor{
		"multi_dot":    {op.MultiDot([]*core.Tensor{a, b, c}), op.Einsum("ij,jk,kl->il", a, b, c)},
		"bilinear":     {op.Bilinear(x1, x2, w, nil), op.Einsum("ni,oij,nj->no", x1, w, x2)},
		"tensordot":    {op.TensorDot(p, q, []int{1, 2}, []int{1, 0}), op.Einsum("aij,jib->ab", p, q)},
		"outer":        {op.Outer(u, v), op.Einsum("i,j->ij", u, v)},
		"trace":        {op.Trace(square), op.Einsum("ii", square)},
		"power":        {op.MatrixPower(square, 3), op.Einsum("ij,jk,kl->il", square, square, square)},
		"addbmm":       {op.AddBMM(core.FromSlice([]float64{0}, 1), stack1, stack2, 1, 1), op.Einsum("bij,bjk->ik", stack1, stack2)},
		"baddbmm":      {op.BAddBMM(core.FromSlice([]float64{0}, 1), stack1, stack2, 1, 1), op.BMM(stack1, stack2)},
		"addr":         {op.AddR(core.FromSlice([]float64{0}, 1), u, v, 1, 2), op.Mul(op.Outer(u, v), core.Num(2))},
		"addmv":        {op.AddMV(core.FromSlice([]float64{1}, 1), a, v, 3, 1), op.Add(op.MV(a, v), core.Num(3))},
		"power 0":      {op.MatrixPower(square, 0), op.Eye(3, 3, op.TensorOptions{})},
		"kron of ones": {op.Kron(op.Ones(1, 1), a), op.To(a, core.Float64)},
	} {
		require.NoError(t, pair[0].Err(), name)
		require.Equal(t, pair[1].Shape(), pair[0].Shape(), name)
		require.Equal(t, values(t, pair[1]), values(t, pair[0]), name)
	}
	require.Equal(t, []float64{3, 4, 6, 8},
		values(t, op.Kron(core.FromSlice([]float64{1, 2}, 2), core.FromSlice([]float64{3, 4}, 2))))
}

// A factor whose gradient nobody wants is not looked at, and the other factor is not kept for it.
func TestOnlyWantedGradientsAreComputed(t *testing.T) {
	for name, product := range map[string]func(x, y *core.Tensor) *core.Tensor{
		"matmul": op.MatMul,
		"linear": func(x, y *core.Tensor) *core.Tensor { return op.Linear(x, y, nil) },
		"addmm":  func(x, y *core.Tensor) *core.Tensor { return op.AddMM(core.FromSlice([]float64{1}, 1), x, y, 1, 1) },
	} {
		x := core.FromSlice([]float64{1, 2, 3, 4}, 2, 2)
		w := core.FromSlice([]float64{5, 6, 7, 8}, 2, 2).SetRequiresGrad(true)
		out := op.Sum(product(x, w), nil, false)
		core.NoGrad(func() { op.ZeroInPlace(w) }) // only x's values are needed
		require.NoError(t, autograd.Backward(out), name)
		require.Nil(t, x.Grad(), name)
		require.NotNil(t, w.Grad(), name)

		out = op.Sum(product(x, w), nil, false)
		op.ZeroInPlace(x)
		require.ErrorContains(t, autograd.Backward(out), "modified", name)
	}
}
