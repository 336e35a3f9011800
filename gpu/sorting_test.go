package gpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
)

// sameBits compares results with the CPU, bitwise.
func sameBits(t *testing.T, fn func(x ...*core.Tensor) []*core.Tensor, x ...*core.Tensor) {
	t.Helper()
	core.Tidy(func() { compareWithCPU(t, 0, fn, x...) })
}

// TestSort compares sorting with the CPU: shorter and longer than a tile, with many equal elements, NaN and both zeros, in every
// dtype.
func TestSort(t *testing.T) {
	coretest.SkipUnderRace(t)
	device(t)
	rng := rand.New(rand.NewPCG(3, 4))
	for _, shape := range [][]int{{1}, {7}, {1024}, {1025}, {300, 3}, {2, 2500, 3}, {70_000}} {
		if testing.Short() && core.Numel(shape) > 6000 {
			continue
		}
		for i, d := range []core.DType{core.Float32, core.Int64, core.Float16, core.BFloat16, core.Int32, core.Uint32, core.Int16, core.Uint16, core.Int8, core.Uint8, core.Bool} {
			// Other dtypes differ in how an element is read: one shape within a workgroup's block and one larger are enough.
			if !*all && i > 1 && len(shape) != 2 && shape[0] != 1025 || core.Numel(shape) > 20_000 && d != core.Float32 {
				continue
			}
			v := make([]float64, core.Numel(shape))
			for i := range v {
				v[i] = float64(rng.IntN(200))
				if d.IsFloat() {
					switch v[i] -= 100; rng.IntN(40) {
					case 0:
						v[i] = math.NaN()
					case 1:
						v[i] = math.Copysign(0, -1)
					case 2:
						v[i] = math.Inf(1)
					}
				} else if d.IsSigned() {
					v[i] -= 100
				}
			}
			x := op.To(op.Reshape(core.FromSlice(v, len(v)), shape...), d)
			if d == core.Int64 {
				x = op.Mul(x, core.IntNum(1<<31+12345)) // larger than 32 bits
			}
			dim := min(1, len(shape)-1)
			n := shape[dim]
			sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
				var out []*core.Tensor
				add := func(values, indices *core.Tensor) { out = append(out, values, indices) }
				for _, descending := range []bool{false, true} {
					add(op.Sort(x[0], dim, op.SortOptions{Descending: descending}))
					out = append(out, op.ArgSort(x[0], dim, op.SortOptions{Descending: descending}))
				}
				add(op.TopK(x[0], (n+2)/3, dim, true, true))
				add(op.TopK(x[0], min(n, 5), dim, false, true))
				add(op.KthValue(x[0], (n+1)/2, dim, false))
				if d != core.Bool {
					add(op.Median(x[0], dim, false))
					add(op.NanMedian(x[0], dim, true))
					add(op.Mode(x[0], dim, false))
				}
				return out
			}, x)
		}
	}
}

func TestSortLargestIntegers(t *testing.T) {
	device(t)
	sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
		a, i := op.Median(x[0], 0, false)
		b, j := op.Median(x[1], 0, false)
		return []*core.Tensor{a, i, b, j}
	}, core.FromSlice([]int32{math.MaxInt32, 5, math.MaxInt32}), core.FromSlice([]int64{0x7fffffff00000000, 1, 2, math.MaxInt64}))
}

func TestSortOfAMillionElements(t *testing.T) {
	if testing.Short() {
		t.Skip("large")
	}
	sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
		v, i := op.Sort(x[0], 0, op.SortOptions{})
		top, j := op.TopK(x[0], 10, 0, true, true)
		return []*core.Tensor{v, i, top, j}
	}, op.Randn(sized(t, 1<<20, 1<<18)+77)) // counts of digits in three levels of prefix sums
}

// TestSortByDigits compares sorts of lines that are longer than a few tiles: of 64 and 8 bits, with long runs of equal elements.
func TestSortByDigits(t *testing.T) {
	coretest.SkipUnderRace(t)
	device(t)
	rng := rand.New(rand.NewPCG(13, 14))
	v, equals := make([]int64, 2*17_001), make([]int64, 2*17_001)
	for i := range v {
		v[i], equals[i] = int64(rng.Uint64()), 7
		if i%3 > 0 {
			v[i] %= 5
		}
	}
	sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
		var out []*core.Tensor
		for _, x := range []*core.Tensor{x[0], x[1], op.To(x[0], core.Uint8)} {
			values, indices := op.Sort(x, 1, op.SortOptions{Descending: true})
			few, places := op.KthValue(op.Transpose(x, 0, 1), 9000, 0, false)
			out = append(out, values, indices, few, places)
		}
		return out
	}, core.FromSlice(v, 2, 17_001), core.FromSlice(equals, 2, 17_001))
}

// TestSortDispatches checks that the number of dispatches of a sort does not grow with its size, once lines are sorted by digits.
func TestSortDispatches(t *testing.T) {
	opened, err := core.OpenDevice("fakegpu")
	require.NoError(t, err)
	d := opened.(*gpu.Device)
	count := func(n int) (dispatches int) {
		core.Tidy(func() {
			f := core.Float32
			x := op.EmptyWith([]int{n}, op.TensorOptions{DType: &f, Device: d})
			require.NoError(t, d.Synchronize())
			_, before := gpu.Ran(d)
			op.Sort(x, 0, op.SortOptions{})
			_ = d.Synchronize() // the results are meaningless
			_, after := gpu.Ran(d)
			dispatches = after - before
		})
		return dispatches
	}
	require.LessOrEqual(t, count(1000), 2)
	require.LessOrEqual(t, count(300_000), 4*5+1)
	require.Equal(t, count(300_000), count(900_000))
}

// TestSelect compares entries that are found without sorting with the CPU's: several numbers of them, of lines with many equal elements and
// with NaN.
func TestSelect(t *testing.T) {
	coretest.SkipUnderRace(t)
	device(t)
	for _, shape := range [][]int{{4, 513}, {3, 4096}, {2, 4095}} {
		x := op.Round(op.Mul(op.Randn(shape...), core.Num(3)))
		x = op.Where(op.Gt(op.Rand(shape...), core.Num(0.99)), op.Log(op.Mul(x, core.Num(-1))), x)
		sameBits(t, func(x ...*core.Tensor) []*core.Tensor {
			var out []*core.Tensor
			add := func(values, indices *core.Tensor) { out = append(out, values, indices) }
			for _, k := range []int{1, 2, 100, 128, shape[1] / 16} {
				add(op.TopK(x[0], k, 1, true, true))
				add(op.TopK(x[0], k, 1, false, true))
				add(op.KthValue(x[0], k, 1, true))
				add(op.KthValue(x[0], shape[1]+1-k, 1, false))
			}
			add(op.Median(x[0], 1, false))
			add(op.NanMedian(x[0], 1, false))
			return out
		}, x)
	}
}
