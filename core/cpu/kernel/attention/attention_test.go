package attention

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

type raw = rawtensor.Tensor

// A setup is one configuration of attention.
type setup struct {
	name                     string
	batch, heads, kvHeads    int
	queries, keys, dim, vdim int
	causal                   bool
	mask                     string // "", "bool", "float" or "keys": one bool row for all queries
	dropout, scale           float64
	transposed               bool // memory order [batch, length, heads, dim], as a projection writes it
	seed, offset             uint64
	allHeads                 int  // of which heads are the first; 0 means just these
	hideAll                  bool // the mask hides all keys from query 1
}

func (s setup) probability(b, h, q, k int) float64 {
	if s.dropout == 0 {
		return 1
	}
	padded := (s.keys + 3) / 4 * 4
	if keeps(s, uint64(((b*max(s.allHeads, s.heads)+h)*s.queries+q)*padded+k)) {
		return 1 / (1 - s.dropout)
	}
	return 0
}

// keeps reports whether dropout keeps the weight of one random word, by the definition of Philox4x32-10.
func keeps(s setup, index uint64) bool {
	counter := s.offset + index/4
	c := [4]uint32{uint32(counter), uint32(counter >> 32), 0, 0}
	key := [2]uint32{uint32(s.seed), uint32(s.seed >> 32)}
	for range 10 {
		p, q := uint64(c[0])*0xD2511F53, uint64(c[2])*0xCD9E8D57
		c = [4]uint32{uint32(q>>32) ^ c[1] ^ key[0], uint32(q), uint32(p>>32) ^ c[3] ^ key[1], uint32(p)}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return uint64(c[index%4]) < uint64((1-s.dropout)*0x1p32)
}

type tensors struct{ q, k, v, mask, do *raw }

func (s setup) tensor(t testing.TB, dtype int, heads, length, dim int) *raw {
	if s.transposed {
		return rawtensor.New(t, dtype, s.batch, length, heads, dim).Permute(0, 2, 1, 3)
	}
	return rawtensor.New(t, dtype, s.batch, heads, length, dim)
}

func (s setup) random(t testing.TB, dtype int) tensors {
	rng := rand.New(rand.NewPCG(1, 2))
	normal := func([]int) float64 { return rng.NormFloat64() }
	x := tensors{
		q:  s.tensor(t, dtype, s.heads, s.queries, s.dim).Fill(normal),
		k:  s.tensor(t, dtype, s.kvHeads, s.keys, s.dim).Fill(normal),
		v:  s.tensor(t, dtype, s.kvHeads, s.keys, s.vdim).Fill(normal),
		do: s.tensor(t, dtype, s.heads, s.queries, s.vdim).Fill(normal),
	}
	full := []int{s.batch, s.heads, s.queries, s.keys}
	switch s.mask {
	case "bool":
		x.mask = rawtensor.New(t, rawtensor.Bool, s.queries, s.keys).Fill(func(i []int) float64 {
			if s.hideAll && i[0] == 1 {
				return 0
			}
			return float64(rng.IntN(2))
		}).Expand(full...)
	case "keys":
		x.mask = rawtensor.New(t, rawtensor.Bool, s.batch, 1, 1, s.keys).Fill(func([]int) float64 { return float64(rng.IntN(2)) }).Expand(full...)
	case "float":
		x.mask = rawtensor.New(t, dtype, 1, s.heads, s.queries, s.keys).Fill(normal).Expand(full...)
	}
	return x
}

func (s setup) problem(x tensors) problem {
	dims := func(t *raw) view { return newView(t.Ptr, t.Strides) }
	p := newProblem(x.q.DType, dims(x.q), dims(x.k), dims(x.v), x.q.Shape, x.k.Shape, s.vdim, s.scale, s.causal)
	if x.mask != nil {
		setMask(&p, x.mask.DType, x.mask.Ptr, x.mask.Strides)
	}
	if s.dropout > 0 {
		setDropout(&p, s.dropout, s.seed, s.offset, max(s.allHeads, s.heads))
	}
	return p
}

// reference computes the result and the gradients from the full matrix of scores.
func (s setup) reference(x tensors) (o, dq, dk, dv func(i ...int) float64) {
	at := func(heads, length, dim int) ([]float64, func(i ...int) float64, func(i []int) int) {
		d := make([]float64, s.batch*heads*length*dim)
		pos := func(i []int) int { return ((i[0]*heads+i[1])*length+i[2])*dim + i[3] }
		return d, func(i ...int) float64 { return d[pos(i)] }, pos
	}
	od, o, oAt := at(s.heads, s.queries, s.vdim)
	qd, dq, qAt := at(s.heads, s.queries, s.dim)
	kd, dk, kAt := at(s.kvHeads, s.keys, s.dim)
	vd, dv, vAt := at(s.kvHeads, s.keys, s.vdim)
	for b := range s.batch {
		for h := range s.heads {
			g := h / (s.heads / s.kvHeads)
			for q := range s.queries {
				w, top, sum := make([]float64, s.keys), math.Inf(-1), 0.0
				for k := range w {
					for d := range s.dim {
						w[k] += x.q.Float(b, h, q, d) * x.k.Float(b, g, k, d) * s.scale
					}
					if s.causal && k > q {
						w[k] = math.Inf(-1)
					}
					if x.mask != nil {
						if m := x.mask.Value(b, h, q, k); x.mask.DType != rawtensor.Bool {
							w[k] += m
						} else if m == 0 {
							w[k] = math.Inf(-1)
						}
					}
					top = math.Max(top, w[k])
				}
				if math.IsInf(top, -1) {
					continue
				}
				for k := range w {
					w[k] = math.Exp(w[k] - top)
					sum += w[k]
				}
				dw, dot := make([]float64, s.keys), 0.0
				for k := range w {
					w[k] /= sum
					keep := s.probability(b, h, q, k)
					for d := range s.vdim {
						od[oAt([]int{b, h, q, d})] += w[k] * keep * x.v.Float(b, g, k, d)
						vd[vAt([]int{b, g, k, d})] += w[k] * keep * x.do.Float(b, h, q, d)
						dw[k] += keep * x.v.Float(b, g, k, d) * x.do.Float(b, h, q, d)
					}
					dot += w[k] * dw[k]
				}
				for k := range w {
					ds := w[k] * (dw[k] - dot) * s.scale
					for d := range s.dim {
						qd[qAt([]int{b, h, q, d})] += ds * x.k.Float(b, g, k, d)
						kd[kAt([]int{b, g, k, d})] += ds * x.q.Float(b, h, q, d)
					}
				}
			}
		}
	}
	return o, dq, dk, dv
}

func requireSame(t *testing.T, want func(i ...int) float64, got *raw, tol float64, what string) {
	t.Helper()
	got.Each(func(i []int) {
		w, g := want(i...), got.Float(i...)
		if !(math.Abs(w-g) <= tol*(1+math.Abs(w))) {
			require.InDelta(t, w, g, tol, "%s at %v", what, i)
		}
	})
}

var tolerance = map[int]float64{rawtensor.Float16: 8e-3, rawtensor.BFloat16: 6e-2, rawtensor.Float32: 2e-5, rawtensor.Float64: 1e-12}

var setups = []setup{
	{name: "plain", batch: 2, heads: 3, kvHeads: 3, queries: 5, keys: 7, dim: 8, vdim: 8, scale: 0.35},
	{name: "one", batch: 1, heads: 1, kvHeads: 1, queries: 1, keys: 1, dim: 1, vdim: 1, scale: 1},
	{name: "tiles", batch: 1, heads: 2, kvHeads: 2, queries: 130, keys: 200, dim: 20, vdim: 24, scale: 0.2},
	{name: "wide", batch: 1, heads: 1, kvHeads: 1, queries: 70, keys: 66, dim: 256, vdim: 256, scale: 0.06},
	{name: "causal", batch: 2, heads: 2, kvHeads: 2, queries: 150, keys: 150, dim: 16, vdim: 16, scale: 0.25, causal: true},
	{name: "causal longer", batch: 1, heads: 1, kvHeads: 1, queries: 30, keys: 100, dim: 4, vdim: 4, scale: 0.5, causal: true},
	{name: "causal shorter", batch: 1, heads: 1, kvHeads: 1, queries: 140, keys: 70, dim: 4, vdim: 4, scale: 0.5, causal: true},
	{name: "grouped", batch: 2, heads: 6, kvHeads: 2, queries: 17, keys: 33, dim: 12, vdim: 16, scale: 0.3},
	{name: "transposed", batch: 2, heads: 3, kvHeads: 3, queries: 65, keys: 9, dim: 16, vdim: 16, scale: 0.25, transposed: true},
	{name: "bool", batch: 1, heads: 2, kvHeads: 2, queries: 9, keys: 70, dim: 8, vdim: 8, scale: 0.35, mask: "bool", hideAll: true},
	{name: "keys", batch: 2, heads: 2, kvHeads: 1, queries: 9, keys: 70, dim: 8, vdim: 8, scale: 0.35, mask: "keys"},
	{name: "float", batch: 2, heads: 2, kvHeads: 2, queries: 70, keys: 70, dim: 8, vdim: 8, scale: 0.35, mask: "float", causal: true},
	{name: "dropout of a part", batch: 2, heads: 2, kvHeads: 1, queries: 5, keys: 7, dim: 8, vdim: 8, scale: 0.35, dropout: 0.4, seed: 3, offset: 9, allHeads: 5},
	{name: "dropout", batch: 2, heads: 2, kvHeads: 2, queries: 70, keys: 67, dim: 8, vdim: 8, scale: 0.35, dropout: 0.4, seed: 1<<40 + 7, offset: 1 << 33},
	{name: "many", batch: 5, heads: 4, kvHeads: 4, queries: 10, keys: 10, dim: 16, vdim: 16, scale: 0.25, causal: true},
	{name: "no keys", batch: 1, heads: 1, kvHeads: 1, queries: 3, keys: 0, dim: 4, vdim: 4, scale: 1},
	{name: "no queries", batch: 1, heads: 1, kvHeads: 1, queries: 0, keys: 3, dim: 4, vdim: 4, scale: 1},
}

func TestAgainstDefinition(t *testing.T) {
	workers := pool.New(3)
	defer workers.Close()
	defer limit(tiles)
	for _, s := range setups {
		for _, dtype := range []int{rawtensor.Float16, rawtensor.BFloat16, rawtensor.Float32, rawtensor.Float64} {
			t.Run(fmt.Sprintf("%s/%s", s.name, rawtensor.Name(dtype)), func(t *testing.T) {
				x := s.random(t, dtype)
				var want [4]func(i ...int) float64
				want[0], want[1], want[2], want[3] = s.reference(x)
				for isa, name := range []string{baseline: "baseline", avx2: "AVX2", avx512: "AVX-512", tiles: "tiles"} {
					limit(isa)
					t.Run(name, func(t *testing.T) { s.run(t, workers, x, want) })
				}
			})
		}
	}
}

// run compares the result and the gradients with the reference.
func (s setup) run(t *testing.T, workers *pool.Pool, x tensors, want [4]func(i ...int) float64) {
	dtype := x.q.DType
	ctx := &kernel.Context{Pool: workers.Ptr()}
	defer ctx.FreeScratch()
	p := s.problem(x)
	acc := rawtensor.Float32
	if dtype == rawtensor.Float64 {
		acc = dtype
	}
	v := func(x *raw) view { return newView(x.Ptr, x.Strides) }
	lse := rawtensor.New(t, acc, s.batch, s.heads, s.queries)
	o := s.tensor(t, dtype, s.heads, s.queries, s.vdim)
	require.NoError(t, forward(ctx, &p, v(o), lse.Ptr))
	tol := tolerance[dtype]
	requireSame(t, want[0], o, tol, "o")

	dq := s.tensor(t, dtype, s.heads, s.queries, s.dim)
	dk, dv := s.tensor(t, dtype, s.kvHeads, s.keys, s.dim), s.tensor(t, dtype, s.kvHeads, s.keys, s.vdim)
	require.NoError(t, backward(ctx, &p, v(o), lse.Ptr, v(x.do), v(dq), v(dk), v(dv)))
	for i, g := range []*raw{dq, dk, dv} {
		requireSame(t, want[i+1], g, 4*tol, []string{"dq", "dk", "dv"}[i])
	}

	// A gradient computed alone has the same bits, and so has everything on one thread.
	for i, whole := range []*raw{dq, dk, dv} {
		alone := whole.Clone(t)
		clear(alone.Memory())
		var out [3]view
		out[i] = v(alone)
		one := &kernel.Context{}
		defer one.FreeScratch()
		require.NoError(t, backward(one, &p, v(o), lse.Ptr, v(x.do), out[0], out[1], out[2]))
		require.True(t, bytes.Equal(whole.Clone(t).Memory(), alone.Memory()), "gradient %d alone", i)
	}
}

func TestHiddenQueriesGiveZero(t *testing.T) {
	s := setup{batch: 1, heads: 1, kvHeads: 1, queries: 3, keys: 70, dim: 4, vdim: 4, scale: 1, mask: "bool", hideAll: true}
	x := s.random(t, rawtensor.Float32)
	p := s.problem(x)
	ctx := &kernel.Context{}
	o, lse := rawtensor.New(t, rawtensor.Float32, 1, 1, 3, 4), rawtensor.New(t, rawtensor.Float32, 3)
	require.NoError(t, forward(ctx, &p, newView(o.Ptr, o.Strides), lse.Ptr))
	for d := range 4 {
		require.Zero(t, o.Float(0, 0, 1, d))
	}
	require.Equal(t, math.Inf(1), lse.Float(1))
}

// A NaN in a query only reaches that query's result.
func TestNaNStaysInItsRow(t *testing.T) {
	s := setup{batch: 1, heads: 1, kvHeads: 1, queries: 4, keys: 70, dim: 4, vdim: 4, scale: 1}
	x := s.random(t, rawtensor.Float32)
	x.q.Set(math.NaN(), 0, 0, 2, 1)
	p := s.problem(x)
	o, lse := rawtensor.New(t, rawtensor.Float32, 1, 1, 4, 4), rawtensor.New(t, rawtensor.Float32, 4)
	require.NoError(t, forward(&kernel.Context{}, &p, newView(o.Ptr, o.Strides), lse.Ptr))
	o.Each(func(i []int) { require.Equal(t, i[2] == 2, math.IsNaN(o.Float(i...)), "%v", i) })
}

func BenchmarkAttention(b *testing.B) {
	workers := pool.New(2)
	defer workers.Close()
	for _, s := range []setup{
		{name: "gpt", batch: 8, heads: 4, kvHeads: 4, queries: 128, keys: 128, dim: 32, vdim: 32, scale: 0.2, causal: true},
		{name: "1024x64", batch: 1, heads: 12, kvHeads: 12, queries: 1024, keys: 1024, dim: 64, vdim: 64, scale: 0.125},
		{name: "1024x64 causal", batch: 1, heads: 12, kvHeads: 12, queries: 1024, keys: 1024, dim: 64, vdim: 64, scale: 0.125, causal: true},
		{name: "1024x64 dropout", batch: 1, heads: 12, kvHeads: 12, queries: 1024, keys: 1024, dim: 64, vdim: 64, scale: 0.125, dropout: 0.1},
		{name: "decode", batch: 8, heads: 12, kvHeads: 12, queries: 1, keys: 1024, dim: 64, vdim: 64, scale: 0.125},
	} {
		x := s.random(b, rawtensor.Float32)
		p := s.problem(x)
		ctx := &kernel.Context{Pool: workers.Ptr()}
		lse := rawtensor.New(b, rawtensor.Float32, s.batch, s.heads, s.queries)
		o := s.tensor(b, rawtensor.Float32, s.heads, s.queries, s.vdim)
		dq, dk, dv := x.q.Clone(b), x.k.Clone(b), x.v.Clone(b)
		v := func(x *raw) view { return newView(x.Ptr, x.Strides) }
		work := 4 * float64(s.batch*s.heads*s.queries*s.keys) * float64(s.dim)
		if s.causal {
			work /= 2
		}
		b.Run(s.name+"/forward", func(b *testing.B) {
			for range b.N {
				_ = forward(ctx, &p, v(o), lse.Ptr)
			}
			b.ReportMetric(work*float64(b.N)/b.Elapsed().Seconds()*1e-9, "GFLOP/s")
		})
		b.Run(s.name+"/backward", func(b *testing.B) {
			for range b.N {
				_ = backward(ctx, &p, v(o), lse.Ptr, v(x.do), v(dq), v(dk), v(dv))
			}
			b.ReportMetric(2.5*work*float64(b.N)/b.Elapsed().Seconds()*1e-9, "GFLOP/s")
		})
		ctx.FreeScratch()
	}
}
