package main

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/plait-ml/plait/parallel/fsdp"
)

// A shape is the size of a GPT and of its batch on each rank.
type shape struct {
	Name                                 string
	Kinds, Context, Width, Layers, Heads int
	Batch                                int
}

// models are the shapes by name.
var models = map[string]shape{
	"gpt2":  {"GPT-2 124M", 50257, 1024, 768, 12, 12, 8},
	"small": {"GPT 4x128", 96, 128, 128, 4, 4, 8},
	"tiny":  {"GPT 4x64", 96, 32, 64, 4, 4, 4},
}

// A gpt is a transformer of the kind of GPT-2.
type gpt struct {
	shape
	params                  []ddp.Named // the embeddings, then twelve for each layer, then the last norm's
	tokens, places, targets *core.Tensor
	units                   []*fsdp.Unit // where parameters are divided: all but the layers, and then each layer
}

// newGPT makes a model with a batch of its own for each rank.
func newGPT(s shape, rank int, d core.Device) (*gpt, error) {
	g := &gpt{shape: s}
	core.ManualSeed(1)
	add := func(name string, std float64, sizes ...int) {
		t := op.Ones(sizes...)
		switch {
		case std < 0:
			t = op.Zeros(sizes...)
		case std > 0:
			t = op.Mul(op.Randn(sizes...), core.Num(std))
		}
		g.params = append(g.params, ddp.Named{Name: name, Tensor: op.ToDevice(t, d).Detach().SetRequiresGrad(true)})
	}
	c := s.Width
	add("tokens", 0.02, s.Kinds, c)
	add("places", 0.02, s.Context, c)
	for i := range s.Layers {
		for _, p := range []struct {
			name  string
			std   float64
			sizes []int
		}{
			{"norm1.weight", 0, []int{c}}, {"norm1.bias", -1, []int{c}},
			{"attention.in.weight", 0.02, []int{3 * c, c}}, {"attention.in.bias", -1, []int{3 * c}},
			{"attention.out.weight", 0.02, []int{c, c}}, {"attention.out.bias", -1, []int{c}},
			{"norm2.weight", 0, []int{c}}, {"norm2.bias", -1, []int{c}},
			{"mlp.in.weight", 0.02, []int{4 * c, c}}, {"mlp.in.bias", -1, []int{4 * c}},
			{"mlp.out.weight", 0.02, []int{c, 4 * c}}, {"mlp.out.bias", -1, []int{c}},
		} {
			add(fmt.Sprint("layers.", i, ".", p.name), p.std, p.sizes...)
		}
	}
	add("norm.weight", 0, c)
	add("norm.bias", -1, c)
	codes := make([]int64, s.Batch*(s.Context+1))
	for i := range codes {
		codes[i] = int64((i*7919 + rank*104729) % s.Kinds)
	}
	all := op.ToDevice(core.FromSlice(codes, s.Batch, s.Context+1), d)
	g.tokens = op.Contiguous(op.Slice(all, 1, 0, s.Context, 1))
	g.targets = op.Contiguous(op.Slice(all, 1, 1, s.Context+1, 1))
	g.places = op.ToDevice(op.Arange(nil, core.IntNum(int64(s.Context)), nil, op.TensorOptions{}), d)
	for _, t := range []*core.Tensor{g.tokens, g.targets, g.places, g.params[len(g.params)-1].Tensor} {
		if err := t.Err(); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// divide shares the parameters out to the ranks of a group: each layer is a unit, and what is not in one.
func (g *gpt) divide(group *collective.Group, o fsdp.Options) error {
	rest, list := []fsdp.Named{}, make([][]fsdp.Named, g.Layers)
	for i, p := range g.params {
		if layer := (i - 2) / 12; i >= 2 && layer < g.Layers {
			list[layer] = append(list[layer], fsdp.Named(p))
		} else {
			rest = append(rest, fsdp.Named(p))
		}
	}
	for _, params := range append([][]fsdp.Named{rest}, list...) {
		u, err := fsdp.NewUnit(group, params, o)
		if err != nil {
			return err
		}
		g.units = append(g.units, u)
	}
	_, err := fsdp.NewTree(g.units)
	return err
}

// in runs f, a part of the model, as the unit of that number; the parts of units are whole meanwhile.
func (g *gpt) in(unit int, x *core.Tensor, f func(x *core.Tensor) *core.Tensor) *core.Tensor {
	if g.units == nil {
		return f(x)
	}
	u := g.units[unit]
	if err := u.PreForward([]*core.Tensor{x}); err != nil {
		return core.ErrorTensor(err)
	}
	y := f(x)
	if err := u.PostForward([]*core.Tensor{y}); err != nil {
		return core.ErrorTensor(err)
	}
	return y
}

// forward returns the loss for the inputs, with the parameters p.
func (g *gpt) forward(p []*core.Tensor, tokens, targets, places *core.Tensor) *core.Tensor {
	return g.in(0, tokens, func(tokens *core.Tensor) *core.Tensor { return g.loss(p, tokens, targets, places) })
}

// loss is forward with the parameters that are in no layer. Shapes: B texts, T tokens in each, C channels.
func (g *gpt) loss(p []*core.Tensor, tokens, targets, places *core.Tensor) *core.Tensor {
	b, t, c := tokens.Size(0), tokens.Size(1), g.Width
	x := op.Add(op.Embedding(tokens, p[0], op.EmbeddingOptions{}), op.Embedding(places, p[1], op.EmbeddingOptions{}))
	for i := range g.Layers {
		x = g.in(1+i, x, func(x *core.Tensor) *core.Tensor { return g.layer(p[2+12*i:], x) })
	}
	n := len(p)
	x = op.LayerNorm(x, []int{c}, p[n-2], p[n-1], 1e-5)
	return op.CrossEntropy(op.Reshape(op.Linear(x, p[0], nil), b*t, g.Kinds), op.Reshape(targets, b*t), op.CrossEntropyOptions{})
}

// layer is attention and a perceptron, with the parameters that w begins with. Shapes: as those of loss.
func (g *gpt) layer(w []*core.Tensor, x *core.Tensor) *core.Tensor {
	b, t, c := x.Size(0), x.Size(1), g.Width
	h := op.Linear(op.LayerNorm(x, []int{c}, w[0], w[1], 1e-5), w[2], w[3])
	h = op.Permute(op.Reshape(h, b, t, 3, g.Heads, c/g.Heads), 2, 0, 3, 1, 4)
	y := op.ScaledDotProductAttention(op.Select(h, 0, 0), op.Select(h, 0, 1), op.Select(h, 0, 2), op.AttentionOptions{Causal: true})
	x = op.Add(x, op.Linear(op.Reshape(op.Transpose(y, 1, 2), b, t, c), w[4], w[5]))
	h = op.Gelu(op.Linear(op.LayerNorm(x, []int{c}, w[6], w[7], 1e-5), w[8], w[9]), "tanh")
	return op.Add(x, op.Linear(h, w[10], w[11]))
}

// tensors returns the parameters.
func (g *gpt) tensors() []*core.Tensor {
	var list []*core.Tensor
	for _, p := range g.params {
		list = append(list, p.Tensor)
	}
	return list
}
