package softmax

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

var floats = []int{rawtensor.Float16, rawtensor.BFloat16, rawtensor.Float32, rawtensor.Float64}

// tolerance bounds the absolute error of a result near 1.
var tolerance = map[int]float64{rawtensor.Float16: 2e-3, rawtensor.BFloat16: 1.6e-2, rawtensor.Float32: 3e-6, rawtensor.Float64: 1e-13}

// reference computes softmax or log-softmax of one row by the definition.
func reference(x []float64, log int) []float64 {
	m := math.Inf(-1)
	for _, v := range x {
		m = math.Max(m, v)
	}
	s := 0.0
	for _, v := range x {
		s += math.Exp(v - m)
	}
	y := make([]float64, len(x))
	for i, v := range x {
		if log == 1 {
			y[i] = v - m - math.Log(s)
		} else {
			y[i] = math.Exp(v-m) / s
		}
	}
	return y
}

func referenceGrad(y, dy []float64, log int) []float64 {
	s := 0.0
	for i := range y {
		if log == 1 {
			s += dy[i]
		} else {
			s += dy[i] * y[i]
		}
	}
	dx := make([]float64, len(y))
	for i := range y {
		if log == 1 {
			dx[i] = dy[i] - math.Exp(y[i])*s
		} else {
			dx[i] = y[i] * (dy[i] - s)
		}
	}
	return dx
}

func column(t *rawtensor.Tensor, o, k int) []float64 {
	v := make([]float64, t.Shape[1])
	for i := range v {
		v[i] = t.Float(o, i, k)
	}
	return v
}

func requireClose(t *testing.T, want, got []float64, tol float64, what string) {
	t.Helper()
	for i := range want {
		if math.IsNaN(want[i]) || math.IsInf(want[i], 0) {
			require.Equal(t, fmt.Sprint(want[i]), fmt.Sprint(got[i]), "%s: element %d", what, i)
			continue
		}
		require.InDelta(t, want[i], got[i], tol*(1+math.Abs(want[i])), "%s: element %d", what, i)
	}
}

// shapes have short and long rows, one and many columns, columns that share a wide row, and no elements.
var shapes = [][3]int{{1, 1, 1}, {3, 7, 1}, {5, 1000, 1}, {2, 20000, 1}, {2, 5, 3}, {3, 1, 4}, {2, 300, 7}, {1, 70, 513},
	{2, 33, 64}, {1, 2000, 2}, {4, 3, 600}, {0, 3, 1}, {2, 0, 1}, {2, 3, 0}}

func TestAgainstDefinition(t *testing.T) {
	workers := pool.New(3)
	defer workers.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, dtype := range floats {
		for _, s := range shapes {
			for log := range 2 {
				x := rawtensor.New(t, dtype, s[:]...).Fill(func([]int) float64 { return rng.NormFloat64() * 3 })
				dy := rawtensor.New(t, dtype, s[:]...).Fill(func([]int) float64 { return rng.NormFloat64() })
				y, dx := rawtensor.New(t, dtype, s[:]...), rawtensor.New(t, dtype, s[:]...)
				forward(workers.Ptr(), dtype, log, x.Ptr, y.Ptr, s[0], s[1], s[2])
				backward(workers.Ptr(), dtype, log, y.Ptr, dy.Ptr, dx.Ptr, s[0], s[1], s[2])
				for o := range s[0] {
					for k := range s[2] {
						what := fmt.Sprintf("%s %v log %d at %d %d", rawtensor.Name(dtype), s, log, o, k)
						requireClose(t, reference(column(x, o, k), log), column(y, o, k), tolerance[dtype], what)
						want := referenceGrad(column(y, o, k), column(dy, o, k), log)
						requireClose(t, want, column(dx, o, k), tolerance[dtype]*(1+float64(s[1])/100), what+" gradient")
					}
				}
			}
		}
	}
}

// A result that is too large for the caches uses non-temporal stores, with the same bits.
func TestNonTemporalStores(t *testing.T) {
	workers := pool.New(2)
	defer workers.Close()
	const rows, n = 8200, 1029 // rows that start inside a cache line
	rng := rand.New(rand.NewPCG(3, 4))
	x := rawtensor.New(t, rawtensor.Float32, rows, n, 1).Fill(func([]int) float64 { return rng.NormFloat64() })
	y, want := rawtensor.New(t, rawtensor.Float32, rows, n, 1), rawtensor.New(t, rawtensor.Float32, rows, n, 1)
	for log := range 2 {
		forward(workers.Ptr(), rawtensor.Float32, log, x.Ptr, y.Ptr, rows, n, 1)
		for r := 0; r < rows; r += 100 {
			at := 4 * r * n
			forward(nil, rawtensor.Float32, log, unsafe.Add(x.Ptr, at), unsafe.Add(want.Ptr, at), 100, n, 1)
		}
		require.True(t, bytes.Equal(want.Memory(), y.Memory()), "log %d", log)
	}
}

// A NaN makes its whole row NaN, whatever the NaN's bits are.
func TestNaNBits(t *testing.T) {
	for _, bits := range []uint32{0x7fc00000, 0x7fc00001, 0xffc000ff, 0x7fffffff} {
		x, y := rawtensor.New(t, rawtensor.Float32, 1, 40, 1), rawtensor.New(t, rawtensor.Float32, 1, 40, 1)
		*(*uint32)(unsafe.Add(x.Ptr, 4*7)) = bits
		forward(nil, rawtensor.Float32, 0, x.Ptr, y.Ptr, 1, 40, 1)
		for i, v := range column(y, 0, 0) {
			require.True(t, math.IsNaN(v), "%#x: element %d is %v", bits, i, v)
		}
	}
}

func TestSpecialValues(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	rows := [][]float64{
		{-inf, -inf, -inf}, // the maximum is -inf: NaN
		{-inf, 0, 1},       // masked elements get exactly 0
		{inf, 0, 1},
		{nan, 0, 1},
		{nan, -inf, -inf},
		{-1e4, -1e4, -1e4},
		{6e4, 0, -6e4},
		{-200, 0, -80},
	}
	const long = 9000 // more than one buffer: one block has the value, the others have -inf
	for _, dtype := range floats {
		for _, row := range rows {
			for log := range 2 {
				for _, inner := range []int{1, 3} {
					for _, n := range []int{len(row), long} {
						padded := make([]float64, n)
						for i := range padded {
							padded[i] = -inf
						}
						copy(padded[n-len(row):], row)
						x := rawtensor.New(t, dtype, 1, n, inner).Fill(func(i []int) float64 { return padded[i[1]] })
						y := rawtensor.New(t, dtype, 1, n, inner)
						forward(nil, dtype, log, x.Ptr, y.Ptr, 1, n, inner)
						want := reference(column(x, 0, inner-1), log)
						for i := range want {
							want[i] = rawtensor.Decode(dtype, rawtensor.Encode(dtype, want[i]))
						}
						if math.IsNaN(want[n-1]) || math.IsNaN(want[n-2]) {
							for i := range want { // a NaN makes the whole row NaN
								want[i] = nan
							}
						}
						got := column(y, 0, inner-1)
						requireClose(t, want, got, tolerance[dtype], fmt.Sprintf("%s %v log %d inner %d n %d", rawtensor.Name(dtype), row, log, inner, n))
						if log == 0 && row[0] == -inf && row[1] == 0 {
							require.Zero(t, got[0])
						}
					}
				}
			}
		}
	}
}

func TestBitsDoNotDependOnThreads(t *testing.T) {
	workers := pool.New(4)
	defer workers.Close()
	rng := rand.New(rand.NewPCG(3, 4))
	for _, s := range [][3]int{{300, 1000, 1}, {20, 300, 70}} {
		x := rawtensor.New(t, rawtensor.Float32, s[:]...).Fill(func([]int) float64 { return rng.NormFloat64() })
		one, many := rawtensor.New(t, rawtensor.Float32, s[:]...), rawtensor.New(t, rawtensor.Float32, s[:]...)
		forward(nil, rawtensor.Float32, 0, x.Ptr, one.Ptr, s[0], s[1], s[2])
		forward(workers.Ptr(), rawtensor.Float32, 0, x.Ptr, many.Ptr, s[0], s[1], s[2])
		require.True(t, bytes.Equal(one.Memory(), many.Memory()), "%v", s)
	}
}

func BenchmarkSoftmax(b *testing.B) {
	workers := pool.New(2)
	defer workers.Close()
	for _, s := range [][3]int{{64, 1000, 1}, {16384, 1024, 1}, {512, 32768, 1}, {1, 16384, 1024}, {64, 256, 1024}} {
		x := rawtensor.New(b, rawtensor.Float32, s[:]...)
		y := rawtensor.New(b, rawtensor.Float32, s[:]...)
		x.Random(rand.New(rand.NewPCG(1, 1)))
		copy(y.Memory(), x.Memory())
		bytes := int64(2 * len(x.Memory()))
		b.Run(fmt.Sprintf("copy/%v", s), func(b *testing.B) {
			b.SetBytes(bytes)
			for range b.N {
				copy(y.Memory(), x.Memory())
			}
		})
		for log, name := range []string{"softmax", "log_softmax"} {
			b.Run(fmt.Sprintf("%s/%v", name, s), func(b *testing.B) {
				b.SetBytes(bytes)
				for range b.N {
					forward(workers.Ptr(), rawtensor.Float32, log, x.Ptr, y.Ptr, s[0], s[1], s[2])
				}
			})
			b.Run(fmt.Sprintf("%s_backward/%v", name, s), func(b *testing.B) {
				b.SetBytes(bytes * 3 / 2)
				for range b.N {
					backward(workers.Ptr(), rawtensor.Float32, log, y.Ptr, x.Ptr, y.Ptr, s[0], s[1], s[2])
				}
			})
		}
	}
}
