package gpu_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/gpu/shader"
)

// unaligned returns a copy of x that begins one element after the start of its memory, so that kernels cannot read it as vec4.
func unaligned(x *core.Tensor) *core.Tensor {
	shape := append([]int{}, x.Shape()...)
	flat := op.Cat([]*core.Tensor{op.Slice(op.Reshape(x, -1), 0, 0, 1, 1), op.Reshape(x, -1)}, 0)
	return op.Reshape(op.Slice(flat, 0, 1, x.Numel()+1, 1), shape...)
}

func gradientsAndOutput(t *testing.T, y *core.Tensor, x ...*core.Tensor) []*core.Tensor {
	g, err := autograd.Grad([]*core.Tensor{op.Sum(op.Mul(y, y), nil, false)}, x, nil, autograd.Options{})
	require.NoError(t, err)
	return append(g, y)
}

// TestRowLengths checks softmax, norms and reductions on rows that are read as vec4, kept in registers or not, and on rows that
// cannot be read so.
func TestRowLengths(t *testing.T) {
	coretest.SkipUnderRace(t)
	for _, n := range []int{5, 64, 68, 516, 1028, 2052, 2053} {
		core.Tidy(func() {
			rows := 3
			if n < 600 {
				rows = 37
			}
			x, w, b := op.Randn(rows, n).SetRequiresGrad(true), op.Randn(n).SetRequiresGrad(true), op.Randn(n).SetRequiresGrad(true)
			for _, shifted := range []bool{false, true} {
				compareWithCPU(t, 2e-5, func(x ...*core.Tensor) []*core.Tensor {
					v := x[0]
					if shifted {
						v = unaligned(v)
					}
					out := gradientsAndOutput(t, op.Softmax(v, -1), x[0])
					out = append(out, gradientsAndOutput(t, op.LogSoftmax(v, -1), x[0])...)
					out = append(out, gradientsAndOutput(t, op.LayerNorm(v, []int{n}, x[1], x[2], 1e-5), x...)...)
					return append(out, op.Sum(v, []int{1}, false), op.Amax(v, []int{1}, false), op.Sum(v, []int{0}, false), op.Mean(v, nil, false))
				}, x, w, b)
			}
		})
	}
}

// TestSoftmaxOfExtremeValues checks rows with NaN, infinities, only minus infinity, and values far below the largest.
func TestSoftmaxOfExtremeValues(t *testing.T) {
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
			compareWithCPU(t, 2e-5, func(x ...*core.Tensor) []*core.Tensor {
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

// TestCrossEntropyRowLengths checks rows with any alignment, and gradients that several workgroups write in pieces, with elements
// before and after the vec4.
func TestCrossEntropyRowLengths(t *testing.T) {
	coretest.SkipUnderRace(t)
	for _, n := range []int{1, 2, 3, 5, 66, 1025, 1027, 4100, 9001} {
		core.Tidy(func() {
			x, weight := op.Randn(7, n).SetRequiresGrad(true), op.Rand(n)
			last := int64(n - 1)
			classes := core.FromSlice([]int64{0, last, last / 2, -100, last / 3, min(2, last), max(0, last-2)})
			for _, shifted := range []bool{false, true} {
				compareWithCPU(t, 2e-5, func(x ...*core.Tensor) []*core.Tensor {
					v := x[0]
					if shifted {
						v = unaligned(v)
					}
					var out []*core.Tensor
					for _, o := range []op.CrossEntropyOptions{{}, {Weight: x[1]}, {Weight: x[1], LabelSmoothing: 0.1}} {
						o.Reduction = "none"
						out = append(out, gradientsAndOutput(t, op.CrossEntropy(v, x[2], o), x[0])...)
					}
					return out
				}, x, weight, classes)
			}
		})
	}
}

// TestIndexedRows checks indexing that copies vec4, and indexing that cannot because the length, the offset or a stride is no
// multiple of four.
func TestIndexedRows(t *testing.T) {
	index := core.FromSlice([]int64{4, 0, 2, 4, 1, 3}, 2, 3)
	line := op.Reshape(index, -1)
	for _, n := range []int{4, 6, 13, 1032} {
		core.Tidy(func() {
			compareWithCPU(t, 0, func(x ...*core.Tensor) []*core.Tensor {
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

// TestVectorisedReductions checks reductions that read vec4 and ones that cannot, with and without splitting into pieces, along
// rows and columns.
func TestVectorisedReductions(t *testing.T) {
	coretest.SkipUnderRace(t)
	for _, shape := range [][]int{{4096, 36}, {4096, 37}, {3, 20_000}, {3, 20_001}, {2, 50, 8}, {70, 12, 20}} {
		core.Tidy(func() {
			x := op.Randn(shape...)
			for _, shifted := range []bool{false, true} {
				compareWithCPU(t, 1e-5, func(x ...*core.Tensor) []*core.Tensor {
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

// TestColumnReductions checks reductions of columns in one dispatch, in which each workgroup has a few columns.
func TestColumnReductions(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	for _, side := range []int{2, 4, 8} {
		defer gpu.Tune(device(t), func(f *shader.Tuning) { f.ColumnVectors, f.ColumnGroups = side, 1 })()
		for _, shape := range [][]int{{4096 + 3, 32}, {2100, 2, 64}, {45, 50, 96}} {
			core.Tidy(func() {
				x := op.Randn(shape...)
				compareWithCPU(t, 1e-5, func(x ...*core.Tensor) []*core.Tensor {
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

// TestBatchNormOfAnEmptyBatch checks that a batch without samples has an empty output and does not change the running statistics.
func TestBatchNormOfAnEmptyBatch(t *testing.T) {
	core.Tidy(func() {
		mean, variance := core.FromSlice([]float32{1, 2, 3}), core.FromSlice([]float32{4, 5, 6})
		sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
			y := op.BatchNorm(x[0], x[1], x[2], nil, nil, true, 0.25, 1e-5)
			return []*core.Tensor{y, op.Sum(y, []int{0}, false), x[1], x[2]}
		}, op.Zeros(0, 3), mean, variance)
	})
}

// TestTransposes checks transposing copies, as vec4 and element by element, across the edges of tiles and in batches.
func TestTransposes(t *testing.T) {
	coretest.SkipUnderRace(t)
	for _, shape := range [][]int{{132, 68}, {65, 200}, {3, 100, 132}, {1100, 24}, {2, 64, 3, 64}} {
		core.Tidy(func() {
			x := op.Randn(shape...)
			sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
				return []*core.Tensor{op.Contiguous(op.Transpose(x[0], -1, -2)), op.Contiguous(op.Transpose(x[0], 0, -1)), op.Contiguous(op.Transpose(unaligned(x[0]), 0, 1))}
			}, x)
		})
	}
}

// TestJoinedRows checks copies of rows that lie apart to contiguous memory, of lengths that 4 does not divide.
func TestJoinedRows(t *testing.T) {
	coretest.SkipUnderRace(t)
	for _, d := range []core.DType{core.Float32, core.BFloat16, core.Float16} {
		for _, shape := range [][2]int{{8, 5}, {4, 7}, {12, 129}, {1000, 6}, {5, 9}, {64, 1027}} {
			core.Tidy(func() {
				x := op.To(op.Randn(shape[0], shape[1]+3), d)
				sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
					rows := op.Slice(x[0], 1, 2, 2+shape[1], 1)
					return []*core.Tensor{op.Contiguous(rows), op.To(rows, core.Float32), op.To(rows, core.BFloat16)}
				}, x)
			})
		}
	}
}

// TestAttentionSizes checks attention on sequences longer than a block, and on vectors that 4 does not divide or that are longer
// than a program has room for.
func TestAttentionSizes(t *testing.T) {
	coretest.SkipUnderRace(t)
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
				compareWithCPU(t, 1e-5, func(x ...*core.Tensor) []*core.Tensor {
					core.ManualSeed(3)
					return gradientsAndOutput(t, op.ScaledDotProductAttention(x[0], x[1], unaligned(x[2]), c.o), x...)
				}, q, k, v)
			})
		})
	}
}

// TestElementwiseLayouts checks elementwise loops over several dimensions, as vec4 or not, with operands that broadcast an
// element, rows or nothing.
func TestElementwiseLayouts(t *testing.T) {
	core.Tidy(func() {
		x, row, column := op.Randn(5, 7, 12), op.Randn(12), op.Randn(5, 1, 1)
		half := core.Float16
		compareWithCPU(t, 2e-3, func(x ...*core.Tensor) []*core.Tensor {
			part := op.Slice(x[0], 2, 4, 12, 1)
			return []*core.Tensor{
				op.Add(x[0], x[1]), op.Mul(x[0], x[2]), op.Sub(part, op.Slice(x[1], 0, 4, 12, 1)), op.Mul(part, core.Num(3)), op.Exp(op.Slice(x[0], 2, 1, 9, 1)),
				op.To(op.Add(op.To(part, half), op.To(x[2], half)), core.Float32), op.Where(op.Gt(part, x[2]), part, core.Num(0)),
				op.Add(op.To(part, core.Int64), op.To(x[2], core.Int64)), op.Clone(op.Slice(x[0], 0, 1, 5, 2)),
			}
		}, x, row, column)
	})
}

func TestReductionsWithEmptyResults(t *testing.T) {
	d := device(t)
	core.Tidy(func() {
		x := on(d, 0, 20001)
		for _, y := range []*core.Tensor{op.Sum(x, []int{1}, false), op.Amax(x, []int{1}, true), op.Softmax(x, 1)} {
			require.NoError(t, y.Wait())
			require.Zero(t, y.Numel())
		}
	})
}
