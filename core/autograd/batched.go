package autograd

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// deepest returns where the deepest of gradients that a vmap has batched is, or nil.
func deepest(grads []*core.Tensor) core.Parts {
	var found core.Parts
	for _, g := range grads {
		if q := g.Parts(); q != nil && q.Depth() > 0 && (found == nil || q.Depth() > found.Depth()) {
			found = q
		}
	}
	return found
}

// batched runs a node's derivative for gradients that a vmap has batched, of which q is one, although the node knows of no batch: as it is
// recorded, because it is then made of ops, which know batched tensors; and if it is not, for each part of the batch.
func (r *Run) batched(p *nodeRun, q core.Parts, grads []*core.Tensor) (out []*core.Tensor, err error) {
	summed, mixed := p.summed, p.mixed
	core.WithMode(func(m core.Mode) core.Mode { return m.WithGrad(true) }, func() { out, err = r.runDerivative(p, grads, nil) })
	if err == nil {
		for i, g := range out {
			if g != nil && !r.linked() {
				out[i] = g.Alias(false)
			}
		}
		return out, nil
	}
	if kind, _ := core.KindOf(err); kind != core.NotImplemented {
		return nil, err
	}
	var columns [][]*core.Tensor
	for i := range q.Local().Size(0) {
		p.summed, p.mixed = summed, mixed
		own := make([]*core.Tensor, len(grads))
		for j, g := range grads {
			if own[j] = g; g.Parts() != nil && g.Parts().Depth() == q.Depth() {
				own[j] = op.Select(g.Parts().Local(), 0, i)
			}
		}
		var made []*core.Tensor
		if deepest(own) != nil {
			made, err = r.batched(p, deepest(own), own)
		} else {
			made, err = r.runDerivative(p, own, nil)
		}
		if err != nil {
			return nil, err
		}
		if columns == nil {
			columns = make([][]*core.Tensor, len(made))
		}
		for j, g := range made {
			if g != nil {
				columns[j] = append(columns[j], g)
			}
		}
	}
	out = make([]*core.Tensor, len(columns))
	for j, c := range columns {
		if len(c) > 0 {
			if out[j] = q.With(op.Stack(c, 0)); out[j].Err() != nil {
				return nil, out[j].Err()
			}
		}
	}
	return out, nil
}
