package gpu_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// unaligned returns a tensor of the values of x that begins one element after the start of its memory.
func unaligned(x *core.Tensor) *core.Tensor {
	shape := append([]int{}, x.Shape()...)
	flat := op.Cat([]*core.Tensor{op.Slice(op.Reshape(x, -1), 0, 0, 1, 1), op.Reshape(x, -1)}, 0)
	return op.Reshape(op.Slice(flat, 0, 1, x.Numel()+1, 1), shape...)
}

func slopes(t *testing.T, y *core.Tensor, x ...*core.Tensor) []*core.Tensor {
	g, err := autograd.Grad([]*core.Tensor{op.Sum(op.Mul(y, y), nil, false)}, x, nil, autograd.Options{})
	require.NoError(t, err)
	return append(g, y)
}

// Rows that are read by fours, held in registers or not, and rows that cannot be.
func TestRowsOfAllLengthsAgree(t *testing.T) {
	for _, n := range []int{5, 64, 68, 516, 1028, 2052, 2053} {
		core.Tidy(func() {
			x, w, b := op.Randn(3, n).SetRequiresGrad(true), op.Randn(n).SetRequiresGrad(true), op.Randn(n).SetRequiresGrad(true)
			for _, shifted := range []bool{false, true} {
				same(t, 2e-5, func(x ...*core.Tensor) []*core.Tensor {
					v := x[0]
					if shifted {
						v = unaligned(v)
					}
					out := slopes(t, op.Softmax(v, -1), x[0])
					out = append(out, slopes(t, op.LogSoftmax(v, -1), x[0])...)
					out = append(out, slopes(t, op.LayerNorm(v, []int{n}, x[1], x[2], 1e-5), x...)...)
					return append(out, op.Sum(v, []int{1}, false), op.Amax(v, []int{1}, false), op.Sum(v, []int{0}, false), op.Mean(v, nil, false))
				}, x, w, b)
			}
		})
	}
}

// Attention at sizes past a block, with vectors that fours do not divide and ones longer than a program takes.
func TestAttentionOfAllSizesAgrees(t *testing.T) {
	for _, c := range []struct {
		queries, keys, dim, valueDim int
		o                            op.AttentionOptions
	}{
		{65, 130, 20, 20, op.AttentionOptions{}},
		{130, 65, 8, 72, op.AttentionOptions{Causal: true}},
		{70, 70, 7, 130, op.AttentionOptions{Causal: true}},
		{3, 67, 132, 6, op.AttentionOptions{DropoutP: 0.3}},
	} {
		t.Run(fmt.Sprint(c.queries, c.keys, c.dim, c.valueDim), func(t *testing.T) {
			core.Tidy(func() {
				q, k, v := op.Randn(2, 2, c.queries, c.dim), op.Randn(2, 1, c.keys, c.dim), op.Randn(2, 1, c.keys, c.valueDim)
				for _, x := range []*core.Tensor{q, k, v} {
					x.SetRequiresGrad(true)
				}
				c.o.EnableGQA = true
				same(t, 1e-5, func(x ...*core.Tensor) []*core.Tensor {
					core.ManualSeed(3)
					return slopes(t, op.ScaledDotProductAttention(x[0], x[1], unaligned(x[2]), c.o), x...)
				}, q, k, v)
			})
		})
	}
}

// Loops over several dimensions that go by fours, with operands that repeat an element, rows or nothing, and ones that cannot.
func TestLoopsOverDimensionsAgree(t *testing.T) {
	core.Tidy(func() {
		x, row, column := op.Randn(5, 7, 12), op.Randn(12), op.Randn(5, 1, 1)
		half := core.Float16
		same(t, 2e-3, func(x ...*core.Tensor) []*core.Tensor {
			part := op.Slice(x[0], 2, 4, 12, 1)
			return []*core.Tensor{
				op.Add(x[0], x[1]), op.Mul(x[0], x[2]), op.Sub(part, op.Slice(x[1], 0, 4, 12, 1)), op.Mul(part, core.Num(3)), op.Exp(op.Slice(x[0], 2, 1, 9, 1)),
				op.To(op.Add(op.To(part, half), op.To(x[2], half)), core.Float32), op.Where(op.Gt(part, x[2]), part, core.Num(0)),
				op.Add(op.To(part, core.Int64), op.To(x[2], core.Int64)), op.Clone(op.Slice(x[0], 0, 1, 5, 2)),
			}
		}, x, row, column)
	})
}
