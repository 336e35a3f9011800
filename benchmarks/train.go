package main

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
)

// Figures of others for the same steps, in milliseconds: RUMUS built as its default and for the native CPU, one thread of
// an AMD EPYC; PyTorch 2 with two threads of a Xeon.
const (
	rumusMLP, rumusNativeMLP, torchMLP    = 10.6, 6.2, 1.6
	rumusConv, rumusNativeConv, torchConv = 37, 27, 1.8
)

func trainingSteps(b *bench) {
	for _, s := range []struct {
		name                        string
		make                        func() (func() error, error)
		rumus, rumusNative, pytorch float64
	}{
		{"MLP 784-512-256-10, batch 64, AdamW", mlpStep, rumusMLP, rumusNativeMLP, torchMLP},
		{"Conv2d 16->32 3x3 on 32x32, batch 16", convStep, rumusConv, rumusNativeConv, torchConv},
	} {
		step, err := s.make()
		if err != nil {
			b.err = err
			return
		}
		ms := b.alone(step) * 1e3
		b.addTimes(s.name+" / RUMUS", ms, s.rumus, 5)
		b.addTimes(s.name+" / RUMUS native", ms, s.rumusNative, 0)
		if b.threads == 2 {
			b.addTimes(s.name+" / PyTorch", ms, s.pytorch, 0)
		}
	}
}

// parameter returns random values that want a gradient.
func parameter(shape ...int) *core.Tensor {
	t := op.UniformInPlace(op.Empty(shape...), -0.05, 0.05, op.RandomOptions{})
	return t.SetRequiresGrad(true)
}

// mlpStep returns a training step of a classifier.
func mlpStep() (func() error, error) {
	sizes := []int{784, 512, 256, 10}
	var params []*core.Tensor
	for i := range len(sizes) - 1 {
		params = append(params, parameter(sizes[i+1], sizes[i]), parameter(sizes[i+1]))
	}
	optimizer, err := optim.NewAdamW(params, optim.Hyper{"lr": 1e-3})
	if err != nil {
		return nil, err
	}
	x, labels := op.Rand(64, 784), op.Randint(0, 10, 64)
	return func() (err error) {
		core.Tidy(func() {
			h := op.Relu(op.Linear(x, params[0], params[1]))
			h = op.Relu(op.Linear(h, params[2], params[3]))
			loss := op.CrossEntropy(op.Linear(h, params[4], params[5]), labels, op.CrossEntropyOptions{})
			if err = autograd.Backward(loss); err == nil {
				err = optimizer.Step()
			}
			optimizer.ZeroGrad()
		})
		return err
	}, nil
}

// convStep returns the forward and the backward pass of a convolution, with gradients of its input too.
func convStep() (func() error, error) {
	x, w, bias := op.Rand(16, 16, 32, 32), parameter(32, 16, 3, 3), parameter(32)
	x.SetRequiresGrad(true)
	return func() (err error) {
		core.Tidy(func() {
			y := op.Conv2d(x, w, bias, op.ConvOptions{Padding: []int{1}})
			err = autograd.Backward(op.Sum(y, nil, false))
			for _, t := range []*core.Tensor{x, w, bias} {
				t.SetGrad(nil)
			}
		})
		return err
	}, nil
}
