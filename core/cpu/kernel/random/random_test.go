package random

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

func operand(r *rawtensor.Tensor) core.Operand {
	return core.Operand{Memory: core.Memory{Ptr: r.Ptr}, DType: core.DType(r.DType), Shape: r.Shape, Strides: r.Strides}
}

// run generates n numbers of a dtype with the given kernel and number of threads.
func run(t testing.TB, k kernel.Func, threads, dtype, n int, ints []int64, floats ...float64) *rawtensor.Tensor {
	out := rawtensor.New(t, dtype, n)
	p := pool.New(threads)
	defer p.Close()
	ctx := kernel.Context{Pool: p.Ptr()}
	defer ctx.FreeScratch()
	c := &core.Call{Op: "test", Outs: []core.Operand{operand(out)}, Ints: ints, Floats: floats}
	require.NoError(t, k(&ctx, c))
	return out
}

func values[T any](t *rawtensor.Tensor) []T {
	return unsafe.Slice((*T)(t.Ptr), t.Numel())
}

// philox is the generator by its definition.
func philox(seed, counter uint64) [4]uint32 {
	c := [4]uint32{uint32(counter), uint32(counter >> 32)}
	k0, k1 := uint32(seed), uint32(seed>>32)
	for range 10 {
		p, q := uint64(c[0])*0xD2511F53, uint64(c[2])*0xCD9E8D57
		c = [4]uint32{uint32(q>>32) ^ c[1] ^ k0, uint32(q), uint32(p>>32) ^ c[3] ^ k1, uint32(p)}
		k0 += 0x9E3779B9
		k1 += 0xBB67AE85
	}
	return c
}

// TestPublishedVectors checks the generator of this file against the first known answer of the Random123 library. Its
// other answers have counters that no operation here uses.
func TestPublishedVectors(t *testing.T) {
	require.Equal(t, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, philox(0, 0))
}

func TestWordsComeInOrder(t *testing.T) {
	const seed, offset = 0x1234567890abcdef, 0xfffffffe
	u := values[float32](run(t, fill, 1, rawtensor.Float32, 4003, []int64{0, seed, offset}, 0, 1))
	d := values[float64](run(t, fill, 1, rawtensor.Float64, 4003, []int64{0, seed, offset}, 0, 1))
	i := values[int64](run(t, integers, 1, rawtensor.Int64, 4003, []int64{seed, offset, -7, 1000}))
	for k := range u {
		w := philox(seed, offset+uint64(k/4))
		require.Equal(t, float32(w[k%4]>>8)*0x1p-24, u[k])
		w = philox(seed, offset+uint64(k/2))
		x := uint64(w[k%2*2])<<32 | uint64(w[k%2*2+1])
		require.Equal(t, float64(x>>11)*0x1p-53, d[k])
		hi, lo := x>>32, x&0xffffffff
		require.Equal(t, int64((hi*1000+lo*1000>>32)>>32)-7, i[k])
	}
}

// TestVectorsMakeTheSameWords compares each width of vectors with the generator of this file, for counters that pass 2^32.
func TestVectorsMakeTheSameWords(t *testing.T) {
	const seed, counter = 0xfedcba9876543210, 0xfffffff0
	for _, bytes := range []int{0, 32, 64} {
		for _, blocks := range []int{1, 3, 4, 7, 8, 9, 12, 37} {
			w := words(bytes, blocks, seed, counter)
			for b := range blocks {
				require.Equal(t, philox(seed, counter+uint64(b)), [4]uint32(w[4*b:]), "%d bytes, block %d of %d", bytes, b, blocks)
			}
		}
	}
}

func TestBitsDoNotDependOnThreads(t *testing.T) {
	for dtype := rawtensor.Float16; dtype <= rawtensor.Float64; dtype++ {
		for distribution, p := range distributions {
			ints := []int64{int64(distribution), 5, 77}
			one := run(t, fill, 1, dtype, 100_003, ints, p.parameters...)
			three := run(t, fill, 3, dtype, 100_003, ints, p.parameters...)
			require.Equal(t, one.Memory(), three.Memory(), "%s %s", rawtensor.Name(dtype), p.name)
		}
	}
	one := run(t, permutation, 1, rawtensor.Int64, 50_000, []int64{3, 9})
	three := run(t, permutation, 3, rawtensor.Int64, 50_000, []int64{3, 9})
	require.Equal(t, one.Memory(), three.Memory())
}

// A call for fewer numbers gives the first ones of a longer call, also if it ends inside a Philox block.
func TestLengthDoesNotChangeNumbers(t *testing.T) {
	for dtype := rawtensor.Float16; dtype <= rawtensor.Float64; dtype++ {
		long := run(t, fill, 1, dtype, 2100, []int64{1, 5, 77}, 0, 1)
		for _, n := range []int{0, 1, 2, 3, 4, 5, 1023, 1025, 2047} {
			short := run(t, fill, 1, dtype, n, []int64{1, 5, 77}, 0, 1)
			require.Equal(t, long.Memory()[:n*rawtensor.Size(dtype)], short.Memory())
		}
	}
}

var distributions = []struct {
	name       string
	parameters []float64
	cdf        func(x float64) float64
}{
	{"uniform", []float64{-2, 3}, func(x float64) float64 { return min(max((x+2)/5, 0), 1) }},
	{"normal", []float64{1, 2}, func(x float64) float64 { return math.Erfc(-(x-1)/2/math.Sqrt2) / 2 }},
	{"exponential", []float64{0.5}, func(x float64) float64 { return 1 - math.Exp(-x/2) }},
	{"log_normal", []float64{0.5, 0.25}, func(x float64) float64 { return math.Erfc(-(math.Log(x)-0.5)/0.25/math.Sqrt2) / 2 }},
	{"cauchy", []float64{1, 3}, func(x float64) float64 { return 0.5 + math.Atan((x-1)/3)/math.Pi }},
	{"geometric", []float64{0.3}, func(x float64) float64 { return 1 - math.Pow(0.7, math.Floor(x)) }},
	{"trunc_normal", []float64{1, 2, -1, 2}, func(x float64) float64 {
		phi := func(x float64) float64 { return math.Erfc(-(x-1)/2/math.Sqrt2) / 2 }
		return min(max((phi(x)-phi(-1))/(phi(2)-phi(-1)), 0), 1)
	}},
}

// TestDistributions compares the empirical distribution function with the exact one (Kolmogorov-Smirnov). The seed is
// fixed, so the result is always the same.
func TestDistributions(t *testing.T) {
	const n = 200_000
	for i, d := range distributions {
		for _, dtype := range []int{rawtensor.Float32, rawtensor.Float64} {
			t.Run(d.name+"/"+rawtensor.Name(dtype), func(t *testing.T) {
				out := run(t, fill, 1, dtype, n, []int64{int64(i), 42, 0}, d.parameters...)
				v := make([]float64, n)
				for k := range v {
					if dtype == rawtensor.Float32 {
						v[k] = float64(values[float32](out)[k])
					} else {
						v[k] = values[float64](out)[k]
					}
				}
				slices.Sort(v)
				worst := 0.0
				for k := 0; k < n; k++ {
					last := k
					for last+1 < n && v[last+1] == v[k] {
						last++
					}
					worst = max(worst, math.Abs(d.cdf(v[k])-float64(last+1)/n))
					k = last
				}
				require.Less(t, worst*math.Sqrt(n), 1.63) // 99 of 100 true samples pass
			})
		}
	}
}

// The pairs of the Box-Muller transform must not be correlated, and neither must their squares.
func TestNormalMoments(t *testing.T) {
	const n = 1 << 20
	for _, v := range [][]float32{values[float32](run(t, fill, 2, rawtensor.Float32, n, []int64{1, 1, 0}, 0, 1))} {
		var m1, m2, m3, m4, lag, lag2 float64
		for i, x := range v {
			y := float64(x)
			z := float64(v[i^1])
			m1, m2, m3, m4 = m1+y, m2+y*y, m3+y*y*y, m4+y*y*y*y
			lag, lag2 = lag+y*z, lag2+(y*y-1)*(z*z-1)
		}
		require.InDelta(t, 0, m1/n, 4/math.Sqrt(n))
		require.InDelta(t, 1, m2/n, 6/math.Sqrt(n))
		require.InDelta(t, 0, m3/n, 16/math.Sqrt(n))
		require.InDelta(t, 3, m4/n, 40/math.Sqrt(n))
		require.InDelta(t, 0, lag/n, 6/math.Sqrt(n))
		require.InDelta(t, 0, lag2/n, 12/math.Sqrt(n))
	}
}

// A uniform distribution never reaches its upper end, in any dtype.
func TestUniformStaysBelow(t *testing.T) {
	for _, b := range [][2]float64{{0, 1}, {-1, 0}, {-3, -1}, {1, 1.5}, {100, 101}, {-0.1, 0.3}, {0, 1e-3}} {
		for dtype := rawtensor.Float16; dtype <= rawtensor.Float64; dtype++ {
			out := run(t, fill, 1, dtype, 200_000, []int64{0, 9, 0}, b[0], b[1])
			low, high := math.Inf(1), math.Inf(-1)
			for i := range out.Numel() {
				var x float64
				switch dtype {
				case rawtensor.Float16:
					x = float64(core.Float16Value(values[uint16](out)[i]))
				case rawtensor.BFloat16:
					x = float64(core.BFloat16Value(values[uint16](out)[i]))
				case rawtensor.Float32:
					x = float64(values[float32](out)[i])
				default:
					x = values[float64](out)[i]
				}
				low, high = min(low, x), max(high, x)
			}
			rounding := 1e-2 * (math.Abs(b[0]) + math.Abs(b[1]))
			require.Less(t, high, b[1], "%s %v", rawtensor.Name(dtype), b)
			require.InDelta(t, b[1], high, rounding)
			require.InDelta(t, b[0], low, rounding)
		}
	}
}

func TestIntegersAreUniform(t *testing.T) {
	for _, r := range []int64{2, 10, 1000, 1 << 40} {
		v := values[int64](run(t, integers, 1, rawtensor.Int64, 100_000, []int64{7, 0, 5, r}))
		counts := make([]float64, min(r, 10))
		for _, x := range v {
			require.True(t, x >= 5 && x < 5+r)
			counts[(x-5)/((r+int64(len(counts))-1)/int64(len(counts)))]++
		}
		chi, want := 0.0, 100_000/float64(len(counts))
		for _, c := range counts {
			chi += (c - want) * (c - want) / want
		}
		require.Less(t, chi, 30.0, "range %d: %v", r, counts)
	}
	// The whole range of int64, with its ends.
	v := values[int64](run(t, integers, 1, rawtensor.Int64, 1000, []int64{7, 0, math.MinInt64, 0}))
	require.Less(t, slices.Min(v), int64(-1)<<62)
	require.Greater(t, slices.Max(v), int64(1)<<62)
	require.Equal(t, make([]byte, 100), run(t, integers, 1, rawtensor.Uint8, 100, []int64{7, 0, 0, 1}).Memory())
}

func TestBernoulli(t *testing.T) {
	out := rawtensor.New(t, rawtensor.Bool, 100_001)
	c := &core.Call{Op: "bernoulli", Outs: []core.Operand{operand(out)}, Ints: []int64{3, 0},
		Ins: []core.Operand{{IsNumber: true, Number: core.FloatNumber(0.3)}}}
	require.NoError(t, bernoulli(&kernel.Context{}, c))
	ones := 0
	for _, b := range out.Memory() {
		ones += int(b)
	}
	require.InDelta(t, 0.3, float64(ones)/100_001, 0.005)

	p := rawtensor.New(t, rawtensor.Float32, 100_001)
	for i := range values[float32](p) {
		values[float32](p)[i] = []float32{0, 1, 0.5}[i%3]
	}
	c.Ins = []core.Operand{operand(p)}
	require.NoError(t, bernoulli(&kernel.Context{}, c))
	ones = 0
	for i, b := range out.Memory() {
		switch i % 3 {
		case 2:
			ones += int(b)
		default:
			require.Equal(t, byte(i%3), b)
		}
	}
	require.InDelta(t, 0.5, float64(ones)/33333, 0.01)
	values[float32](p)[77] = float32(math.NaN())
	require.EqualError(t, bernoulli(&kernel.Context{}, c), "bernoulli: the probability at element 77 is outside [0, 1]")
}

func TestPermutation(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 64, 65, 1000, 4095, 4096, 4097, 100_000, 1 << 22} {
		v := slices.Clone(values[int64](run(t, permutation, 1, rawtensor.Int64, n, []int64{11, 4})))
		if n > 100 {
			fixed := 0
			for i, x := range v {
				if int64(i) == x {
					fixed++
				}
			}
			require.Less(t, fixed, 8)
		}
		// The permutation is the order of the keys. Of so many that the top bits of some agree, too.
		key := func(i int64) uint64 {
			w := philox(11, 4+uint64(i/2))
			return uint64(w[i%2*2])<<32 | uint64(w[i%2*2+1])
		}
		require.True(t, slices.IsSortedFunc(v, func(a, b int64) int {
			if key(a) < key(b) {
				return -1
			}
			return 1
		}), n)
		slices.Sort(v)
		require.Len(t, v, n)
		require.Len(t, slices.Compact(v), n)
		if n > 0 {
			require.Equal(t, []int64{0, int64(n - 1)}, []int64{v[0], v[n-1]})
		}
	}
	// All permutations of three elements are equally likely.
	counts := map[string]int{}
	for seed := range int64(6000) {
		counts[fmt.Sprint(values[int64](run(t, permutation, 1, rawtensor.Int64, 3, []int64{seed, 0})))]++
	}
	require.Len(t, counts, 6)
	for order, n := range counts {
		require.InDelta(t, 1000, n, 150, order)
	}
}

func drawMultinomial(t *testing.T, weights *rawtensor.Tensor, count int, seed int64, replacement int64) ([]int64, error) {
	shape := append(slices.Clone(weights.Shape[:len(weights.Shape)-1]), count)
	out := rawtensor.New(t, rawtensor.Int64, shape...)
	ctx := &kernel.Context{}
	defer ctx.FreeScratch()
	err := multinomial(ctx, &core.Call{Op: "multinomial", Outs: []core.Operand{operand(out)}, Ins: []core.Operand{operand(weights)},
		Ints: []int64{seed, 0, replacement}})
	return values[int64](out), err
}

func TestMultinomial(t *testing.T) {
	w := rawtensor.New(t, rawtensor.Float32, 40, 5)
	for i := range values[float32](w) {
		values[float32](w)[i] = []float32{0, 1, 2, 0, 5}[i%5]
	}
	const count = 5000
	v, err := drawMultinomial(t, w, count, 1, 1)
	require.NoError(t, err)
	var counts [5]float64
	for _, x := range v {
		counts[x]++
	}
	for i, p := range []float64{0, 1, 2, 0, 5} {
		require.InDelta(t, p/8, counts[i]/(40*count), 0.005)
	}
	// Without replacement, the first sample follows the weights, and the second the weights that are left.
	var first, second [5]float64
	for seed := range int64(500) {
		v, err := drawMultinomial(t, w, 3, seed, 0)
		require.NoError(t, err)
		for r := range 40 {
			row := v[3*r : 3*r+3]
			first[row[0]]++
			second[row[1]]++
			sorted := slices.Sorted(slices.Values(row))
			require.Equal(t, []int64{1, 2, 4}, sorted)
		}
	}
	for i, p := range []float64{0, 1, 2, 0, 5} {
		require.InDelta(t, p/8, first[i]/20000, 0.015)
	}
	require.InDelta(t, 2.0/8*5/6+1.0/8*5/7, second[4]/20000, 0.015)

	_, err = drawMultinomial(t, w, 4, 1, 0)
	require.EqualError(t, err, "multinomial: row 0 has fewer positive weights than samples to draw without replacement, got 5 weights, want 4 samples")
	values[float32](w)[17] = -1
	_, err = drawMultinomial(t, w, 2, 1, 1)
	require.EqualError(t, err, "multinomial: row 3 has a weight that is negative or not finite, got 5 weights, want 2 samples")
	clear(w.Memory())
	_, err = drawMultinomial(t, w, 2, 1, 1)
	require.EqualError(t, err, "multinomial: row 0 has no positive weight, got 5 weights, want 2 samples")
}

func BenchmarkRandom(b *testing.B) {
	const n = 1 << 20
	p := pool.New(2)
	defer p.Close()
	ctx := &kernel.Context{Pool: p.Ptr()}
	defer ctx.FreeScratch()
	bench := func(name string, k kernel.Func, dtype int, ints []int64, floats ...float64) {
		b.Run(name, func(b *testing.B) {
			out := rawtensor.New(b, dtype, n)
			c := &core.Call{Op: "bench", Outs: []core.Operand{operand(out)}, Ints: ints, Floats: floats,
				Ins: []core.Operand{{IsNumber: true, Number: core.FloatNumber(0.9)}}}
			for b.Loop() {
				if err := k(ctx, c); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(n*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "elem/ns")
		})
	}
	for i, d := range distributions {
		bench(d.name, fill, rawtensor.Float32, []int64{int64(i), 1, 0}, d.parameters...)
	}
	bench("normal64", fill, rawtensor.Float64, []int64{1, 1, 0}, 0, 1)
	bench("randint", integers, rawtensor.Int64, []int64{1, 0, 0, 50000})
	bench("bernoulli", bernoulli, rawtensor.Float32, []int64{1, 0})
	bench("randperm", permutation, rawtensor.Int64, []int64{1, 0})
}
