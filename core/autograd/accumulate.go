package autograd

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// accumulate adds the gradient to the leaf's gradient, unless the leaf has stopped requiring one since it was used; its hooks run all the same.
func (r *Run) accumulate(p *nodeRun) (*Request, error) {
	leaf, g := p.node.Leaf(), p.grads[0]
	if g == nil {
		p.stages = p.stages[:1] // nothing to add, so no hooks run
		return nil, nil
	}
	if !leaf.Wanted() {
		p.setInputGrads(nil)
		return nil, nil
	}
	err := leaf.Accumulating(func() error {
		old := leaf.BorrowGrad() // the program may drop it at any time
		defer leaf.ReturnGrad()
		if g.IsSparse() || old.IsSparse() {
			return r.accumulateSparse(leaf, old, g)
		}
		if old == nil {
			if ownsStorage(g) && !r.options.CreateGraph {
				leaf.SetGrad(g.Detach().Keep())
			} else if r.options.CreateGraph {
				leaf.SetGrad(g.Alias(true).Keep())
			} else {
				c := op.Clone(g).Keep()
				if err := c.Err(); err != nil {
					return err
				}
				leaf.SetGrad(c)
			}
			return nil
		}
		if r.options.CreateGraph {
			sum := op.Add(old, g).Keep()
			if err := sum.Err(); err != nil {
				return err
			}
			leaf.SetGrad(sum)
			return nil
		}
		return op.AddInPlace(old, g).Err()
	})
	p.setInputGrads(nil)
	return nil, err
}

// accumulateSparse adds a sparse gradient, or adds to one. Two sparse ones stay sparse.
func (r *Run) accumulateSparse(leaf *core.AutogradMeta, old, g *core.Tensor) error {
	var sum *core.Tensor
	switch {
	case old != nil && !old.IsSparse() && !r.options.CreateGraph:
		return op.AddInPlace(old, g).Err()
	case old != nil:
		sum = op.Add(old, g)
	case r.options.CreateGraph || ownsStorage(g.Parts().Local()):
		sum = g.Alias(r.options.CreateGraph)
	default:
		sum = op.Clone(g)
	}
	if err := sum.Err(); err != nil {
		return err
	}
	leaf.SetGrad(sum.Keep())
	return nil
}

// ownsStorage reports whether g has the only reference to its storage and covers it.
func ownsStorage(g *core.Tensor) bool {
	return g.Storage().Refs() == 1 && g.Contiguous() && g.Storage().Size() == g.Numel()*g.DType().Size()
}

// keepStage adds the gradients of the node's outputs to outputs that retain their gradient.
func (r *Run) keepStage(p *nodeRun) (*Request, error) {
	var err error
	p.node.Keeping(func(meta *core.AutogradMeta, i int) {
		g := p.grads[i]
		if g == nil || err != nil {
			return
		}
		err = meta.Accumulating(func() error {
			old := meta.BorrowGrad()
			defer meta.ReturnGrad()
			if old != nil {
				sum := op.Add(old, g).Keep()
				if err := sum.Err(); err != nil {
					return err
				}
				meta.SetGrad(sum)
				return nil
			}
			meta.SetGrad(g.Alias(r.options.CreateGraph).Keep())
			return nil
		})
	})
	return nil, err
}
