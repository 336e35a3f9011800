package gpu_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/gpu/shader"
)

// hardwareGPU returns the GPU, and skips the benchmark on a software adapter, where it would take hours.
func hardwareGPU(b *testing.B) *gpu.Device {
	d := device(b)
	if d.Software() {
		b.Skip("the adapter computes on the CPU")
	}
	return d
}

func on(d core.Device, shape ...int) *core.Tensor {
	f := core.Float32
	return op.FullLike(op.EmptyWith(shape, op.TensorOptions{DType: &f, Device: d}), core.Num(0.5), op.TensorOptions{})
}

// benchmark measures fn, after one run that compiles.
func benchmark(b *testing.B, d core.Device, fn func()) {
	b.Helper()
	core.Tidy(fn)
	require.NoError(b, d.Synchronize())
	b.ResetTimer()
	for range b.N {
		core.Tidy(fn)
	}
	require.NoError(b, d.Synchronize())
}

func BenchmarkMatMul(b *testing.B) {
	for _, form := range []string{"NN", "NT", "TN"} {
		for _, n := range []int{1024, 4096} {
			b.Run(form+"/"+strconv.Itoa(n), func(b *testing.B) {
				d := hardwareGPU(b)
				x, y := on(d, n, n), on(d, n, n)
				if form == "TN" {
					x = op.Transpose(x, 0, 1)
				}
				if form == "NT" {
					y = op.Transpose(y, 0, 1)
				}
				benchmark(b, d, func() { op.MatMul(x, y) })
				b.ReportMetric(2*float64(n)*float64(n)*float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e12, "TFLOP/s")
			})
		}
	}
}

// BenchmarkTiles measures the tiles that matrix products choose from.
func BenchmarkTiles(b *testing.B) {
	d := hardwareGPU(b)
	const n = 4096
	x, y := on(d, n, n), on(d, n, n)
	for _, t := range [][5]int{{64, 64, 16, 4, 4}, {64, 64, 16, 8, 4}, {128, 64, 16, 8, 4}, {128, 128, 16, 8, 8}, {192, 128, 16, 12, 8}, {128, 192, 16, 8, 12}} {
		for _, double := range []bool{false, true} {
			for _, form := range []string{"NN", "NT", "TN"} {
				b.Run(fmt.Sprint(t, double, form), func(b *testing.B) {
					defer gpu.Tune(d, onlyTile(double, t[0], t[1], t[2], t[3], t[4]))()
					u, v := x, y
					if form == "TN" {
						u = op.Transpose(x, 0, 1)
					}
					if form == "NT" {
						v = op.Transpose(y, 0, 1)
					}
					benchmark(b, d, func() { op.MatMul(u, v) })
					b.ReportMetric(2*float64(n)*float64(n)*float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e12, "TFLOP/s")
				})
			}
		}
	}
}

func bandwidth(b *testing.B, bytes int, d core.Device, fn func()) {
	benchmark(b, d, fn)
	b.ReportMetric(float64(bytes)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
}

func BenchmarkBandwidth(b *testing.B) {
	const rows, cols = 1 << 16, 1 << 12 // 1 GiB
	d := hardwareGPU(b)
	x, y := on(d, rows, cols), on(d, rows, cols)
	w := on(d, cols)
	for _, c := range []struct {
		name  string
		moves int
		fn    func()
	}{
		{"copy", 2, func() { op.Clone(x) }},
		{"add", 3, func() { op.Add(x, y) }},
		{"gelu", 2, func() { op.Gelu(x, "tanh") }},
		{"exp", 2, func() { op.Exp(x) }},
		{"sum rows", 1, func() { op.Sum(x, []int{1}, false) }},
		{"sum columns", 1, func() { op.Sum(x, []int{0}, false) }},
		{"sum all", 1, func() { op.Sum(x, nil, false) }},
		{"softmax", 2, func() { op.Softmax(x, -1) }},
		{"layer norm", 2, func() { op.LayerNorm(x, []int{cols}, w, w, 1e-5) }},
		{"transpose", 2, func() { op.Contiguous(op.Transpose(x, 0, 1)) }},
	} {
		b.Run(c.name, func(b *testing.B) { bandwidth(b, c.moves*4*rows*cols, d, c.fn) })
	}
}

// BenchmarkAttention measures causal attention of GPT-2's size. It counts operations on unmasked scores only.
func BenchmarkAttention(b *testing.B) {
	d := hardwareGPU(b)
	const batch, heads, length, dim = 8, 12, 1024, 64
	const products = 2 * batch * heads * length * length / 2 * dim
	q, k, v := on(d, batch, heads, length, dim).SetRequiresGrad(true), on(d, batch, heads, length, dim).SetRequiresGrad(true), on(d, batch, heads, length, dim).SetRequiresGrad(true)
	o := op.AttentionOptions{Causal: true}
	b.Run("forward", func(b *testing.B) {
		benchmark(b, d, func() { op.ScaledDotProductAttention(q.Detach(), k.Detach(), v.Detach(), o) })
		b.ReportMetric(2*products*float64(b.N)/b.Elapsed().Seconds()/1e12, "TFLOP/s")
	})
	g := on(d, batch, heads, length, dim)
	b.Run("both", func(b *testing.B) {
		benchmark(b, d, func() {
			y := op.ScaledDotProductAttention(q, k, v, o)
			_, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{q, k, v}, []*core.Tensor{g}, autograd.Options{})
			require.NoError(b, err)
		})
		b.ReportMetric(7*products*float64(b.N)/b.Elapsed().Seconds()/1e12, "TFLOP/s")
	})
}

func BenchmarkChainOfSmallOps(b *testing.B) {
	d := device(b)
	x := on(d, 1000)
	benchmark(b, d, func() {
		y := x
		for range 10_000 {
			z := op.Add(y, x)
			if y != x {
				y.Release()
			}
			y = z
		}
	})
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/op-of-chain")
}

func BenchmarkTransfers(b *testing.B) {
	d := hardwareGPU(b)
	host := core.FromSlice(make([]float32, 64<<20))
	there := op.ToDevice(host, d)
	b.Run("up", func(b *testing.B) { bandwidth(b, 256<<20, d, func() { op.ToDevice(host, d) }) })
	b.Run("down", func(b *testing.B) {
		bandwidth(b, 256<<20, d, func() { _, _ = there.Bytes() })
	})
}

// BenchmarkLSTM measures LSTM steps, forward and backward, in the sizes of the reports.
func BenchmarkLSTM(b *testing.B) {
	d := hardwareGPU(b)
	for _, c := range [][3]int{{64, 16, 128}, {32, 128, 256}, {128, 64, 512}} {
		steps, n, hidden := c[0], c[1], c[2]
		leaf := func(shape ...int) *core.Tensor { return on(d, shape...).SetRequiresGrad(true) }
		x, h, cell := leaf(steps, n, hidden), leaf(n, hidden), leaf(n, hidden)
		wih, whh, bias := leaf(4*hidden, hidden), leaf(4*hidden, hidden), leaf(4*hidden)
		g := on(d, steps, n, hidden)
		for few, name := range map[int]string{0: "product and gates", n: "one dispatch"} {
			b.Run(fmt.Sprint(c, name), func(b *testing.B) {
				defer gpu.Tune(d, func(f *shader.Tuning) { f.FewSequences = few })()
				benchmark(b, d, func() {
					y, _, _ := op.LSTMLayer(x, h, cell, wih, whh, bias, bias, op.RecurrentOptions{})
					_, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{x, wih, whh, bias}, []*core.Tensor{g}, autograd.Options{})
					require.NoError(b, err)
				})
			})
		}
	}
}

// BenchmarkConvolutions measures the convolutions of ResNet-18 for 32 images: forward, and the gradients of input and weight.
func BenchmarkConvolutions(b *testing.B) {
	d := hardwareGPU(b)
	for _, c := range [][5]int{{3, 64, 224, 7, 2}, {64, 64, 56, 3, 1}, {128, 128, 28, 3, 1}, {256, 256, 14, 3, 1}, {512, 512, 7, 3, 1}} {
		x := on(d, 32, c[0], c[2], c[2]).SetRequiresGrad(true)
		w := on(d, c[1], c[0], c[3], c[3]).SetRequiresGrad(true)
		conv := func() *core.Tensor {
			return op.Conv2d(x, w, nil, op.ConvOptions{Stride: []int{c[4]}, Padding: []int{c[3] / 2}})
		}
		g := on(d, conv().Shape()...)
		macs := 2 * float64(g.Numel()) * float64(c[0]*c[3]*c[3])
		for name, of := range map[string]*core.Tensor{"forward": nil, "inputs": x, "weights": w} {
			b.Run(fmt.Sprint(c, name), func(b *testing.B) {
				y := conv()
				benchmark(b, d, func() {
					if of == nil {
						conv()
						return
					}
					_, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{of}, []*core.Tensor{g}, autograd.Options{RetainGraph: true})
					require.NoError(b, err)
				})
				b.ReportMetric(macs*float64(b.N)/b.Elapsed().Seconds()/1e12, "TFLOP/s")
			})
		}
	}
}

// BenchmarkReadScalar reads a number that is ready, and one that the GPU computes first. Two round trips to the GPU would take
// twice the time.
func BenchmarkReadScalar(b *testing.B) {
	d := device(b)
	x, y := on(d, 1), on(d, 1)
	b.Run("number", func(b *testing.B) { benchmark(b, d, func() { _, _ = x.Item() }) })
	b.Run("sum", func(b *testing.B) { benchmark(b, d, func() { _, _ = op.Add(x, y).Item() }) })
}

// BenchmarkGPT2 measures a training step of GPT-2 124M: batch 8 x 1024, float32, AdamW.
func BenchmarkGPT2(b *testing.B) {
	d := hardwareGPU(b)
	g, err := newGPT(50257, 1024, 768, 12, 12, d)
	require.NoError(b, err)
	codes := make([]int64, 8*1024)
	for i := range codes {
		codes[i] = int64(i * 7919 % 50257)
	}
	tokens := op.ToDevice(core.FromSlice(codes, 8, 1024), d)
	places := op.ToDevice(op.Arange(nil, core.IntNum(1024), nil, op.TensorOptions{}), d)
	var last *core.Tensor
	step := func() {
		loss, err := g.step(tokens, places, tokens)
		require.NoError(b, err)
		last = loss
	}
	step()
	step()
	require.NoError(b, d.Synchronize())
	if *profiled {
		profile(b, d, step)
	}
	before := d.Traffic()
	b.ResetTimer()
	for range b.N {
		step()
	}
	v, err := last.Item()
	require.NoError(b, err)
	after := d.Traffic()
	b.ReportMetric(v, "loss")
	b.ReportMetric(float64(core.MemoryUsage(d).Peak)/(1<<30), "GiB-peak")
	b.ReportMetric(float64(d.Reserved())/(1<<30), "GiB-held")
	b.ReportMetric(float64(after.Dispatches-before.Dispatches)/float64(b.N), "dispatches")
	b.ReportMetric(float64(after.Submits-before.Submits)/float64(b.N), "submits")
}

var profiled = flag.Bool("profile", false, "print where the time of a GPT-2 step goes, each kernel waited for")

// profile prints the time of each kind of call in a step, less the time of waiting for an empty call.
func profile(b *testing.B, d *gpu.Device, step func()) {
	small := on(d, 1)
	p, err := core.StartProfile(true)
	require.NoError(b, err)
	step()
	for range 20 {
		core.Tidy(func() { op.Add(small, small) })
	}
	require.NoError(b, d.Synchronize())
	times, counts := map[string]time.Duration{}, map[string]int{}
	var waits []time.Duration
	for _, e := range p.Stop() {
		if len(e.Shapes) > 0 && fmt.Sprint(e.Shapes[0]) == "[1]" {
			waits = append(waits, e.End-e.Start)
		}
		name := fmt.Sprint(e.Op, " ", e.Kernel, " ", e.Shapes)
		if len(name) > 90 {
			name = name[:90]
		}
		times[name] += e.End - e.Start
		counts[name]++
	}
	slices.Sort(waits)
	wait := waits[len(waits)/2]
	for n := range times {
		times[n] -= time.Duration(counts[n]) * wait
	}
	names := slices.SortedFunc(maps.Keys(times), func(x, y string) int { return cmp.Compare(times[y], times[x]) })
	fmt.Printf("waiting for a call: %v\n", wait)
	for _, n := range names[:min(40, len(names))] {
		fmt.Printf("%8.2f ms %4d %s\n", times[n].Seconds()*1e3, counts[n], n)
	}
}

// BenchmarkGPT2MatMuls measures the matrix products of a GPT-2 124M step, for a batch of 8 x 1024.
func BenchmarkGPT2MatMuls(b *testing.B) {
	d := hardwareGPU(b)
	for _, c := range [][3]int{{8192, 2304, 768}, {8192, 768, 768}, {8192, 3072, 768}, {8192, 768, 3072}, {8192, 50257, 768}} {
		tokens, out, in := c[0], c[1], c[2]
		x, w, g, bias := on(d, tokens, in), on(d, out, in), on(d, tokens, out), on(d, out)
		apart := op.Slice(on(d, tokens, d.RowStride(core.Float32, out)), 1, 0, out, 1) // with padded rows, like the gradients of losses
		sum := on(d, tokens, in)                                                       // accumulates the gradients of several products
		for name, fn := range map[string]func(){
			"forward": func() { op.MatMul(x, op.Transpose(w, 0, 1)) },
			"inputs":  func() { op.MatMul(g, w) },
			"biased":  func() { op.Linear(x, w, bias) },
			"weights": func() { op.MatMul(op.Transpose(g, 0, 1), x) },

			"inputs, onto a gradient": func() { op.AddMMInPlace(sum, g, w, 1, 1) },
			"inputs, and an addition": func() { op.AddInPlace(sum, op.MatMul(g, w)) },
			"inputs of rows apart":    func() { op.MatMul(apart, w) },
			"weights of rows apart":   func() { op.MatMul(op.Transpose(apart, 0, 1), x) },
		} {
			b.Run(fmt.Sprint(c, name), func(b *testing.B) {
				benchmark(b, d, fn)
				b.ReportMetric(2*float64(tokens)*float64(out)*float64(in)*float64(b.N)/b.Elapsed().Seconds()/1e12, "TFLOP/s")
			})
		}
		for _, t := range []*core.Tensor{x, w, g, bias, apart, sum} {
			t.Release()
		}
	}
}

// BenchmarkMatMulK measures products with a K that tiles do not divide, and one that they do.
func BenchmarkMatMulK(b *testing.B) {
	d := hardwareGPU(b)
	for _, k := range []int{1024, 1028, 4100, 50260} {
		x, y := on(d, 8192, k), on(d, k, 768)
		b.Run(strconv.Itoa(k), func(b *testing.B) {
			benchmark(b, d, func() { op.MatMul(x, y) })
			b.ReportMetric(2*8192*768*float64(k)*float64(b.N)/b.Elapsed().Seconds()/1e12, "TFLOP/s")
		})
		x.Release()
		y.Release()
	}
}
