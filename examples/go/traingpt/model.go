package main

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
)

// gpt predicts the next character at each place of a text from those before it.
//
// Shapes: B texts in a batch, T characters in each, C channels, V kinds of characters.
type gpt struct {
	nn.Base
	Tokens    *nn.Embedding // V to C
	Positions *nn.Embedding // T to C
	Dropout   *nn.Dropout
	Blocks    *nn.TransformerEncoder
	Head      *nn.Linear // C to V
}

func newGPT(c Config, kinds int) (*gpt, error) {
	g := &gpt{
		Tokens:    nn.NewEmbedding(kinds, c.Width, nn.EmbeddingOptions{}),
		Positions: nn.NewEmbedding(c.Context, c.Width, nn.EmbeddingOptions{}),
		Dropout:   nn.NewDropout(c.Dropout),
		Blocks: nn.NewTransformerEncoder(c.Layers, c.Width, c.Heads, nn.TransformerOptions{
			FeedForward: 4 * c.Width, Dropout: c.Dropout, NormFirst: true,
			Activation: func(x *core.Tensor) *core.Tensor { return op.Gelu(x, "tanh") },
		}),
		Head: nn.NewLinear(c.Width, kinds, nn.LinearOptions{NoBias: true}),
	}
	// Matrices start small, so that every layer begins close to passing on what it gets.
	for _, p := range nn.Parameters(g) {
		if p.Dim() > 1 {
			nn.InitNormal(p, 0, 0.02)
		}
	}
	return g, nn.Err(g)
}

// forward returns the scores [B, T, V] of what follows each character of tokens [B, T].
func (g *gpt) forward(tokens *core.Tensor) *core.Tensor {
	places := op.Arange(core.IntNum(0), core.IntNum(int64(tokens.Size(1))), core.IntNum(1), op.TensorOptions{})
	x := op.Add(g.Tokens.Forward(tokens), g.Positions.Forward(places))
	x = g.Blocks.Encode(g.Dropout.Forward(x), nn.Mask{Causal: true})
	return g.Head.Forward(x)
}

// loss returns the mean cross-entropy of a batch's inputs and targets, both [B, T].
func (g *gpt) loss(batch [2]*core.Tensor) *core.Tensor {
	scores := op.Flatten(g.forward(batch[0]), 0, 1)
	return op.CrossEntropy(scores, op.Flatten(batch[1], 0, 1), op.CrossEntropyOptions{})
}

// groups returns the parameters for an optimiser: weights decay, biases and norms do not.
func (g *gpt) groups() []optim.Params {
	decay := optim.Params{Hyper: optim.Hyper{"weight_decay": 0.1}}
	keep := optim.Params{Hyper: optim.Hyper{"weight_decay": 0}}
	for _, p := range nn.NamedParameters(g) {
		group := &keep
		if p.Tensor.Dim() > 1 {
			group = &decay
		}
		group.Tensors = append(group.Tensors, p.Tensor)
		group.Names = append(group.Names, p.Name)
	}
	return []optim.Params{decay, keep}
}
