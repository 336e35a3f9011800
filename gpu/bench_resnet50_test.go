package gpu_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/gpu/shader"
)

// then releases inputs and returns y.
func then(y *core.Tensor, inputs ...*core.Tensor) *core.Tensor {
	for _, x := range inputs {
		x.Release()
	}
	return y
}

// norm is conv, but it holds no result in between.
func (n *resnet) norm(x *core.Tensor, width, kernel, stride int) *core.Tensor {
	in := x.Size(1)
	w := n.parameter(math.Sqrt(2/float64(in*kernel*kernel)), width, in, kernel, kernel)
	y := op.Conv2d(x, w, nil, op.ConvOptions{Stride: []int{stride}, Padding: []int{kernel / 2}})
	return then(op.BatchNorm(y, nil, nil, n.parameter(0, width), n.parameter(0, width), true, 0.1, 1e-5), y)
}

func (n *resnet) relu(x *core.Tensor) *core.Tensor { return then(op.Relu(x), x) }

// deepLoss is the loss of ResNet-50.
func (n *resnet) deepLoss(x, targets *core.Tensor) *core.Tensor {
	n.next = 0
	y := n.relu(n.norm(x, 64, 7, 2))
	x = then(op.MaxPool2d(y, []int{3}, op.MaxPoolOptions{Stride: []int{2}, Padding: []int{1}}), y)
	for i, width := range []int{64, 128, 256, 512} {
		for block := range []int{3, 4, 6, 3}[i] {
			stride, short := 1, x
			if block == 0 && width > 64 {
				stride = 2
			}
			y := n.relu(n.norm(x, width, 1, 1))
			z := n.relu(n.norm(y, width, 3, stride))
			y = then(n.norm(z, 4*width, 1, 1), y, z)
			if block == 0 {
				short = then(n.norm(x, 4*width, 1, stride), x)
			}
			x = n.relu(then(op.Add(y, short), y, short))
		}
	}
	p := op.AdaptiveAvgPool2d(x, []int{1})
	f := op.Flatten(p, 1, -1)
	l := op.Linear(f, n.parameter(0.01, 1000, 2048), n.parameter(0, 1000))
	return then(op.CrossEntropy(l, targets, op.CrossEntropyOptions{}), x, p, f, l)
}

// BenchmarkResNet50 measures a training step of ResNet-50: 64 images of 224 x 224, SGD with momentum.
func BenchmarkResNet50(b *testing.B) {
	for _, precision := range []string{"bfloat16", "bfloat16 of stored patches", "tf32", "float32"} {
		b.Run(precision, func(b *testing.B) {
			d := hardwareGPU(b)
			core.Permit(core.TF32Convolutions, precision == "tf32")
			defer core.Permit(core.TF32Convolutions, false)
			defer gpu.Tune(d, func(t *shader.Tuning) { t.TensorConvolutions = precision == "bfloat16" })()
			n := &resnet{device: d}
			x := op.ToDevice(op.Randn(64, 3, 224, 224), d)
			targets := op.ToDevice(op.Arange(nil, core.IntNum(64), nil, op.TensorOptions{}), d)
			step := func() {
				var loss *core.Tensor
				forward := func() { loss = n.deepLoss(x, targets) }
				if strings.HasPrefix(precision, "bfloat16") {
					require.NoError(b, core.Autocast(d.Kind(), core.BFloat16, forward))
				} else {
					forward()
				}
				if n.optimizer == nil {
					var err error
					n.optimizer, err = optim.NewSGD(n.parameters, optim.Hyper{"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4})
					require.NoError(b, err)
				}
				require.NoError(b, autograd.Backward(loss))
				require.NoError(b, n.optimizer.Step())
				n.optimizer.ZeroGrad()
			}
			step()
			core.ResetPeak(d)
			before := d.Traffic()
			benchmark(b, d, step)
			after := d.Traffic()
			b.ReportMetric(float64(after.Dispatches-before.Dispatches)/float64(b.N+1), "dispatches")
			b.ReportMetric(float64(after.MovedBytes-before.MovedBytes)/float64(b.N+1)/1e9, "GB-moved")
			b.ReportMetric(float64(core.MemoryUsage(d).Peak)/(1<<30), "GiB-peak")
			b.ReportMetric(float64(d.Reserved())/(1<<30), "GiB-held")
		})
	}
}

// BenchmarkResNet50Layers measures the convolutions and norms of ResNet-50 in bfloat16, for 64 images.
func BenchmarkResNet50Layers(b *testing.B) {
	d := hardwareGPU(b)
	for _, c := range [][5]int{ // channels, size, outputs, kernel, stride
		{3, 224, 64, 7, 2}, {64, 56, 64, 3, 1}, {128, 56, 128, 3, 2}, {128, 28, 128, 3, 1}, {256, 14, 256, 3, 1}, {512, 7, 512, 3, 1},
		{256, 56, 64, 1, 1}, {64, 56, 256, 1, 1}, {1024, 14, 256, 1, 1}, {2048, 7, 512, 1, 1}, {512, 7, 2048, 1, 1}, {256, 56, 512, 1, 2},
	} {
		x := op.To(on(d, 64, c[0], c[1], c[1]), core.BFloat16).Detach().SetRequiresGrad(true)
		w := op.To(on(d, c[2], c[0], c[3], c[3]), core.BFloat16).Detach().SetRequiresGrad(true)
		conv := func() *core.Tensor {
			return op.Conv2d(x, w, nil, op.ConvOptions{Stride: []int{c[4]}, Padding: []int{c[3] / 2}})
		}
		run := func(name string, flops float64, fn func()) {
			b.Run(fmt.Sprint(name, " ", c), func(b *testing.B) {
				benchmark(b, d, fn)
				b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e12, "TFLOP/s")
			})
		}
		y := conv()
		flops := 2 * float64(y.Numel()) * float64(w.Numel()) / float64(c[2])
		run("forward", flops, func() { conv() })
		for i, name := range []string{"inputs", "weights"} {
			run(name, flops, func() {
				_, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{[]*core.Tensor{x, w}[i]}, []*core.Tensor{y.Detach()}, autograd.Options{RetainGraph: true})
				require.NoError(b, err)
			})
		}
		s, t := on(d, c[2]).SetRequiresGrad(true), on(d, c[2]).SetRequiresGrad(true)
		v := y.Detach().SetRequiresGrad(true)
		norm := func() *core.Tensor { return op.BatchNorm(v, nil, nil, s, t, true, 0.1, 1e-5) }
		bytes := float64(2 * y.Numel())
		bandwidth := func(name string, bytes float64, fn func()) {
			b.Run(fmt.Sprint(name, " ", y.Shape()), func(b *testing.B) {
				benchmark(b, d, fn)
				b.ReportMetric(bytes*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
			})
		}
		bandwidth("norm", 3*bytes, func() { norm() })
		z := norm()
		bandwidth("norm backward", 5*bytes, func() {
			_, err := autograd.Grad([]*core.Tensor{z}, []*core.Tensor{v, s, t}, []*core.Tensor{y.Detach()}, autograd.Options{RetainGraph: true})
			require.NoError(b, err)
		})
		for _, x := range []*core.Tensor{x, w, y, v, z} {
			x.Release()
		}
	}
}
