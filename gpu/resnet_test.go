package gpu_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
)

// A resnet is ResNet-18.
type resnet struct {
	device     core.Device
	parameters []*core.Tensor
	optimizer  *optim.Optimizer
	next       int // index of the next parameter
}

// parameter returns the next parameter, which it creates in the first pass.
func (n *resnet) parameter(std float64, shape ...int) *core.Tensor {
	if n.next == len(n.parameters) {
		p := op.Ones(shape...)
		if std > 0 {
			p = op.Mul(op.Randn(shape...), core.Num(std))
		}
		n.parameters = append(n.parameters, op.ToDevice(p, n.device).Detach().SetRequiresGrad(true))
	}
	n.next++
	return n.parameters[n.next-1]
}

// conv is a convolution followed by a batch norm.
func (n *resnet) conv(x *core.Tensor, width, kernel, stride int) *core.Tensor {
	in := x.Size(1)
	w := n.parameter(math.Sqrt(2/float64(in*kernel*kernel)), width, in, kernel, kernel)
	y := op.Conv2d(x, w, nil, op.ConvOptions{Stride: []int{stride}, Padding: []int{kernel / 2}})
	return op.BatchNorm(y, nil, nil, n.parameter(0, width), n.parameter(0, width), true, 0.1, 1e-5)
}

func (n *resnet) loss(x, targets *core.Tensor) *core.Tensor {
	n.next = 0
	x = op.MaxPool2d(op.Relu(n.conv(x, 64, 7, 2)), []int{3}, op.MaxPoolOptions{Stride: []int{2}, Padding: []int{1}})
	for _, width := range []int{64, 128, 256, 512} {
		for block := range 2 {
			stride, short := 1, x
			if block == 0 && width > 64 {
				stride = 2
				short = n.conv(x, width, 1, stride)
			}
			x = op.Relu(op.Add(n.conv(op.Relu(n.conv(x, width, 3, stride)), width, 3, 1), short))
		}
	}
	x = op.Mean(x, []int{2, 3}, false)
	return op.CrossEntropy(op.Linear(x, n.parameter(0.01, 1000, 512), nil), targets, op.CrossEntropyOptions{})
}

// BenchmarkResNet18 measures a training step of ResNet-18: 32 images of 224 x 224, float32, SGD with momentum.
func BenchmarkResNet18(b *testing.B) {
	d := hardwareGPU(b)
	n := &resnet{device: d}
	x := op.ToDevice(op.Randn(32, 3, 224, 224), d)
	targets := op.ToDevice(op.Arange(nil, core.IntNum(32), nil, op.TensorOptions{}), d)
	n.loss(x, targets).Release() // creates the parameters
	var err error
	n.optimizer, err = optim.NewSGD(n.parameters, optim.Hyper{"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4})
	require.NoError(b, err)
	benchmark(b, d, func() {
		require.NoError(b, autograd.Backward(n.loss(x, targets)))
		require.NoError(b, n.optimizer.Step())
		n.optimizer.ZeroGrad()
	})
	b.ReportMetric(float64(core.MemoryUsage(d).Peak)/(1<<30), "GiB-peak")
	b.ReportMetric(float64(d.Reserved())/(1<<30), "GiB-held")
}
