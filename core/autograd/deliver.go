package autograd

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// deliver passes the gradients of the inputs along the node's edges.
func (r *Run) deliver(p *nodeRun) (*Request, error) {
	grads := p.grads
	p.grads = nil
	releaseAll(p.outputGrads)
	for i, e := range p.node.Edges() {
		var g *core.Tensor
		if i < len(grads) {
			g, grads[i] = grads[i], nil
		}
		if !r.wants(p.node, e) {
			if g != nil {
				g.Release()
			}
			continue
		}
		s := r.states[e.Node]
		if g != nil {
			d, shape := e.Node.OutputMeta(e.Index)
			if slices.Contains(p.mixed, i) && g.DType().Differentiable() {
				d = g.DType()
			}
			if err := sameShape("gradient of "+p.node.Name, shape, d, g); err != nil {
				g.Release()
				releaseAll(grads)
				return nil, err
			}
			if slices.Contains(p.summed, i) {
				r.replaceSum(e, g)
			} else if err := r.addGrad(e, g); err != nil {
				releaseAll(grads)
				return nil, err
			}
		}
		if s.missing--; s.missing == 0 {
			r.finishNode(e.Node)
		}
	}
	releaseAll(grads)
	return nil, nil
}

// finishNode enqueues a node whose gradients have all arrived. A node without any gradient passes none on.
func (r *Run) finishNode(n *core.Node) {
	work := []*core.Node{n}
	for len(work) > 0 {
		n := work[len(work)-1]
		work = work[:len(work)-1]
		s := r.states[n]
		// An external function may return gradients even if it receives none, so it always runs.
		if n.External != 0 || slices.ContainsFunc(s.grads, func(g *core.Tensor) bool { return g != nil }) {
			r.enqueue(n)
			continue
		}
		for _, e := range n.Edges() {
			if t := r.states[e.Node]; e.Node != nil && t != nil && t.needed {
				if t.missing--; t.missing == 0 {
					work = append(work, e.Node)
				}
			}
		}
	}
}

func releaseAll(tensors []*core.Tensor) {
	for i, t := range tensors {
		if t != nil {
			t.Release()
		}
		tensors[i] = nil
	}
}

func sameShape(what string, shape []int, d core.DType, g *core.Tensor) error {
	if !slices.Equal(shape, g.Shape()) {
		return core.Errorf(core.ShapeError, "backward", "%s has shape %v, want %v", what, g.Shape(), shape)
	}
	if g.DType() != d {
		return core.Errorf(core.DTypeError, "backward", "%s is %v, want %v", what, g.DType(), d)
	}
	return nil
}
