package norm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	_ "github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/cpu/pool"
)

// launch runs a kernel on the given pool.
func launch(t testing.TB, workers *pool.Pool, name string, outs, ins []*core.Tensor, ints []int, floats ...float64) {
	t.Helper()
	fn := kernel.Lookup(core.Kernel(name))
	require.NotNil(t, fn)
	var c core.Call
	c.Reset(ins[0].Storage().Stream(), core.Kernel(name), name)
	for _, o := range outs {
		c.Out(o)
	}
	for _, i := range ins {
		c.In(i)
	}
	c.Dims(ints).Float(floats...)
	ctx := kernel.Context{Pool: workers.Ptr()}
	defer ctx.FreeScratch()
	require.NoError(t, fn(&ctx, &c))
}

func zeros(n int, shape ...int) *core.Tensor { return core.FromSlice(make([]float32, n), shape...) }

func normal(rng *rand.Rand, n int, shape ...int) *core.Tensor {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(rng.NormFloat64()*2 + 5)
	}
	return core.FromSlice(v, shape...)
}

func floats(t testing.TB, x *core.Tensor) []float64 {
	t.Helper()
	v, err := core.Values[float64](x)
	require.NoError(t, err)
	return v
}

func requireNear(t *testing.T, want, got []float64, tolerance float64, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	for i := range want {
		if math.Abs(want[i]-got[i]) > tolerance*(1+math.Abs(want[i])) {
			require.InDelta(t, want[i], got[i], tolerance, "%s at %d", what, i)
		}
	}
}

// grouping returns the statistic and the channel of each element of [batch, channels, inner].
type grouping func(b, c, s int) (set, channel int)

// reference normalises by the definition. It returns y, dx, dw and db.
func reference(x, dy, w, b []float64, batch, channels, inner, sets int, in grouping, eps float64) (y, dx, dw, db []float64) {
	n, mean, variance := make([]float64, sets), make([]float64, sets), make([]float64, sets)
	each := func(fn func(i, set, c int)) {
		for i := range x {
			set, c := in(i/(channels*inner), i/inner%channels, i%inner)
			fn(i, set, c)
		}
	}
	each(func(i, set, _ int) { n[set]++; mean[set] += x[i] })
	for s := range mean {
		mean[s] /= n[s]
	}
	each(func(i, set, _ int) { variance[set] += (x[i] - mean[set]) * (x[i] - mean[set]) / n[set] })
	y, dx, dw, db = make([]float64, len(x)), make([]float64, len(x)), make([]float64, channels), make([]float64, channels)
	g, gh := make([]float64, sets), make([]float64, sets)
	h := func(i, set int) float64 { return (x[i] - mean[set]) / math.Sqrt(variance[set]+eps) }
	each(func(i, set, c int) {
		y[i] = h(i, set)*w[c] + b[c]
		dw[c] += dy[i] * h(i, set)
		db[c] += dy[i]
		g[set] += dy[i] * w[c] / n[set]
		gh[set] += dy[i] * w[c] * h(i, set) / n[set]
	})
	each(func(i, set, c int) {
		dx[i] = (dy[i]*w[c] - g[set] - h(i, set)*gh[set]) / math.Sqrt(variance[set]+eps)
	})
	return y, dx, dw, db
}

// eps is large, so that groups of a few nearly equal values do not amplify rounding errors.
const eps = 0.1

// The shapes have short and long rows, more rows than one partial sum has, and segments of very long rows.
func TestAgainstDefinitionOnAnyNumberOfThreads(t *testing.T) {
	workers := pool.New(3)
	defer workers.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, s := range [][3]int{{3, 4, 5}, {300, 6, 1}, {2, 4, 100}, {70, 8, 3}, {600, 2, 15}, {5, 2, 16}, {1, 2, 70000}, {3, 600, 1}, {2, 2, 5000}} {
		batch, channels, inner := s[0], s[1], s[2]
		total := batch * channels * inner
		x, dy := normal(rng, total, batch, channels, inner), normal(rng, total, batch, channels, inner)
		w, b := normal(rng, channels, channels), normal(rng, channels, channels)
		xv, dv, wv, bv := floats(t, x), floats(t, dy), floats(t, w), floats(t, b)
		check := func(what, kernelName string, sets, rows int, ints []int, in grouping) {
			t.Helper()
			wantY, wantX, wantW, wantB := reference(xv, dv, wv, bv, batch, channels, inner, sets, in, eps)
			var bits [2][][]float64
			for i, p := range []*pool.Pool{workers, nil} {
				y, stats := zeros(total, batch, channels, inner), zeros(3*rows, 3, rows)
				ins := []*core.Tensor{x, w, b}
				if kernelName == "batch_norm" {
					ins = append(ins, nil, nil)
				}
				launch(t, p, kernelName, []*core.Tensor{y, stats}, ins, ints, eps)
				dx, dw, db := zeros(total, batch, channels, inner), zeros(channels, channels), zeros(channels, channels)
				launch(t, p, kernelName+"_backward", []*core.Tensor{dx, dw, db}, []*core.Tensor{x, dy, w, stats}, ints)
				alone := zeros(total, batch, channels, inner)
				launch(t, p, kernelName+"_backward", []*core.Tensor{alone, nil, nil}, []*core.Tensor{x, dy, w, stats}, ints)
				bits[i] = [][]float64{floats(t, y), floats(t, dx), floats(t, dw), floats(t, db)}
				require.Equal(t, bits[i][1], floats(t, alone), "%s: the gradient of x alone", what)
			}
			require.Equal(t, bits[0], bits[1], "%s: bits on several threads and on one", what)
			requireNear(t, wantY, bits[0][0], 2e-5, what+" y")
			requireNear(t, wantX, bits[0][1], 1e-4, what+" dx")
			scale := math.Sqrt(float64(batch * inner)) // bound for accumulated rounding errors where terms cancel
			requireNear(t, wantW, bits[0][2], 2e-5*scale, what+" dw")
			requireNear(t, wantB, bits[0][3], 2e-5*scale, what+" db")
		}
		check(fmt.Sprint("batch ", s), "batch_norm", channels, channels, []int{batch, channels, inner, 1},
			func(_, c, _ int) (int, int) { return c, c })
		for _, groups := range []int{1, 2, channels} {
			per := channels / groups
			check(fmt.Sprint("group ", s, groups), "group_norm", batch*groups, batch*groups, []int{batch, channels, inner, groups},
				func(b, c, _ int) (int, int) { return b*groups + c/per, c })
		}
	}
}

func TestLayerNormAgainstDefinition(t *testing.T) {
	workers := pool.New(3)
	defer workers.Close()
	rng := rand.New(rand.NewPCG(3, 4))
	for _, s := range [][2]int{{1, 1}, {4, 7}, {700, 33}, {3, 5000}, {40, 1024}, {2, 1}} {
		rows, n := s[0], s[1]
		x, dy, w, b := normal(rng, rows*n, rows, n), normal(rng, rows*n, rows, n), normal(rng, n, n), normal(rng, n, n)
		wantY, wantX, wantW, wantB := reference(floats(t, x), floats(t, dy), floats(t, w), floats(t, b), rows, n, 1, rows,
			func(r, c, _ int) (int, int) { return r, c }, eps)
		var bits [2][][]float64
		for i, p := range []*pool.Pool{workers, nil} {
			y, stats := zeros(rows*n, rows, n), zeros(2*rows, 2, rows)
			launch(t, p, "layer_norm", []*core.Tensor{y, stats}, []*core.Tensor{x, w, b}, []int{rows, n, 0}, eps)
			dx, dw, db := zeros(rows*n, rows, n), zeros(n, n), zeros(n, n)
			launch(t, p, "layer_norm_backward", []*core.Tensor{dx, dw, db}, []*core.Tensor{x, dy, w, stats, nil}, []int{rows, n, 0})
			more, sum := normal(rng, rows*n, rows, n), zeros(rows*n, rows, n)
			launch(t, p, "layer_norm_backward", []*core.Tensor{sum, nil, nil}, []*core.Tensor{x, dy, w, stats, more}, []int{rows, n, 0})
			want, got := floats(t, more), floats(t, sum)
			for j, v := range floats(t, dx) {
				want[j] = float64(float32(want[j]) + float32(v))
			}
			require.Equal(t, want, got, s)
			bits[i] = [][]float64{floats(t, y), floats(t, dx), floats(t, dw), floats(t, db)}
		}
		require.Equal(t, bits[0], bits[1])
		what, scale := fmt.Sprint(s), math.Sqrt(float64(rows))
		requireNear(t, wantY, bits[0][0], 2e-5, what+" y")
		requireNear(t, wantX, bits[0][1], 1e-4, what+" dx")
		requireNear(t, wantW, bits[0][2], 2e-5*scale, what+" dw")
		requireNear(t, wantB, bits[0][3], 2e-5*scale, what+" db")
	}
}

// A large common offset must not change the variance.
func TestVarianceOfShiftedValues(t *testing.T) {
	const n = 10000
	v := make([]float32, n)
	for i := range v {
		v[i] = 4096 + float32(i%2)*2 // mean 4097, variance 1
	}
	x, y, stats := core.FromSlice(v, 1, n), zeros(n, 1, n), zeros(2, 2, 1)
	launch(t, nil, "layer_norm", []*core.Tensor{y, stats}, []*core.Tensor{x, nil, nil}, []int{1, n, 0}, 0)
	for i, got := range floats(t, y) {
		require.InDelta(t, float64(i%2*2-1), got, 1e-5)
	}
}

func BenchmarkNorm(b *testing.B) {
	workers := pool.New(2)
	defer workers.Close()
	rng := rand.New(rand.NewPCG(1, 1))
	run := func(name string, bytes int, fn func()) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(bytes))
			for range b.N {
				fn()
			}
		})
	}
	for _, s := range [][2]int{{64, 1024}, {16384, 1024}, {1024, 16384}} {
		rows, n := s[0], s[1]
		x, y, w := normal(rng, rows*n, rows, n), zeros(rows*n, rows, n), normal(rng, n, n)
		dw, db, stats := zeros(n, n), zeros(n, n), zeros(2*rows, 2, rows)
		ints := []int{rows, n, 0}
		run(fmt.Sprintf("copy/%v", s), 8*rows*n, func() { launch(b, workers, "copy", []*core.Tensor{y}, []*core.Tensor{x}, nil) })
		run(fmt.Sprintf("layer_norm/%v", s), 8*rows*n, func() {
			launch(b, workers, "layer_norm", []*core.Tensor{y, stats}, []*core.Tensor{x, w, w}, ints, eps)
		})
		run(fmt.Sprintf("layer_norm_backward/%v", s), 12*rows*n, func() {
			launch(b, workers, "layer_norm_backward", []*core.Tensor{y, dw, db}, []*core.Tensor{x, x, w, stats, nil}, ints)
		})
	}
	for _, s := range [][3]int{{64, 64, 1024}, {64, 256, 49}, {4096, 512, 1}} {
		total := s[0] * s[1] * s[2]
		x, y, w := normal(rng, total, s[0], s[1], s[2]), zeros(total, s[0], s[1], s[2]), normal(rng, s[1], s[1])
		dw, db, stats := zeros(s[1], s[1]), zeros(s[1], s[1]), zeros(3*s[1], 3, s[1])
		ints := []int{s[0], s[1], s[2], 1}
		run(fmt.Sprintf("copy/%v", s), 8*total, func() { launch(b, workers, "copy", []*core.Tensor{y}, []*core.Tensor{x}, nil) })
		run(fmt.Sprintf("batch_norm/%v", s), 8*total, func() {
			launch(b, workers, "batch_norm", []*core.Tensor{y, stats}, []*core.Tensor{x, w, w, nil, nil}, ints, eps)
		})
		run(fmt.Sprintf("batch_norm_backward/%v", s), 12*total, func() {
			launch(b, workers, "batch_norm_backward", []*core.Tensor{y, dw, db}, []*core.Tensor{x, x, w, stats, nil}, ints)
		})
	}
}
