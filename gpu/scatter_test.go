package gpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/gpu/shader"
)

// smallNumbers returns small integers, mostly 1 and -1, so that sums are exact and products stay small.
func smallNumbers(rng *rand.Rand, d core.DType, shape ...int) *core.Tensor {
	v := make([]float64, core.Numel(shape))
	for i := range v {
		switch v[i] = 1; {
		case rng.IntN(300) == 0:
			v[i] = 2
		case d.IsSigned() && rng.IntN(2) == 0:
			v[i] = -1
		case d == core.Bool:
			v[i] = float64(rng.IntN(2))
		}
	}
	return op.To(op.Reshape(core.FromSlice(v, len(v)), shape...), d)
}

func indicesBelow(rng *rand.Rand, n int, shape ...int) *core.Tensor {
	v := make([]int64, core.Numel(shape))
	for i := range v {
		v[i] = int64(rng.IntN(n))
	}
	return op.Reshape(core.FromSlice(v, len(v)), shape...)
}

var everyDType = []core.DType{core.Float32, core.Float16, core.BFloat16, core.Int64, core.Int32, core.Int16, core.Uint16, core.Int8, core.Uint8, core.Bool}

// everyScatter returns the results of every scatter mode except the mean, which [scatterMean] returns.
func everyScatter(dim int) func(x ...*core.Tensor) []*core.Tensor {
	return func(x ...*core.Tensor) []*core.Tensor {
		out := []*core.Tensor{
			op.Scatter(x[0], dim, x[1], x[2]), op.Scatter(x[0], dim, x[1], core.IntNum(1)), op.ScatterAdd(x[0], dim, x[1], x[2]),
		}
		for _, reduce := range []string{"sum", "prod", "amax", "amin"} {
			out = append(out, op.ScatterReduce(x[0], dim, x[1], x[2], reduce, true), op.ScatterReduce(x[0], dim, x[1], x[2], reduce, false))
		}
		return out
	}
}

func scatterMean(dim int) func(x ...*core.Tensor) []*core.Tensor {
	return func(x ...*core.Tensor) []*core.Tensor {
		return []*core.Tensor{op.ScatterReduce(x[0], dim, x[1], x[2], "mean", true), op.ScatterReduce(x[0], dim, x[1], x[2], "mean", false)}
	}
}

// TestScatter compares scatter with the CPU: longer index lists than kernels search, in every dimension, with many elements at
// each index, and with runs of one index that are split.
func TestScatter(t *testing.T) {
	coretest.SkipUnderRace(t)
	device(t)
	rng := rand.New(rand.NewPCG(21, 22))
	for _, d := range everyDType {
		for _, c := range []struct {
			shape, index []int
			dim          int
		}{{[]int{5}, []int{1100}, 0}, {[]int{3, 7}, []int{3, 130}, 1}, {[]int{40, 2, 3}, []int{300, 2, 2}, 0}} {
			if c.dim == 1 && d != core.Float32 || len(c.shape) == 3 && d != core.Uint8 {
				continue // each dtype and each shape is covered once
			}
			x, src := smallNumbers(rng, d, c.shape...), smallNumbers(rng, d, append([]int{c.index[0] + 1}, c.index[1:]...)...)
			index := indicesBelow(rng, c.shape[c.dim], c.index...)
			sameBits(t, everyScatter(c.dim), x, index, src)
			tolerance := 1e-6 // division on GPUs has an error of two units in the last place
			if d.IsHalf() {
				tolerance = 1e-2
			}
			if d != core.Bool {
				core.Tidy(func() { compareWithCPU(t, tolerance, scatterMean(c.dim), x, index, src) })
			}
		}
	}
}

// TestIndexPut compares index_put and index_add with the CPU, by searching and by sorting, for rows wider and narrower than a
// workgroup.
func TestIndexPut(t *testing.T) {
	coretest.SkipUnderRace(t)
	device(t)
	rng := rand.New(rand.NewPCG(23, 24))
	for _, d := range everyDType {
		for _, c := range []struct{ n, places, width, searched int }{
			{200, 3, 5, 256}, {300, 2, 1, 256}, {700, 9, 3, 256}, {1400, 300, 2, 256}, {300, 40, 1100, 256},
			{700, 9, 3, 700}, {1400, 300, 2, 2048}, {2048, 1, 70, 2048},
		} {
			if c.n != 700 && d != core.Float32 && (d != core.Uint8 || c.width < 1000) {
				continue // each dtype and each shape is covered once
			}
			defer gpu.Tune(device(t), func(f *shader.Tuning) { f.SearchedRows = c.searched })()
			x, values := smallNumbers(rng, d, c.places, c.width), smallNumbers(rng, d, c.n, c.width)
			sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
				out := []*core.Tensor{
					op.IndexPut(x[0], x[1:2], x[2], false), op.IndexPut(x[0], x[1:2], x[2], true), op.IndexPut(x[0], x[1:2], core.IntNum(1), true),
					op.IndexAdd(x[0], 0, x[1], x[2]),
				}
				columns := op.Transpose(x[0], 0, 1) // strided rows
				return append(out, op.IndexAdd(columns, 1, x[1], op.Transpose(x[2], 0, 1)))
			}, x, indicesBelow(rng, c.places, c.n), values)
		}
	}
}

// TestEmbeddingGradients compares gradients of an embedding of more indices than kernels search, also scaled by frequency and
// with a padding index.
func TestEmbeddingGradients(t *testing.T) {
	device(t)
	rng := rand.New(rand.NewPCG(25, 26))
	index := op.Reshape(indicesBelow(rng, 7, 2100), 3, 700)
	w, g := smallNumbers(rng, core.Float32, 7, 70).SetRequiresGrad(true), smallNumbers(rng, core.Float32, 3, 700, 70)
	padding := 2
	for _, o := range []op.EmbeddingOptions{{}, {PaddingIdx: &padding}, {ScaleGradByFreq: true}} {
		core.Tidy(func() {
			compareWithCPU(t, 1e-6, func(x ...*core.Tensor) []*core.Tensor {
				grads, err := autograd.Grad([]*core.Tensor{op.Embedding(x[0], x[1], o)}, []*core.Tensor{x[1]}, []*core.Tensor{x[2]}, autograd.Options{})
				require.NoError(t, err)
				return grads
			}, index, w, g)
		})
	}
}

// TestScatterToOneIndex scatters all elements to one index. The run must be split: one invocation would exceed the limit of
// loops.
func TestScatterToOneIndex(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	rng := rand.New(rand.NewPCG(27, 28))
	n, long := 100_000, core.Int64
	for _, dtype := range []core.DType{core.Float32, core.Int64} {
		x, index, src := smallNumbers(rng, dtype, 3), op.Full([]int{n}, core.IntNum(1), op.TensorOptions{DType: &long}), smallNumbers(rng, dtype, n)
		sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
			return []*core.Tensor{op.Scatter(x[0], 0, x[1], x[2]), op.ScatterAdd(x[0], 0, x[1], x[2]), op.IndexPut(x[0], x[1:2], x[2], true),
				op.ScatterReduce(x[0], 0, x[1], x[2], "amax", false)}
		}, x, index, src)
	}
	core.Tidy(func() {
		x, index, src := op.ToDevice(op.Zeros(3), d), op.ToDevice(op.Full([]int{n}, core.IntNum(1), op.TensorOptions{DType: &long}), d), op.ToDevice(op.Ones(n), d)
		require.NoError(t, d.Synchronize())
		before := d.Traffic().Dispatches
		op.ScatterAddInPlace(x, 0, index, src)
		require.NoError(t, d.Synchronize())
		// Indices, one digit (counts, three of prefix sums, the pass), extents of runs, and three levels of pieces of 256.
		require.LessOrEqual(t, d.Traffic().Dispatches-before, 1+5+1+3)
	})
}

// TestScatterAlongLines scatters along lines that one workgroup sorts, and along longer ones, with all indices equal, all different, or in
// long runs.
func TestScatterAlongLines(t *testing.T) {
	coretest.SkipUnderRace(t)
	device(t)
	rng := rand.New(rand.NewPCG(33, 34))
	for _, c := range []struct {
		size, length, inner, below int
	}{{300, 257, 3, 300}, {4096, 4096, 1, 4096}, {700, 3000, 1, 2}, {40, 1000, 2, 1}, {90, 5000, 1, 90}} {
		for _, dtype := range []core.DType{core.Float32, core.Int64, core.BFloat16} {
			if dtype != core.Float32 && c.inner == 1 && c.length < 5000 {
				continue // each program is covered once
			}
			x, src := smallNumbers(rng, dtype, 2, c.size, c.inner), smallNumbers(rng, dtype, 2, c.length, c.inner)
			sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
				return []*core.Tensor{
					op.Scatter(x[0], 1, x[1], x[2]), op.ScatterAdd(x[0], 1, x[1], x[2]), op.ScatterReduce(x[0], 1, x[1], x[2], "amax", true),
					op.Scatter(x[0], 1, x[1], core.IntNum(1)), op.ScatterReduce(x[0], 1, x[1], x[2], "prod", false),
				}
			}, x, indicesBelow(rng, c.below, 2, c.length, c.inner), src)
		}
	}
}

// TestScatterIsDeterministic checks that sums that round do not depend on the order of workgroups.
func TestScatterIsDeterministic(t *testing.T) {
	d := device(t)
	core.Tidy(func() {
		rng := rand.New(rand.NewPCG(29, 30))
		x, index, src := op.ToDevice(op.Randn(4), d), op.ToDevice(indicesBelow(rng, 4, 5000), d), op.ToDevice(op.Randn(5000), d)
		want := op.ScatterAdd(x, 0, index, src)
		for range 3 {
			require.NoError(t, equal(t, want, op.ScatterAdd(x, 0, index, src), 0, "sum"))
		}
	})
}

func TestScatterIndexOutOfRange(t *testing.T) {
	d := device(t)
	v := make([]int64, 2*100*3)
	v[1*300+70*3+2] = 9
	core.Tidy(func() {
		index := op.ToDevice(op.Reshape(core.FromSlice(v), 2, 100, 3), d)
		y := op.ScatterAdd(op.ToDevice(op.Zeros(2, 5, 3), d), 1, index, op.ToDevice(op.Ones(2, 100, 3), d))
		_, err := core.Values[float32](y)
		require.ErrorContains(t, err, "the index at position 512 is out of range for dimension 1 of size 5")
	})
}

// TestOneHot compares one kernel's result with the CPU's, for indices of any layout, and checks that a bad index is told.
func TestOneHot(t *testing.T) {
	d := device(t)
	core.Tidy(func() {
		index := op.Reshape(core.FromSlice([]int64{4, 0, 2, 1, 3, 3}), 2, 3)
		for _, x := range []*core.Tensor{index, op.Transpose(index, 0, 1), op.Select(op.Select(index, 0, 0), 0, 0), op.To(index, core.Int32)} {
			on := op.ToDevice(x, d)
			require.NoError(t, d.Synchronize())
			before := d.Traffic().Dispatches
			y := op.OneHot(on, 5)
			require.NoError(t, d.Synchronize())
			require.Equal(t, 1, d.Traffic().Dispatches-before)
			want, err := core.Values[int64](op.OneHot(x, 5))
			require.NoError(t, err)
			got, err := core.Values[int64](y)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		_, err := core.Values[int64](op.OneHot(op.ToDevice(index, d), 4))
		require.ErrorContains(t, err, "one_hot: the index at position 0 is out of range for dimension 2 of size 4")
	})
}

// TestBagsOfIndices compares with the CPU, and checks that wrong offsets are told.
func TestBagsOfIndices(t *testing.T) {
	d := device(t)
	core.Tidy(func() {
		index, weight := core.FromSlice([]int64{0, 3, 2, 1, 3, 3}), op.Reshape(op.Arange(nil, core.Num(8), nil, op.TensorOptions{}), 4, 2)
		bags := func(to func(*core.Tensor) *core.Tensor, offsets ...int64) *core.Tensor {
			return op.EmbeddingBag(to(index), to(weight), op.EmbeddingBagOptions{Offsets: to(core.FromSlice(offsets)), Mode: "sum"})
		}
		here := func(x *core.Tensor) *core.Tensor { return x }
		there := func(x *core.Tensor) *core.Tensor { return op.ToDevice(x, d) }
		for _, offsets := range [][]int64{{0}, {0, 0, 4, 4, 6, 6}, {0, 1, 2, 3, 4, 5, 6, 6, 6}} {
			want, err := core.Values[float32](bags(here, offsets...))
			require.NoError(t, err)
			got, err := core.Values[float32](bags(there, offsets...))
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		for position, offsets := range map[int][]int64{0: {2, 4}, 1: {0, 7}, 2: {0, 3, 2}, 3: {0, 0, 0, -1}} {
			_, err := core.Values[float32](bags(there, offsets...))
			require.ErrorContains(t, err, fmt.Sprintf("the offset at position %d is wrong: offsets begin with 0, do not decrease and do not pass the 6 indices", position))
		}
	})
}

// TestLargestOfBags compares the composition on the GPU with the kernel of the CPU, gradients too.
func TestLargestOfBags(t *testing.T) {
	d := device(t)
	nan, padding := float32(math.NaN()), 2
	core.Tidy(func() {
		index := core.FromSlice([]int64{0, 3, 2, 1, 3, 3, 1, 0, 2, 2})
		weight := core.FromSlice([]float32{1, nan, 1, 2, nan, nan, 1, -1}, 4, 2)
		bags := func(to func(*core.Tensor) *core.Tensor, padding *int, offsets ...int64) string {
			w := to(weight).SetRequiresGrad(true)
			y := op.EmbeddingBag(to(index), w, op.EmbeddingBagOptions{Offsets: to(core.FromSlice(offsets)), Mode: "max", PaddingIdx: padding})
			scales := op.Reshape(op.Arange(nil, core.Num(float64(y.Numel())), nil, op.TensorOptions{Device: y.Device()}), y.Shape()...)
			require.NoError(t, autograd.Backward(op.Sum(op.Where(op.IsNaN(y), core.Num(0), op.Mul(y, scales)), nil, false)))
			value, err := core.Values[float32](y.Detach())
			require.NoError(t, err)
			grad, err := core.Values[float32](w.Grad())
			require.NoError(t, err)
			return fmt.Sprint(value, grad)
		}
		here := func(x *core.Tensor) *core.Tensor { return x.Detach() }
		there := func(x *core.Tensor) *core.Tensor { return op.ToDevice(x, d).Detach() }
		for _, offsets := range [][]int64{{0}, {0, 0, 4, 4, 6, 6}, {0, 1, 2, 3, 4, 5, 6, 6, 6, 8}} {
			for _, p := range []*int{nil, &padding} {
				require.Equal(t, bags(here, p, offsets...), bags(there, p, offsets...), "%v", offsets)
			}
		}
	})
}

func TestScatterOfAMillionIndices(t *testing.T) {
	if testing.Short() {
		t.Skip("large")
	}
	device(t)
	rng := rand.New(rand.NewPCG(31, 32))
	n := sized(t, 1<<20, 1<<17) // both have runs in three levels of pieces
	sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
		return []*core.Tensor{op.Scatter(x[0], 0, x[1], x[2]), op.ScatterAdd(x[0], 0, x[1], x[2]), op.IndexPut(x[0], x[1:2], x[2], true)}
	}, smallNumbers(rng, core.Float32, 5000), indicesBelow(rng, 5000, n), smallNumbers(rng, core.Float32, n))
}
