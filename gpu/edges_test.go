package gpu_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/gpu/shader"
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

// Rows that are read as vec4, held in registers or not, and rows that cannot be.
func TestRowsOfAllLengthsAgree(t *testing.T) {
	for _, n := range []int{5, 64, 68, 516, 1028, 2052, 2053} {
		core.Tidy(func() {
			rows := 3
			if n < 600 {
				rows = 37
			}
			x, w, b := op.Randn(rows, n).SetRequiresGrad(true), op.Randn(n).SetRequiresGrad(true), op.Randn(n).SetRequiresGrad(true)
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

// Rows with NaN, infinities, nothing but minus infinity, and values so far below the largest that they vanish.
func TestSoftmaxOfExtremesAgrees(t *testing.T) {
	inf := math.Inf(1)
	for _, n := range []int{12, 13, 2052} {
		core.Tidy(func() {
			var v []float32
			for _, odd := range []float64{1, math.NaN(), inf, -inf, 3e38, -3e38, -104, -88} {
				for i := range n {
					x := float64(i%7) - 3
					if i%5 == 3 {
						x = odd
					}
					v = append(v, float32(x))
				}
			}
			for range n {
				v = append(v, float32(-inf))
			}
			x := core.FromSlice(v, len(v)/n, n)
			same(t, 2e-5, func(x ...*core.Tensor) []*core.Tensor {
				classes := op.ToDevice(core.FromSlice([]int64{0, 1, 2, 3, 4, 5, 3, 8, 9}), x[0].Device())
				out := []*core.Tensor{op.Softmax(x[0], -1), op.LogSoftmax(x[0], -1), op.Softmax(op.Transpose(x[0], 0, 1), 0)}
				v := x[0].Detach().SetRequiresGrad(true)
				loss := op.CrossEntropy(v, classes, op.CrossEntropyOptions{Reduction: "none"})
				g, err := autograd.Grad([]*core.Tensor{op.Sum(loss, nil, false)}, []*core.Tensor{v}, nil, autograd.Options{})
				require.NoError(t, err)
				return append(out, loss, g[0])
			}, x)
		})
	}
}

// Scores whose rows begin at any place, and gradients of which several workgroups write pieces, with what vec4 leave at both ends.
func TestCrossEntropyOfAllLengthsAgrees(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 66, 1025, 1027, 4100, 9001} {
		core.Tidy(func() {
			x, weight := op.Randn(7, n).SetRequiresGrad(true), op.Rand(n)
			last := int64(n - 1)
			classes := core.FromSlice([]int64{0, last, last / 2, -100, last / 3, min(2, last), max(0, last-2)})
			for _, shifted := range []bool{false, true} {
				same(t, 2e-5, func(x ...*core.Tensor) []*core.Tensor {
					v := x[0]
					if shifted {
						v = unaligned(v)
					}
					var out []*core.Tensor
					for _, o := range []op.CrossEntropyOptions{{}, {Weight: x[1]}, {Weight: x[1], LabelSmoothing: 0.1}} {
						o.Reduction = "none"
						out = append(out, slopes(t, op.CrossEntropy(v, x[2], o), x[0])...)
					}
					return out
				}, x, weight, classes)
			}
		})
	}
}

// What indices choose, copied as vec4 where it lies so, and where its length, its place or a stride is no multiple of four.
func TestRowsAtIndicesAgree(t *testing.T) {
	index := core.FromSlice([]int64{4, 0, 2, 4, 1, 3}, 2, 3)
	line := op.Reshape(index, -1)
	for _, n := range []int{4, 6, 13, 1032} {
		core.Tidy(func() {
			same(t, 0, func(x ...*core.Tensor) []*core.Tensor {
				var out []*core.Tensor
				for _, v := range []*core.Tensor{x[0], unaligned(x[0]), op.Slice(x[0], 2, 1, n, 1), op.Slice(x[0], 2, 0, n/4*4, 1), op.Slice(x[0], 2, 0, n-1, 1), op.Slice(x[0], 2, 0, n, 2), op.Transpose(x[0], 1, 2)} {
					few := op.Remainder(x[2], core.IntNum(int64(v.Size(1))))
					out = append(out, op.IndexTensors(v, []*core.Tensor{x[1]}), op.IndexTensors(v, []*core.Tensor{x[2], few}),
						op.IndexSelect(v, 0, x[2]), op.IndexSelect(v, 1, few), op.IndexSelect(v, 2, op.ZerosLike(x[2], op.TensorOptions{})),
						op.IndexSelect(op.Select(v, 1, 0), 0, op.Slice(x[2], 0, 0, 1, 1)))
				}
				return append(out, op.Embedding(x[1], op.Select(x[0], 1, 1), op.EmbeddingOptions{}))
			}, op.Randn(5, 4, n), index, line)
		})
	}
}

// Reductions of elements that are read as vec4 and of ones that cannot be, with and without pieces; and of columns.
func TestReductionsByFoursAgree(t *testing.T) {
	for _, shape := range [][]int{{4096, 36}, {4096, 37}, {3, 20_000}, {3, 20_001}, {2, 50, 8}, {70, 12, 20}} {
		core.Tidy(func() {
			x := op.Randn(shape...)
			for _, shifted := range []bool{false, true} {
				same(t, 1e-5, func(x ...*core.Tensor) []*core.Tensor {
					v := x[0]
					if shifted {
						v = unaligned(v)
					}
					var out []*core.Tensor
					for _, dims := range [][]int{nil, {0}, {-1}, {0, len(shape) - 1}} {
						out = append(out, op.Mean(v, dims, false), op.Var(v, dims, 1, true), op.Amin(v, dims, false), op.LogSumExp(v, dims, false))
					}
					largest, where := op.Max(v, 0, false)
					return append(out, largest, where, op.ArgMin(v, nil, false), op.Sum(op.Transpose(v, 0, 1), []int{1}, false))
				}, x)
			}
		})
	}
}

// Reductions of columns that workgroups share a few of each, in one dispatch.
func TestReductionsOfSharedColumnsAgree(t *testing.T) {
	d := device(t)
	for _, side := range []int{2, 4, 8} {
		defer gpu.Tune(device(t), func(f *shader.Tuning) { f.ColumnVectors, f.ColumnGroups = side, 1 })()
		for _, shape := range [][]int{{4096 + 3, 32}, {2100, 2, 64}, {45, 50, 96}} {
			core.Tidy(func() {
				x := op.Randn(shape...)
				same(t, 1e-5, func(x ...*core.Tensor) []*core.Tensor {
					var out []*core.Tensor
					for _, dims := range [][]int{{0}, {0, 1}, {1}} {
						out = append(out, op.Mean(x[0], dims, false), op.Var(x[0], dims, 1, true), op.Amin(x[0], dims, false), op.LogSumExp(x[0], dims, true))
					}
					largest, where := op.Max(x[0], 0, false)
					return append(out, largest, where, op.Sum(op.Transpose(x[0], 0, len(shape)-1), []int{len(shape) - 1}, false))
				}, x)
				there := op.ToDevice(x, d)
				require.NoError(t, d.Synchronize())
				before := d.Traffic().Dispatches
				op.Sum(there, []int{0}, false)
				require.NoError(t, d.Synchronize())
				require.Equal(t, 1, d.Traffic().Dispatches-before)
			})
		}
	}
}

// A batch of no samples has no output, and moves no statistics.
func TestBatchNormOfNothing(t *testing.T) {
	core.Tidy(func() {
		mean, variance := core.FromSlice([]float32{1, 2, 3}), core.FromSlice([]float32{4, 5, 6})
		exactly(t, func(x ...*core.Tensor) []*core.Tensor {
			y := op.BatchNorm(x[0], x[1], x[2], nil, nil, true, 0.25, 1e-5)
			return []*core.Tensor{y, op.Sum(y, []int{0}, false), x[1], x[2]}
		}, op.Zeros(0, 3), mean, variance)
	})
}

// Transposing copies as vec4 and one by one, over the edges of squares and in stacks.
func TestTransposesAgree(t *testing.T) {
	for _, shape := range [][]int{{132, 68}, {65, 200}, {3, 100, 132}, {1100, 24}, {2, 64, 3, 64}} {
		core.Tidy(func() {
			x := op.Randn(shape...)
			exactly(t, func(x ...*core.Tensor) []*core.Tensor {
				return []*core.Tensor{op.Contiguous(op.Transpose(x[0], -1, -2)), op.Contiguous(op.Transpose(x[0], 0, -1)), op.Contiguous(op.Transpose(unaligned(x[0]), 0, 1))}
			}, x)
		})
	}
}

// Attention at sizes past a block, with vectors that 4 does not divide and ones longer than a program takes.
func TestAttentionOfAllSizesAgrees(t *testing.T) {
	for _, c := range []struct {
		queries, keys, dim, valueDim int
		o                            op.AttentionOptions
	}{
		{65, 130, 32, 64, op.AttentionOptions{}},
		{90, 270, 12, 33, op.AttentionOptions{Causal: true, DropoutP: 0.3}},
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

// Loops over several dimensions that go by vec4, with operands that repeat an element, rows or nothing, and ones that cannot.
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

func TestReductionsWithoutResults(t *testing.T) {
	d := device(t)
	core.Tidy(func() {
		x := on(d, 0, 20001)
		for _, y := range []*core.Tensor{op.Sum(x, []int{1}, false), op.Amax(x, []int{1}, true), op.Softmax(x, 1)} {
			require.NoError(t, y.Wait())
			require.Zero(t, y.Numel())
		}
	})
}
