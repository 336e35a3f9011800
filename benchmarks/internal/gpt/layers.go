package gpt

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
)

// A layer is a part of the model as a module.
type layer struct {
	nn.Base
	forward func(w []*core.Tensor, x *core.Tensor) *core.Tensor
	Weights []*core.Tensor
}

// Forward applies the part.
func (l *layer) Forward(x *core.Tensor) *core.Tensor { return l.forward(l.Weights, x) }

// Modules returns the model as modules from tokens to scores, the first and the last of which share the table of tokens, and
// what each costs in products for each token.
func (g *GPT) Modules() (model *nn.Sequential, costs []float64) {
	var layers []nn.Layer
	add := func(forward func(w []*core.Tensor, x *core.Tensor) *core.Tensor, cost int, weights ...*core.Tensor) {
		layers = append(layers, &layer{forward: forward, Weights: weights})
		costs = append(costs, float64(cost))
	}
	p, s := g.Tensors(), g.Shape
	add(s.begin, 0, p[:front]...)
	for i := range g.Layers {
		add(s.layer, 12*s.Width*s.Width+s.Context*s.Width, p[front+perLayer*i:][:perLayer]...)
	}
	add(s.end, s.Kinds*s.Width, p[len(p)-2], p[len(p)-1], p[0])
	return nn.NewSequential(layers...), costs
}
