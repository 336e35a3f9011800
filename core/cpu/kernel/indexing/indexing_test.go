package indexing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

func viewOf(t *rawtensor.Tensor) *view {
	v := newView(t.Ptr, t.DType, t.Shape, t.Strides)
	return &v
}

func scratch(t testing.TB, bytes int) unsafe.Pointer {
	return rawtensor.New(t, rawtensor.Uint8, max(bytes, 1)+63).Ptr
}

// pools returns pools of several sizes. All of them must give the same bits.
func pools(t testing.TB) []*pool.Pool {
	three := pool.New(3)
	t.Cleanup(three.Close)
	return []*pool.Pool{nil, three}
}

// layout returns a tensor in a random memory layout.
func layout(t testing.TB, rng *rand.Rand, dtype int, shape []int) *rawtensor.Tensor {
	all := rawtensor.Layouts(t, dtype, shape)
	names := []string{"contiguous", "transposed", "sliced", "flipped", "narrowed"}
	if v := all[names[rng.IntN(len(names))]]; v != nil {
		return v
	}
	return all["contiguous"]
}

// randomIndex returns an index tensor with values in [low, high).
func randomIndex(t testing.TB, rng *rand.Rand, shape []int, low, high int) *rawtensor.Tensor {
	index := layout(t, rng, []int{rawtensor.Int32, rawtensor.Int64}[rng.IntN(2)], shape)
	return index.Fill(func([]int) float64 { return float64(low + rng.IntN(high-low)) })
}

func requireSame(t *testing.T, want, got *rawtensor.Tensor, what string) {
	t.Helper()
	want.Each(func(index []int) {
		w, g := want.Bits(index...), got.Bits(index...)
		if w != g && !(math.IsNaN(want.Value(index...)) && math.IsNaN(got.Value(index...))) {
			require.Equal(t, fmt.Sprintf("%#x (%v)", w, want.Value(index...)), fmt.Sprintf("%#x (%v)", g, got.Value(index...)), "%s at %v", what, index)
		}
	})
}

// combine returns the result of a mode for two values of a dtype. It combines 16-bit floats as float64; the caller
// rounds.
func combine(mode, dtype int, a, b float64) float64 {
	switch mode {
	case assign:
		return b
	case add:
		a += b
	case multiply:
		a *= b
	case largest:
		a = max(a, b)
	case smallest:
		a = min(a, b)
	}
	switch dtype {
	case rawtensor.Bool:
		return math.Min(a, 1)
	case rawtensor.Float32:
		return float64(float32(a))
	}
	if rawtensor.IsFloat(dtype) {
		return a
	}
	return rawtensor.Wrap(dtype, int64(a))
}

// skipped reports whether a test skips a combination. Large tensors test how work is split, so they skip most dtypes and
// modes.
func skipped(shape []int, dtype, mode int) bool {
	return rawtensor.Numel(shape) > 3000 && (dtype != rawtensor.Float32 && dtype != rawtensor.BFloat16 || mode > add)
}

// The modes of scatter and put.
const (
	assign   = int(contract.ScatterAssign)
	add      = int(contract.ScatterAdd)
	multiply = int(contract.ScatterMul)
	largest  = int(contract.ScatterMax)
	smallest = int(contract.ScatterMin)
)

var modes = []int{assign, add, multiply, largest, smallest}

func TestGather(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, c := range []struct {
		in, index []int
		dim       int
	}{
		{[]int{7}, []int{20}, 0}, {[]int{3, 5}, []int{3, 9}, 1}, {[]int{3, 5}, []int{8, 4}, 0}, {[]int{4, 3, 6}, []int{2, 11, 6}, 1},
		{[]int{2, 3, 4, 5}, []int{2, 3, 9, 5}, 2}, {[]int{5, 0}, []int{5, 0}, 0}, {[]int{}, []int{}, 0}, {[]int{300, 70}, []int{400, 70}, 0},
		{[]int{30000}, []int{20000}, 0}, {[]int{700, 4}, []int{700, 4}, 1}, {[]int{700, 3}, []int{700, 1}, 1}, {[]int{90, 5, 4}, []int{90, 8, 4}, 1},
	} {
		for _, dtype := range rawtensor.DTypes {
			if skipped(c.index, dtype, 0) {
				continue
			}
			in := layout(t, rng, dtype, c.in).Random(rng)
			limit := 1
			if len(c.in) > 0 {
				limit = c.in[c.dim]
			}
			index := randomIndex(t, rng, c.index, 0, limit)
			want := rawtensor.New(t, dtype, c.index...).Fill(func(at []int) float64 {
				from := slices.Clone(at)
				if len(from) > 0 {
					from[c.dim] = int(index.Int(at...))
				}
				return in.Value(from...)
			})
			for _, p := range pools(t) {
				out := layout(t, rng, dtype, c.index)
				var b bad
				require.True(t, gather(p.Ptr(), viewOf(out), viewOf(in), viewOf(index), c.dim, &b))
				requireSame(t, want, out, fmt.Sprint("gather ", c, rawtensor.Name(dtype)))
			}
		}
	}
}

func TestScatter(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, c := range []struct {
		self, index []int
		dim         int
	}{
		{[]int{7}, []int{20}, 0}, {[]int{3, 5}, []int{3, 9}, 1}, {[]int{3, 5}, []int{8, 4}, 0}, {[]int{4, 3, 6}, []int{2, 11, 6}, 1},
		{[]int{2, 3, 4, 5}, []int{2, 3, 9, 5}, 2}, {[]int{5, 0}, []int{5, 0}, 0}, {[]int{}, []int{}, 0}, {[]int{30, 700}, []int{40, 700}, 0},
		{[]int{900, 20}, []int{900, 33}, 1}, {[]int{10, 3}, []int{5000, 3}, 0},
	} {
		for _, dtype := range rawtensor.DTypes {
			for _, mode := range modes {
				if mode != assign && (dtype == rawtensor.Float16 || dtype == rawtensor.BFloat16) || skipped(c.index, dtype, mode) {
					continue // 16-bit floats are combined in float32 by the caller
				}
				self := layout(t, rng, dtype, c.self).Random(rng)
				limit := 1
				if len(c.self) > 0 {
					limit = c.self[c.dim]
				}
				index := randomIndex(t, rng, c.index, 0, limit)
				src := layout(t, rng, dtype, c.index).Random(rng)
				want := self.Clone(t)
				index.Each(func(at []int) {
					to := slices.Clone(at)
					if len(to) > 0 {
						to[c.dim] = int(index.Int(at...))
					}
					want.Set(combine(mode, dtype, want.Value(to...), src.Value(at...)), to...)
				})
				for _, p := range pools(t) {
					out := layout(t, rng, dtype, c.self).Fill(func(at []int) float64 { return self.Value(at...) })
					var b bad
					require.True(t, scatter(p.Ptr(), viewOf(out), viewOf(index), viewOf(src), c.dim, mode, &b))
					requireSame(t, want, out, fmt.Sprint("scatter ", c, rawtensor.Name(dtype), mode))
				}
			}
		}
	}
}

func TestBadIndicesAreFoundAndChangeNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, n := range []int{1, 5, 600, 50000} {
		for _, wrong := range []int{-1, 10, 11, math.MinInt32, math.MaxInt32} {
			index := randomIndex(t, rng, []int{n}, 0, 10)
			first := rng.IntN(n)
			for i := first; i < n; i += 1 + rng.IntN(n) {
				index.Set(float64(wrong), i)
			}
			self, src := rawtensor.New(t, rawtensor.Float32, 10).Random(rng), rawtensor.New(t, rawtensor.Float32, n).Random(rng)
			before := slices.Clone(self.Memory())
			for _, p := range pools(t) {
				want := bad{0, first, wrong}
				var b bad
				require.False(t, gather(p.Ptr(), viewOf(rawtensor.New(t, rawtensor.Float32, n)), viewOf(self), viewOf(index), 0, &b))
				require.Equal(t, want, b)
				b = bad{}
				require.False(t, scatter(p.Ptr(), viewOf(self), viewOf(index), viewOf(src), 0, add, &b))
				require.Equal(t, want, b)
				b = bad{}
				require.False(t, put(p.Ptr(), viewOf(self), viewOf(src), []view{*viewOf(index)}, false, add, scratch(t, 8*n), &b))
				require.Equal(t, want, b)
				b = bad{}
				grad, out := rawtensor.New(t, rawtensor.Float32, n, 1), rawtensor.New(t, rawtensor.Float32, 10, 1)
				require.False(t, embeddingBackward(p.Ptr(), viewOf(out), viewOf(grad), viewOf(index), -1, false, false, scratch(t, 32*n), &b))
				require.Equal(t, want, b)
				b = bad{}
				good := rawtensor.New(t, rawtensor.Int64, n)
				matrix := rawtensor.New(t, rawtensor.Float32, 1, 10)
				views := []view{*viewOf(good), *viewOf(index)}
				if wrong != -1 {
					require.False(t, selectAt(p.Ptr(), viewOf(src), viewOf(matrix), views, true, scratch(t, 8*n), &b))
					require.Equal(t, bad{1, first, wrong}, b)
				}
			}
			require.Equal(t, before, self.Memory())
		}
	}
}

func TestBadIndicesInShortRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	in := rawtensor.New(t, rawtensor.Float32, 900, 3).Random(rng)
	for _, wrong := range []int{-1, 3, math.MinInt32, math.MaxInt32} {
		index := randomIndex(t, rng, []int{900, 3}, 0, 3)
		row := rng.IntN(900)
		index.Set(float64(wrong), row, 1)
		for _, p := range pools(t) {
			var b bad
			require.False(t, gather(p.Ptr(), viewOf(rawtensor.New(t, rawtensor.Float32, 900, 3)), viewOf(in), viewOf(index), 1, &b))
			require.Equal(t, bad{0, 3*row + 1, wrong}, b)
		}
	}
}

func TestEmbeddingBackward(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for _, c := range []struct {
		rows, columns int
		index         []int
	}{{7, 5, []int{20}}, {7, 5, []int{4, 3}}, {3, 600, []int{200}}, {1000, 40, []int{30, 50}}, {4, 0, []int{3}}, {5, 3, []int{0}}, {2, 1, []int{5000}}} {
		for _, dtype := range []int{rawtensor.Float16, rawtensor.BFloat16, rawtensor.Float32, rawtensor.Float64} {
			for _, byFrequency := range []bool{false, true} {
				index := randomIndex(t, rng, c.index, 0, c.rows)
				padding := rng.IntN(c.rows+1) - 1
				grad := layout(t, rng, dtype, append(slices.Clone(c.index), c.columns)).Random(rng)
				sum, count := make([]float64, c.rows*c.columns), make([]float64, c.rows)
				index.Each(func(at []int) {
					row := int(index.Int(at...))
					if row == padding {
						return
					}
					count[row]++
					for i := range c.columns {
						sum[row*c.columns+i] += grad.Value(append(slices.Clone(at), i)...) // exact: small multiples of 1/4
					}
				})
				for i, p := range append(pools(t), pools(t)...) {
					onto := i%2 == 1
					out := layout(t, rng, dtype, []int{c.rows, c.columns})
					out.Fill(func([]int) float64 { return 99 })
					var b bad
					require.True(t, embeddingBackward(p.Ptr(), viewOf(out), viewOf(grad), viewOf(index), padding, byFrequency, onto,
						scratch(t, 32*index.Numel()), &b))
					out.Each(func(at []int) {
						want := sum[at[0]*c.columns+at[1]]
						if byFrequency && count[at[0]] > 0 {
							want = float64(float32(want) * float32(1/count[at[0]]))
							if dtype == rawtensor.Float64 {
								want = sum[at[0]*c.columns+at[1]] * (1 / count[at[0]])
							}
						}
						rounded := rawtensor.Decode(dtype, rawtensor.Encode(dtype, want))
						if onto {
							rounded = rawtensor.Decode(dtype, rawtensor.Encode(dtype, 99+rounded))
						}
						if rounded != out.Float(at...) {
							require.Equal(t, rounded, out.Float(at...), "%v %s at %v, onto %v", c, rawtensor.Name(dtype), at, onto)
						}
					})
				}
			}
		}
	}
}

func TestSumsOfFrequentRowsStayAccurate(t *testing.T) {
	n := 1 << 20
	index, grad := rawtensor.New(t, rawtensor.Int64, n), rawtensor.New(t, rawtensor.Float32, n, 1)
	grad.Fill(func([]int) float64 { return 0.1 })
	out := rawtensor.New(t, rawtensor.Float32, 1, 1)
	var b bad
	require.True(t, embeddingBackward(nil, viewOf(out), viewOf(grad), viewOf(index), -1, false, false, scratch(t, 32*n), &b))
	require.InEpsilon(t, 0.1*float64(n), out.Float(0, 0), 1e-4)
}

func TestMasks(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, shape := range [][]int{{}, {9}, {4, 7}, {3, 0}, {2, 3, 4}, {40000}, {150, 170}, {3, 1, 5}} {
		for _, density := range []float64{0, 0.02, 0.5, 1} {
			mask := layout(t, rng, rawtensor.Bool, shape).Fill(func([]int) float64 {
				if rng.Float64() < density {
					return 1
				}
				return 0
			})
			var where [][]int
			mask.Each(func(at []int) {
				if mask.Int(at...) != 0 {
					where = append(where, at)
				}
			})
			for _, p := range pools(t) {
				require.Equal(t, len(where), count(p.Ptr(), viewOf(mask), scratch(t, maskScratch(viewOf(mask)))))
				out := rawtensor.New(t, rawtensor.Int64, len(shape), len(where))
				positions(p.Ptr(), viewOf(out), viewOf(mask), scratch(t, maskScratch(viewOf(mask))))
				for i, at := range where {
					for d := range shape {
						require.Equal(t, int64(at[d]), out.Int(d, i))
					}
				}
				for _, dtype := range rawtensor.DTypes {
					if len(where) > 1000 && dtype != rawtensor.Float32 {
						continue
					}
					in, picked := layout(t, rng, dtype, shape).Random(rng), rawtensor.New(t, dtype, len(where))
					require.Equal(t, len(where), maskedSelect(p.Ptr(), viewOf(picked), viewOf(in), viewOf(mask), scratch(t, maskScratch(viewOf(mask)))))
					for i, at := range where {
						require.Equal(t, in.Bits(at...), picked.Bits(i))
					}
					source := rawtensor.New(t, dtype, len(where)+2).Random(rng)
					want := in.Clone(t)
					for i, at := range where {
						want.SetBits(source.Bits(i), at...)
					}
					require.Equal(t, len(where), maskedScatter(p.Ptr(), viewOf(in), viewOf(mask), viewOf(source), scratch(t, maskScratch(viewOf(mask)))))
					requireSame(t, want, in, "masked_scatter")
					if len(where) > 0 {
						maskedScatter(p.Ptr(), viewOf(in), viewOf(mask), viewOf(rawtensor.New(t, dtype, len(where)-1)), scratch(t, maskScratch(viewOf(mask))))
						requireSame(t, want, in, "masked_scatter of too few")
					}
				}
			}
		}
	}
}
