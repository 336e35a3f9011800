// Package gpt is the transformer that benchmarks train, as functions of its parameters and as a list of layers.
package gpt

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A Shape is the size of a GPT and of its batch.
type Shape struct {
	Name                                 string
	Kinds, Context, Width, Layers, Heads int
	Batch                                int
}

// Shapes are those that benchmarks offer, by name.
var Shapes = map[string]Shape{
	"gpt2":  {"GPT-2 124M", 50257, 1024, 768, 12, 12, 8},
	"small": {"GPT 4x128", 96, 128, 128, 4, 4, 8},
	"tiny":  {"GPT 4x64", 96, 32, 64, 4, 4, 4},
}

// Text returns a batch of tokens and those that follow them, another for each seed, on a device.
func (s Shape) Text(seed int, d core.Device) (tokens, targets *core.Tensor) {
	codes := make([]int64, s.Batch*(s.Context+1))
	for i := range codes {
		codes[i] = int64((i*7919 + seed*104729) % s.Kinds)
	}
	all := op.ToDevice(core.FromSlice(codes, s.Batch, s.Context+1), d)
	return op.Contiguous(op.Slice(all, 1, 0, s.Context, 1)), op.Contiguous(op.Slice(all, 1, 1, s.Context+1, 1))
}

// A Parameter is one of a model's.
type Parameter struct {
	Name   string
	Tensor *core.Tensor
}

// A GPT is a transformer of the kind of GPT-2. Its scores are products with the table of its tokens.
type GPT struct {
	Shape
	// Params are the tables of tokens and of places, then those of each layer, then the last norm's.
	Params []Parameter
	// Around, if it is set, runs the parts of the model: 0 is all of it, 1 its first layer.
	Around func(part int, x *core.Tensor, run func(x *core.Tensor) *core.Tensor) *core.Tensor
}

const (
	front    = 2  // parameters in front of the layers'
	perLayer = 12 // parameters of a layer
)

// New makes a model on a device, always the same.
func New(s Shape, d core.Device) (*GPT, error) {
	g := &GPT{Shape: s}
	core.ManualSeed(1)
	random := func(sizes ...int) *core.Tensor { return op.Mul(op.Randn(sizes...), core.Num(0.02)) }
	add := func(name string, t *core.Tensor) {
		g.Params = append(g.Params, Parameter{name, op.ToDevice(t, d).Detach().SetRequiresGrad(true)})
	}
	c := s.Width
	norm := func(name string) {
		add(name+".weight", op.Ones(c))
		add(name+".bias", op.Zeros(c))
	}
	linear := func(name string, in, out int) {
		add(name+".weight", random(out, in))
		add(name+".bias", op.Zeros(out))
	}
	add("tokens", random(s.Kinds, c))
	add("places", random(s.Context, c))
	for i := range s.Layers {
		name := fmt.Sprint("layers.", i, ".")
		norm(name + "norm1")
		linear(name+"attention.in", c, 3*c)
		linear(name+"attention.out", c, c)
		norm(name + "norm2")
		linear(name+"mlp.in", c, 4*c)
		linear(name+"mlp.out", 4*c, c)
	}
	norm("norm")
	for _, p := range g.Params {
		if err := p.Tensor.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return g, nil
}

// Tensors returns the parameters.
func (g *GPT) Tensors() []*core.Tensor {
	var list []*core.Tensor
	for _, p := range g.Params {
		list = append(list, p.Tensor)
	}
	return list
}

// Parts returns the parameters that are in no layer, and then those of each.
func (g *GPT) Parts() [][]Parameter {
	end := len(g.Params) - 2
	parts := [][]Parameter{append(append([]Parameter{}, g.Params[:front]...), g.Params[end:]...)}
	for i := front; i < end; i += perLayer {
		parts = append(parts, g.Params[i:i+perLayer])
	}
	return parts
}

// Loss returns the loss on texts [B, T] of the model with parameters p, its own or copies of them.
func (g *GPT) Loss(p []*core.Tensor, tokens, targets *core.Tensor) *core.Tensor {
	return g.part(0, tokens, func(tokens *core.Tensor) *core.Tensor {
		x := g.begin(p[:front], tokens)
		for i := range g.Layers {
			x = g.part(1+i, x, func(x *core.Tensor) *core.Tensor { return g.layer(p[front+perLayer*i:], x) })
		}
		n := len(p)
		return g.Score(g.end([]*core.Tensor{p[n-2], p[n-1], p[0]}, x), targets)
	})
}

func (g *GPT) part(part int, x *core.Tensor, run func(x *core.Tensor) *core.Tensor) *core.Tensor {
	if g.Around == nil {
		return run(x)
	}
	return g.Around(part, x, run)
}

// Score returns the loss of scores [B, T, K] for the tokens [B, T] that follow.
func (s Shape) Score(scores, targets *core.Tensor) *core.Tensor {
	return op.CrossEntropy(op.Reshape(scores, -1, s.Kinds), op.Reshape(targets, -1), op.CrossEntropyOptions{})
}

// begin returns the embeddings [B, T, C] of tokens [B, T] and of their places, with the two tables.
func (s Shape) begin(w []*core.Tensor, tokens *core.Tensor) *core.Tensor {
	return op.Add(op.Embedding(tokens, w[0], op.EmbeddingOptions{}), op.Narrow(w[1], 0, 0, tokens.Size(1)))
}

// layer is attention and a perceptron, of [B, T, C], with the parameters that w begins with.
func (s Shape) layer(w []*core.Tensor, x *core.Tensor) *core.Tensor {
	b, t, c := x.Size(0), x.Size(1), x.Size(2)
	h := op.Linear(op.LayerNorm(x, []int{c}, w[0], w[1], 1e-5), w[2], w[3])
	h = op.Permute(op.Reshape(h, b, t, 3, s.Heads, c/s.Heads), 2, 0, 3, 1, 4)
	y := op.ScaledDotProductAttention(op.Select(h, 0, 0), op.Select(h, 0, 1), op.Select(h, 0, 2), op.AttentionOptions{Causal: true})
	x = op.Add(x, op.Linear(op.Reshape(op.Transpose(y, 1, 2), b, t, c), w[4], w[5]))
	h = op.Gelu(op.Linear(op.LayerNorm(x, []int{c}, w[6], w[7], 1e-5), w[8], w[9]), "tanh")
	return op.Add(x, op.Linear(h, w[10], w[11]))
}

// end returns the scores [B, T, K] of all tokens, with the last norm's parameters and the table of tokens.
func (s Shape) end(w []*core.Tensor, x *core.Tensor) *core.Tensor {
	return op.Linear(op.LayerNorm(x, []int{x.Size(2)}, w[0], w[1], 1e-5), w[2], nil)
}
