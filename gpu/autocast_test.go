package gpu_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
)

// fakeGPU opens a device that computes nothing.
func fakeGPU(t *testing.T) *gpu.Device {
	t.Helper()
	d, err := core.OpenDevice("fakegpu")
	require.NoError(t, err)
	return d.(*gpu.Device)
}

// trafficOf returns what a call of fn, after two others, dispatches and moves on a device of the fake driver, whose fusions depend on
// the calls alone.
func trafficOf(t *testing.T, d *gpu.Device, fn func()) gpu.Traffic {
	t.Helper()
	defer gpu.SetFusion(d, true)()
	var before, after gpu.Traffic
	for range 3 {
		require.NoError(t, d.Synchronize())
		before = d.Traffic()
		release := gpu.KeepBusy(d)
		core.Tidy(func() {
			x := op.EmptyWith([]int{8}, op.TensorOptions{Device: d})
			op.FillInPlace(x, core.Num(1))
			gpu.Submit(core.CurrentContext().Stream(d))
			fn()
			gpu.Submit(core.CurrentContext().Stream(d))
			after = d.Traffic()
			release()
		})
		require.NoError(t, d.Synchronize())
	}
	after.Dispatches -= before.Dispatches + 1
	after.MovedBytes -= before.MovedBytes + 32
	after.Fused -= before.Fused
	return after
}

// A precision is how a model is trained.
type precision int

const (
	inFloat32 precision = iota
	underAutocast
	inBFloat16
)

// gptTraffic returns what forward and backward of a GPT-2 with so many layers dispatch and move.
func gptTraffic(t *testing.T, d *gpu.Device, layers int, how precision) (traffic gpu.Traffic) {
	const batch, length, width, heads, kinds = 4, 512, 128, 2, 1030
	core.Tidy(func() {
		g, err := newGPT(kinds, length, width, layers, heads, d)
		require.NoError(t, err)
		for i, p := range g.p {
			if how == inBFloat16 {
				g.p[i] = op.To(p, core.BFloat16).Detach().SetRequiresGrad(true)
			}
		}
		integers := core.Int64
		tokens := op.ZeroInPlace(op.EmptyWith([]int{batch, length}, op.TensorOptions{Device: d, DType: &integers}))
		places := op.ToDevice(op.Arange(nil, core.IntNum(length), nil, op.TensorOptions{}), d)
		traffic = trafficOf(t, d, func() {
			var loss *core.Tensor
			forward := func() { loss = g.loss(tokens, places, tokens) }
			if how == underAutocast {
				require.NoError(t, core.Autocast("gpu", core.BFloat16, forward))
			} else {
				forward()
			}
			require.NoError(t, autograd.Backward(loss))
			for _, p := range g.p {
				p.SetGrad(nil)
			}
		})
	})
	return traffic
}

// TestTrafficOfPrecisions counts what a layer of a GPT-2 dispatches and moves. Autocast adds the casts of parameters and nothing else.
func TestTrafficOfPrecisions(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := fakeGPU(t)
	var layer, rest [3]gpu.Traffic
	for i := range layer {
		one, two := gptTraffic(t, d, 1, precision(i)), gptTraffic(t, d, 2, precision(i))
		layer[i] = gpu.Traffic{Dispatches: two.Dispatches - one.Dispatches, MovedBytes: two.MovedBytes - one.MovedBytes}
		rest[i] = gpu.Traffic{Dispatches: one.Dispatches - layer[i].Dispatches, MovedBytes: one.MovedBytes - layer[i].MovedBytes}
	}
	float32s, autocast, halves := layer[inFloat32], layer[underAutocast], layer[inBFloat16]
	require.LessOrEqual(t, autocast.Dispatches, float32s.Dispatches+8, "a layer has four weights and four biases")
	require.LessOrEqual(t, rest[underAutocast].Dispatches, rest[inFloat32].Dispatches+1, "the embedding is the weight of the last product")
	require.Less(t, autocast.MovedBytes, float32s.MovedBytes*3/4)
	require.Less(t, rest[underAutocast].MovedBytes, rest[inFloat32].MovedBytes)
	require.LessOrEqual(t, halves.Dispatches, float32s.Dispatches)
	require.Less(t, halves.MovedBytes, float32s.MovedBytes*52/100, "statistics and sums of attention are float32")
}

// wideOps are operations that compute in float32 under autocast and read 16-bit inputs as they are.
var wideOps = map[string]func(x, w, b *core.Tensor) *core.Tensor{
	"layer_norm":    halfOps["layer_norm"],
	"rms_norm":      halfOps["rms_norm"],
	"softmax":       func(x, _, _ *core.Tensor) *core.Tensor { return op.Softmax(x, 1) },
	"log_softmax":   func(x, _, _ *core.Tensor) *core.Tensor { return op.LogSoftmax(x, 1) },
	"sum":           func(x, _, _ *core.Tensor) *core.Tensor { return op.Sum(x, []int{1}, false) },
	"cross_entropy": halfLoss,
	"group_norm": func(x, _, _ *core.Tensor) *core.Tensor {
		return op.GroupNorm(op.Reshape(x, 2, 3, x.Numel()/6), 3, nil, nil, 1e-5)
	},
}

// TestWideOpsEqualCasts compares operations that read 16-bit inputs under autocast with the same operations on casts of the inputs.
func TestWideOpsEqualCasts(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	for name, fn := range wideOps {
		for _, shape := range [][2]int{{6, 64}, {18, 520}, {6, 67}} {
			for _, offset := range []int{0, 1} { // inputs that begin at no multiple of four are cast
				t.Run(fmt.Sprint(name, shape, offset), func(t *testing.T) {
					core.Tidy(func() {
						n := shape[0] * shape[1]
						x := op.Reshape(op.Slice(halves(d, n+1), 0, offset, n+offset, 1), shape[:]...)
						w, b := op.To(halves(d, shape[1]), core.Float32), op.To(halves(d, shape[1]), core.Float32)
						var results [2][][]byte
						for i := range results {
							leaf := x.Detach().SetRequiresGrad(true)
							params := []*core.Tensor{w.Detach().SetRequiresGrad(true), b.Detach().SetRequiresGrad(true)}
							var y *core.Tensor
							if i == 0 {
								y = fn(op.To(leaf, core.Float32), params[0], params[1])
							} else {
								require.NoError(t, core.Autocast("gpu", core.BFloat16, func() { y = fn(leaf, params[0], params[1]) }))
							}
							require.NoError(t, y.Err())
							require.Equal(t, core.Float32, y.DType())
							seed := op.Cos(y.Detach())
							grads, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{leaf, params[0], params[1]}, []*core.Tensor{seed},
								autograd.Options{AllowUnused: true})
							require.NoError(t, err)
							require.Equal(t, core.BFloat16, grads[0].DType())
							for _, r := range append([]*core.Tensor{y}, grads...) {
								if r != nil {
									bytes, err := op.Contiguous(r).Bytes()
									require.NoError(t, err)
									results[i] = append(results[i], bytes)
								}
							}
						}
						require.Equal(t, results[0], results[1])
					})
				})
			}
		}
	}
}

// block is a residual block under autocast: its loss, and the tensors between its operations that no product makes.
func block(t *testing.T, x, w, b, weight *core.Tensor) (loss *core.Tensor, between []*core.Tensor) {
	require.NoError(t, core.Autocast("gpu", core.BFloat16, func() {
		residual := op.Add(op.Linear(x, weight, b), x)
		h := op.LayerNorm(residual, []int{x.Size(1)}, w, b, 1e-5)
		two := op.Add(op.Linear(h, weight, b), op.Gelu(op.Linear(h, weight, nil), "tanh"))
		y := op.Add(residual, two)
		loss = op.Sum(op.Sin(y), nil, false)
		between = []*core.Tensor{residual, h, two, y}
	}))
	return loss, between
}

// TestSkippedConversionsKeepBits compares the gradients of a block with those that hooks look at, which are converted to the dtypes of
// their tensors, with and without norms that write casts.
func TestSkippedConversionsKeepBits(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	core.Tidy(func() {
		const rows, n = 12, 64
		random := func(shape ...int) *core.Tensor { return op.ToDevice(op.Randn(shape...), d) }
		values := []*core.Tensor{random(rows, n), random(n), random(n), op.Mul(random(n, n), core.Num(0.1))}
		run := func(watched, fused bool) (all [][]byte) {
			defer gpu.SetFusion(d, fused)()
			var leaves []*core.Tensor
			for _, v := range values {
				leaves = append(leaves, op.Clone(v).Detach().SetRequiresGrad(true))
			}
			loss, between := block(t, leaves[0], leaves[1], leaves[2], leaves[3])
			for _, x := range between {
				if watched {
					x.RetainGrad()
				}
			}
			require.NoError(t, autograd.Backward(loss))
			for _, x := range between {
				if watched {
					require.Equal(t, x.DType(), x.Grad().DType())
				}
			}
			for _, x := range append([]*core.Tensor{loss}, leaves...) {
				if x.IsLeaf() && x.RequiresGrad() {
					require.Equal(t, core.Float32, x.Grad().DType())
					x = x.Grad()
				}
				bytes, err := x.Bytes()
				require.NoError(t, err)
				all = append(all, bytes)
			}
			return all
		}
		want := run(true, false)
		require.Equal(t, want, run(false, false))
		require.Equal(t, want, run(true, true))
		require.Equal(t, want, run(false, true))
	})
}

// TestNormsWriteCasts checks that a norm and the cast of its result are one call, as are those of its gradient.
func TestNormsWriteCasts(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	x := op.To(on(d, 6, 512), core.BFloat16).Detach().SetRequiresGrad(true)
	defer x.Release()
	require.Equal(t, 2, countFused(t, d, 2, func() {
		y := op.To(op.LayerNorm(op.To(x, core.Float32), []int{512}, nil, nil, 1e-5), core.BFloat16)
		_, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{x}, []*core.Tensor{y.Detach()}, autograd.Options{})
		require.NoError(t, err)
	}))
}

// TestParameterGradientsAreFloat32 checks that the gradient of a parameter is not rounded to the dtype of its cast.
func TestParameterGradientsAreFloat32(t *testing.T) {
	d := device(t)
	core.Tidy(func() {
		x, g := halves(d, 24, 32), halves(d, 24, 16)
		w, b := op.ToDevice(op.Randn(16, 32), d).Detach().SetRequiresGrad(true), on(d, 16).SetRequiresGrad(true)
		var y *core.Tensor
		require.NoError(t, core.Autocast("gpu", core.BFloat16, func() { y = op.Linear(x, w, b) }))
		require.NoError(t, autograd.BackwardWith([]*core.Tensor{y}, []*core.Tensor{g}, autograd.Options{}))
		wide := op.To(g, core.Float32)
		for i, want := range []*core.Tensor{op.MatMul(op.Transpose(wide, 0, 1), op.To(x, core.Float32)), op.Sum(wide, []int{0}, false)} {
			got := []*core.Tensor{w, b}[i].Grad()
			require.Equal(t, core.Float32, got.DType())
			require.Equal(t, value(t, op.Sum(op.Abs(want), nil, false)), value(t, op.Sum(op.Abs(got), nil, false)))
		}
	})
}

// TestConvolutionsWeightGradientsAreFloat32 checks that the gradient of a convolution's weights is not rounded to the dtype of their cast.
func TestConvolutionsWeightGradientsAreFloat32(t *testing.T) {
	d := device(t)
	core.Tidy(func() {
		x, g := op.Reshape(halves(d, 2*8*9*9), 2, 8, 9, 9), op.Reshape(halves(d, 2*12*9*9), 2, 12, 9, 9)
		w := op.ToDevice(op.Randn(12, 8, 3, 3), d).Detach().SetRequiresGrad(true)
		conv := func(x, w *core.Tensor) *core.Tensor {
			return op.Conv2d(x, w, nil, op.ConvOptions{Padding: []int{1}})
		}
		var y *core.Tensor
		require.NoError(t, core.Autocast("gpu", core.BFloat16, func() { y = conv(x, w) }))
		require.NoError(t, autograd.BackwardWith([]*core.Tensor{y}, []*core.Tensor{g}, autograd.Options{}))
		wide := w.Detach().SetRequiresGrad(true)
		y = conv(op.To(x, core.Float32), wide)
		require.NoError(t, autograd.BackwardWith([]*core.Tensor{y}, []*core.Tensor{op.To(g, core.Float32)}, autograd.Options{}))
		require.Equal(t, core.Float32, w.Grad().DType())
		difference := value(t, op.Amax(op.Abs(op.Sub(w.Grad(), wide.Grad())), nil, false))
		require.Less(t, difference, 1e-4*value(t, op.Amax(op.Abs(wide.Grad()), nil, false)), "sums are float32")
	})
}
