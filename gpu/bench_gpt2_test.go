package gpu_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/replay"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/gpu/shader"
)

// BenchmarkGPT2Ops measures the bandwidth of the ops of a GPT-2 124M step that are no matrix products, for a batch of 8 x 1024.
func BenchmarkGPT2Ops(b *testing.B) {
	d := hardwareGPU(b)
	const tokens, width, kinds = 8192, 768, 50257
	leaf := func(shape ...int) *core.Tensor { return on(d, shape...).SetRequiresGrad(true) }
	codes := make([]int64, tokens)
	for i := range codes {
		codes[i] = int64(i * 7919 % kinds)
	}
	target := op.ToDevice(core.FromSlice(codes), d)
	bandwidth := func(b *testing.B, bytes int, d *gpu.Device, fn func()) {
		before := d.Traffic()
		bandwidth(b, bytes, d, fn)
		after := d.Traffic()
		b.ReportMetric(float64(after.Dispatches-before.Dispatches)/float64(b.N), "dispatches")
		b.ReportMetric(float64(after.Submits-before.Submits)/float64(b.N), "submits")
	}
	both := func(name string, forwardMoves, backwardMoves int, fn func() *core.Tensor, of ...*core.Tensor) {
		b.Run(name+" forward", func(b *testing.B) { bandwidth(b, 4*forwardMoves, d, func() { fn() }) })
		b.Run(name+" backward", func(b *testing.B) {
			y := fn()
			g := on(d, y.Shape()...)
			bandwidth(b, 4*backwardMoves, d, func() {
				_, err := autograd.Grad([]*core.Tensor{y}, of, []*core.Tensor{g}, autograd.Options{RetainGraph: true})
				require.NoError(b, err)
			})
		})
	}
	w, bias := leaf(width), leaf(width)
	x := leaf(tokens, width)
	both("norm", 2*tokens*width, 3*tokens*width, func() *core.Tensor { return op.LayerNorm(x, []int{width}, w, bias, 1e-5) }, x, w, bias)
	h := leaf(tokens, 4*width)
	both("gelu", 2*tokens*4*width, 3*tokens*4*width, func() *core.Tensor { return op.Gelu(h, "tanh") }, h)
	for _, n := range []int{width, 3 * width, 4 * width} {
		g := on(d, tokens, n)
		b.Run("bias "+strconv.Itoa(n), func(b *testing.B) { bandwidth(b, 4*tokens*n, d, func() { op.Sum(g, []int{0}, false) }) })
	}
	y := on(d, tokens, width)
	z := on(d, tokens, width)
	b.Run("addition", func(b *testing.B) { bandwidth(b, 12*tokens*width, d, func() { op.Add(y, z) }) })
	b.Run("join", func(b *testing.B) {
		bandwidth(b, 24*tokens*width, d, func() { op.Cat([]*core.Tensor{y, z, y}, 1) })
	})
	table := leaf(kinds, width)
	both("embedding", 2*tokens*width, kinds*width+tokens*width, func() *core.Tensor { return op.Embedding(target, table, op.EmbeddingOptions{}) }, table)
	{
		g, err := newGPT(kinds, 1024, width, 12, 12, d)
		require.NoError(b, err)
		n := 0
		for _, p := range g.p {
			p.SetGrad(op.EmptyWith(p.Shape(), op.TensorOptions{Device: d}))
			n += p.Numel()
		}
		b.Run("AdamW", func(b *testing.B) { bandwidth(b, 28*n, d, func() { require.NoError(b, g.optimizer.Step()) }) })
		g.optimizer.ZeroGrad()
	}
	scores := leaf(tokens, kinds)
	both("loss", tokens*kinds, 2*tokens*kinds, func() *core.Tensor { return op.CrossEntropy(scores, target, op.CrossEntropyOptions{}) }, scores)
	b.Run("copy of scores", func(b *testing.B) { bandwidth(b, 8*tokens*kinds, d, func() { op.Clone(scores) }) })
	ofProduct := op.CrossEntropy(op.Linear(leaf(tokens, width), on(d, kinds, width), nil), target, op.CrossEntropyOptions{})
	b.Run("loss backward, padded rows", func(b *testing.B) { bandwidth(b, 8*tokens*kinds, d, func() { paddedGradient(b, ofProduct) }) })
}

// BenchmarkColumns measures sums of columns: in one dispatch, with different numbers of columns in a workgroup, and in two
// dispatches.
func BenchmarkColumns(b *testing.B) {
	d := hardwareGPU(b)
	for _, shape := range [][2]int{{8192, 768}, {2048, 1024}, {1024, 512}, {4096, 2048}} {
		g := on(d, shape[0], shape[1])
		for _, c := range []int{0, 2, 4} {
			b.Run(fmt.Sprint(shape, " ", c), func(b *testing.B) {
				defer gpu.Tune(d, func(f *shader.Tuning) { f.ColumnVectors, f.ColumnGroups = c, 1 })()
				bandwidth(b, 4*shape[0]*shape[1], d, func() { op.Sum(g, []int{0}, false) })
			})
		}
	}
}

// BenchmarkScatter measures index_add with few, many or all rows at one index, by comparing each row with all others and by
// sorting.
func BenchmarkScatter(b *testing.B) {
	d := hardwareGPU(b)
	for _, kind := range []string{"few", "many", "one"} {
		for _, n := range []int{257, 1024, 2048} {
			for _, width := range []int{1, 64, 768} {
				places := map[string]int{"few": n, "many": n / 64, "one": 1}[kind]
				index := op.ToDevice(op.Randint(0, max(places, 1), n), d)
				x, src := on(d, n, width), on(d, n, width)
				for name, searched := range map[string]int{"sorted": 256, "compared": n} {
					b.Run(fmt.Sprintf("%s/%dx%d/%s", kind, n, width, name), func(b *testing.B) {
						defer gpu.Tune(d, func(f *shader.Tuning) { f.SearchedRows = searched })()
						benchmark(b, d, func() { require.NoError(b, op.IndexAddInPlace(x, 0, index, src).Err()) })
					})
				}
			}
		}
	}
}

// BenchmarkGPT2Step measures a training step of a GPT-2 124M in float32 and under autocast, for a batch of 8 x 1024, in full and replayed.
func BenchmarkGPT2Step(b *testing.B) {
	d := hardwareGPU(b)
	for i := range 4 {
		half, replays := i%2 == 1, i/2 == 1
		b.Run([]string{"float32", "bfloat16", "float32 replayed", "bfloat16 replayed"}[i], func(b *testing.B) {
			core.Tidy(func() {
				g, err := newGPT(50257, 1024, 768, 12, 12, d)
				require.NoError(b, err)
				step := &replay.Step{Tell: func(reason error) { b.Error(reason) }}
				integers := core.Int64
				tokens := op.ZeroInPlace(op.EmptyWith([]int{8, 1024}, op.TensorOptions{Device: d, DType: &integers}))
				places := op.ToDevice(op.Arange(nil, core.IntNum(1024), nil, op.TensorOptions{}), d)
				run := func() {
					core.Tidy(func() {
						if !replays {
							g.mixedStep(b, tokens, places, half)
							return
						}
						_, err := step.Run("", []*core.Tensor{tokens}, func(in []*core.Tensor) ([]*core.Tensor, error) {
							g.mixedStep(b, in[0], places, half)
							return nil, nil
						})
						require.NoError(b, err)
					})
				}
				for range 4 { // after three runs it is replayed
					run()
				}
				if *profiled && !replays {
					profile(b, d, run)
				}
				benchmark(b, d, run)
				step.Close()
				require.NoError(b, d.GraphError())
			})
			d.EmptyCache()
		})
	}
}

// mixedStep runs a training step in float32 or, if half is set, under autocast to bfloat16.
func (g *gpt) mixedStep(t testing.TB, tokens, places *core.Tensor, half bool) {
	var loss *core.Tensor
	forward := func() { loss = g.loss(tokens, places, tokens) }
	if half {
		require.NoError(t, core.Autocast("gpu", core.BFloat16, forward))
	} else {
		forward()
	}
	require.NoError(t, autograd.Backward(loss))
	require.NoError(t, g.optimizer.Step())
	g.optimizer.ZeroGrad()
}
