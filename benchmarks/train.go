package main

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
)

func trainingSteps(b *bench) {
	for _, s := range []struct {
		name                        string
		make                        func() (func() error, error)
		rumus, rumusNative, pytorch float64 // 0 for none
	}{
		{"MLP 784-512-256-10, batch 64, AdamW", mlpStep, rumusMLP, rumusNativeMLP, torchMLP},
		{"Conv2d 16->32 3x3 on 32x32, batch 16", convStep, rumusConv, rumusNativeConv, torchConv},
		{"LSTM 2x128, 64 steps of batch 16, Adam", lstmStep, 0, 0, torchLSTM},
		{"GPT 4x128, 8 sequences of 128, AdamW", gptStep, 0, 0, torchGPT},
	} {
		if s.rumus == 0 && b.threads != 2 {
			continue
		}
		step, err := s.make()
		if err != nil {
			b.err = err
			return
		}
		ms := b.alone(step) * 1e3
		if s.rumus > 0 {
			b.addTimes(s.name+" / RUMUS", ms, s.rumus, 5)
			b.addTimes(s.name+" / RUMUS native", ms, s.rumusNative, 0)
		}
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
	return classify(optimizer, labels, func() *core.Tensor {
		h := op.Relu(op.Linear(x, params[0], params[1]))
		h = op.Relu(op.Linear(h, params[2], params[3]))
		return op.Linear(h, params[4], params[5])
	}), nil
}

// classify returns a training step of a model by its scores and the labels that they should have.
func classify(optimizer *optim.Optimizer, labels *core.Tensor, scores func() *core.Tensor) func() error {
	return func() (err error) {
		core.Tidy(func() {
			if err = autograd.Backward(op.CrossEntropy(scores(), labels, op.CrossEntropyOptions{})); err == nil {
				err = optimizer.Step()
			}
			optimizer.ZeroGrad()
		})
		return err
	}
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

// lstmStep returns a training step of a classifier of sequences.
func lstmStep() (func() error, error) {
	const steps, batch, features, classes = 64, 16, 128, 10
	lstm := nn.NewLSTM(features, features, nn.RNNOptions{Layers: 2})
	head := nn.NewLinear(features, classes, nn.LinearOptions{})
	optimizer, err := optim.NewAdam(append(nn.Parameters(lstm), nn.Parameters(head)...), optim.Hyper{})
	if err != nil {
		return nil, err
	}
	x := op.Randn(steps, batch, features)
	return classify(optimizer, op.Randint(0, classes, batch), func() *core.Tensor {
		return head.Forward(op.Select(lstm.Forward(x), 0, -1))
	}), nil
}

// gptStep returns a training step of a model that predicts characters.
func gptStep() (func() error, error) {
	const batch, length, width, kinds = 8, 128, 128, 96
	tokens := nn.NewEmbedding(kinds, width, nn.EmbeddingOptions{})
	places := nn.NewEmbedding(length, width, nn.EmbeddingOptions{})
	blocks := nn.NewTransformerEncoder(4, width, 4, nn.TransformerOptions{
		FeedForward: 4 * width, NormFirst: true,
		Activation: func(x *core.Tensor) *core.Tensor { return op.Gelu(x, "none") },
	})
	head := nn.NewLinear(width, kinds, nn.LinearOptions{})
	var params []*core.Tensor
	for _, m := range []nn.Module{tokens, places, blocks, head} {
		params = append(params, nn.Parameters(m)...)
	}
	optimizer, err := optim.NewAdamW(params, optim.Hyper{})
	if err != nil {
		return nil, err
	}
	x := op.Randint(0, kinds, batch, length)
	at := op.Arange(core.IntNum(0), core.IntNum(length), core.IntNum(1), op.TensorOptions{})
	return classify(optimizer, op.Randint(0, kinds, batch*length), func() *core.Tensor {
		h := op.Add(tokens.Forward(x), places.Forward(at))
		h = blocks.Encode(h, nn.Mask{Causal: true})
		return op.Flatten(head.Forward(h), 0, 1)
	}), nil
}
