package copying

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/cpu/kernel/internal/kerneltest"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

func viewOf(t *rawtensor.Tensor) *view {
	v := newView(t.Ptr, t.DType, t.Shape, t.Strides)
	return &v
}

// special returns bit patterns at the edges of a dtype's range.
func special(dtype int) []uint64 {
	var out []uint64
	if rawtensor.IsFloat(dtype) {
		for _, v := range []float64{0, math.Copysign(0, -1), 1, -1, 1.5, -1.5, 2.5, 0.1, -0.9, 255, 256, 257.5, -129, 65504, 65519, 65520,
			1e-7, 6e-8, 3e-8, 2.9e-8, -1e-40, 1e-320, 0x1p31, -0x1p31, 0x1p31 - 128, -0x1p31 - 0.5, -0x1p31 - 1, 0x1p32 + 512, 0x1p40 + 3,
			0x1p63, -0x1p63, 0x1p62, 0x1p64, 1e30, 3.4e38, 1e300, math.Inf(1), math.Inf(-1), math.NaN(), 2147483647.5, 1.00390625,
			1.01171875, 1.0009765625 + 0.00048828125, 1 + 0.00048828125} {
			out = append(out, rawtensor.Encode(dtype, v))
		}
		return out
	}
	if dtype == rawtensor.Bool {
		return []uint64{0, 1, 1, 0, 1}
	}
	for _, v := range []int64{0, 1, -1, 2, 127, 128, 255, 256, 257, -128, 65504, 65519, 65520, 2049, 2051, 1<<24 + 1, 1<<24 + 3, math.MaxInt32,
		math.MinInt32, 1 << 32, 1<<53 + 1, math.MaxInt64, math.MinInt64, 16777217, -33554435} {
		out = append(out, rawtensor.Mask(dtype, uint64(v)))
	}
	return out
}

func sameBits(dtype int, a, b uint64) bool {
	if a == b {
		return true
	}
	return rawtensor.IsFloat(dtype) && math.IsNaN(rawtensor.Decode(dtype, a)) && math.IsNaN(rawtensor.Decode(dtype, b))
}

func requireConverted(t *testing.T, out, in *rawtensor.Tensor) {
	t.Helper()
	out.Each(func(index []int) {
		want := rawtensor.Mask(out.DType, rawtensor.Convert(out.DType, in.DType, in.Bits(index...)))
		if got := out.Bits(index...); !sameBits(out.DType, want, got) {
			require.Equal(t, fmt.Sprintf("%#x", want), fmt.Sprintf("%#x", got), "%s %#x to %s at %v", rawtensor.Name(in.DType),
				in.Bits(index...), rawtensor.Name(out.DType), index)
		}
	})
}

// withEachInstructionSet runs f with AVX-512, where the processor has it, and without.
func withEachInstructionSet(t *testing.T, f func(t *testing.T)) {
	for _, without := range []bool{false, true} {
		t.Run(fmt.Sprintf("without AVX-512 %v", without), func(t *testing.T) {
			withoutAVX512(without)
			defer withoutAVX512(false)
			f(t)
		})
	}
}

func TestCopyConvertsSpecialValues(t *testing.T) { withEachInstructionSet(t, testSpecialValues) }

func testSpecialValues(t *testing.T) {
	for _, from := range rawtensor.DTypes {
		values := special(from)
		for _, to := range rawtensor.DTypes {
			for _, n := range []int{len(values), 500} { // both the vector loop and the remainder see every value
				in, out := rawtensor.New(t, from, n), rawtensor.New(t, to, n)
				for i := range n {
					in.SetBits(values[i%len(values)], i)
				}
				copyTo(nil, viewOf(out), viewOf(in))
				requireConverted(t, out, in)
			}
		}
	}
}

// TestCopyConvertsOrdinaryNumbers has vectors without a number that does not fit an integer.
func TestCopyConvertsOrdinaryNumbers(t *testing.T) {
	withEachInstructionSet(t, func(t *testing.T) {
		for _, from := range []int{rawtensor.Float16, rawtensor.BFloat16, rawtensor.Float32, rawtensor.Float64} {
			in := rawtensor.New(t, from, 1003)
			for i := range 1003 {
				in.SetBits(rawtensor.Encode(from, (float64(i)-500)*math.Pow(1.03, float64(i%300))), i)
			}
			for _, to := range rawtensor.DTypes {
				out := rawtensor.New(t, to, 1003)
				copyTo(nil, viewOf(out), viewOf(in))
				requireConverted(t, out, in)
			}
		}
	})
}

func TestCopyConvertsEveryHalf(t *testing.T) {
	for _, from := range []int{rawtensor.Float16, rawtensor.BFloat16} {
		in := rawtensor.New(t, from, 1<<16)
		for i := range 1 << 16 {
			in.SetBits(uint64(i), i)
		}
		for _, to := range rawtensor.DTypes {
			out := rawtensor.New(t, to, 1<<16)
			copyTo(nil, viewOf(out), viewOf(in))
			requireConverted(t, out, in)
		}
	}
}

var shapes = [][]int{{}, {1}, {7}, {0}, {3, 0, 2}, {5, 1, 9}, {33, 17}, {16, 16}, {2, 3, 4, 5}, {64, 3}, {3, 64}, {2, 70, 2}, {1, 1}, {37, 4},
	{40, 8, 2}, {2, 2, 2, 2, 2}, {130, 67}, {5, 24}, {9, 7, 1, 3}}

func TestCopyLayouts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, shape := range shapes {
		for _, from := range rawtensor.DTypes {
			for inName, in := range rawtensor.Layouts(t, from, shape) {
				in.Random(rng)
				to := from
				if rng.IntN(2) == 0 {
					to = rng.IntN(8)
				}
				for outName, out := range rawtensor.Layouts(t, to, shape) {
					for i := range out.Memory() {
						out.Memory()[i] = 0xa5
					}
					copyTo(nil, viewOf(out), viewOf(in))
					t.Run(fmt.Sprint(shape, rawtensor.Name(from), inName, rawtensor.Name(to), outName), func(t *testing.T) {
						requireConverted(t, out, in)
						kerneltest.RequireOthersUntouched(t, out)
					})
				}
			}
		}
	}
}

func TestCopyPermutationsInParallel(t *testing.T) {
	workers := pool.New(3)
	defer workers.Close()
	rng := rand.New(rand.NewPCG(3, 4))
	permutations := [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {1, 0, 3, 2}, {2, 3, 0, 1}, {3, 0, 1, 2}, {0, 3, 1, 2}}
	for _, from := range rawtensor.DTypes {
		for _, order := range permutations {
			full := rawtensor.New(t, from, 9, 31, 23, 37)
			for i := range full.Memory() {
				full.Memory()[i] = byte(rng.IntN(256))
			}
			in := full.Permute(order...)
			out := rawtensor.New(t, from, in.Shape...)
			copyTo(workers.Ptr(), viewOf(out), viewOf(in))
			kerneltest.RequireSameElements(t, out, in)
			back := rawtensor.New(t, from, full.Shape...)
			copyTo(workers.Ptr(), viewOf(back.Permute(order...)), viewOf(out))
			require.Equal(t, full.Memory(), back.Memory())
		}
	}
}

func TestCopyBroadcast(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, dtype := range rawtensor.DTypes {
		for _, c := range [][2][]int{{{1, 5}, {40, 5}}, {{40, 1}, {40, 70}}, {{}, {3, 4}}, {{2, 1, 3}, {2, 9, 3}}, {{1}, {100}}, {{4, 1, 1}, {4, 8, 130}}} {
			in := rawtensor.New(t, dtype, c[0]...).Random(rng).Expand(c[1]...)
			for _, to := range []int{dtype, rawtensor.Float64, rawtensor.Int32} {
				for _, out := range rawtensor.Layouts(t, to, c[1]) {
					copyTo(nil, viewOf(out), viewOf(in))
					requireConverted(t, out, in)
				}
			}
		}
	}
}

func TestFill(t *testing.T) {
	for _, shape := range shapes {
		for _, dtype := range rawtensor.DTypes {
			for _, out := range rawtensor.Layouts(t, dtype, shape) {
				for i := range out.Memory() {
					out.Memory()[i] = 0xa5
				}
				fill(nil, viewOf(out), 3, 3.25)
				want := 3.25
				switch {
				case dtype == rawtensor.Bool:
					want = 1
				case !rawtensor.IsFloat(dtype):
					want = 3
				}
				out.Each(func(index []int) { require.Equal(t, want, out.Value(index...)) })
				kerneltest.RequireOthersUntouched(t, out)
			}
		}
	}
}
