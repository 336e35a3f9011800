package autograd

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// accumulate adds the gradient to the leaf's.
func (r *Run) accumulate(p *pending) (*Request, error) {
	leaf, g := p.node.Leaf(), p.grads[0]
	if g == nil {
		p.stages = p.stages[:1] // nothing was added: no hooks
		return nil, nil
	}
	err := leaf.Accumulating(func() error {
		old := leaf.BorrowGrad() // which the program may drop meanwhile
		defer leaf.ReturnGrad()
		if old == nil {
			if owns(g) && !r.options.CreateGraph {
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
	p.take(nil)
	return nil, err
}

// owns reports whether g is alone on its storage and fills it.
func owns(g *core.Tensor) bool {
	return g.Storage().Refs() == 1 && g.Contiguous() && g.Storage().Size() == g.Numel()*g.DType().Size()
}

// keepStage adds the gradients of the node's outputs to those that outputs keep.
func (r *Run) keepStage(p *pending) (*Request, error) {
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
