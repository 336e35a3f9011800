package main

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/safetensors"
)

// network is that of examples/digits.py: its parameters have the same names, such as features.0.weight.
type network struct {
	nn.Base
	Features   *nn.Sequential
	Classifier *nn.Sequential
}

func newNetwork() *network {
	same := nn.ConvOptions{ConvOptions: op.ConvOptions{Padding: []int{1}}}
	return &network{
		Features: nn.NewSequential(
			nn.NewConv2d(1, 16, 3, same),
			nn.NewBatchNorm2d(16, nn.BatchNormOptions{}),
			nn.NewReLU(),
			nn.NewConv2d(16, 32, 3, same),
			nn.NewBatchNorm2d(32, nn.BatchNormOptions{}),
			nn.NewReLU(),
			nn.NewMaxPool2d(2, op.MaxPoolOptions{}),
		),
		Classifier: nn.NewSequential(
			nn.NewFlatten(), nn.NewDropout(0.25), nn.NewLinear(32*4*4, 64, nn.LinearOptions{}), nn.NewReLU(),
			nn.NewLinear(64, 10, nn.LinearOptions{}),
		),
	}
}

// forward returns the scores [N, 10] of pictures [N, 1, 8, 8].
func (n *network) forward(x *core.Tensor) *core.Tensor {
	return n.Classifier.Forward(n.Features.Forward(x))
}

// load returns the network with the parameters of a file. Names or shapes that differ are an error.
func load(path string) (*network, error) {
	state, err := safetensors.Load(path)
	if err != nil {
		return nil, err
	}
	model := newNetwork()
	if _, err := nn.LoadStateDict(model, state, true); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	nn.Eval(model)
	return model, nil
}
