package pipeline

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// beginBackward creates the autograd run of a micro-batch's backward pass in a stage. The run begins at the loss in the last
// stage, and at the received gradients in other stages. For InputGrad the run computes the gradients of the inputs first.
func (s *Step) beginBackward(a Action, c *stageState) error {
	c.backwardBegun = true
	var roots, grads []*core.Tensor
	defer func() { release(grads) }()
	var err error
	s.withMode(a, true, func() {
		if c.loss != nil {
			core.NoGrad(func() {
				g := op.Mul(op.OnesLike(c.loss, op.TensorOptions{}), core.Num(s.batch.Weights[a.Micro]*s.batch.Scale)).Keep()
				roots, grads, err = []*core.Tensor{c.loss}, []*core.Tensor{g}, g.Err()
			})
		} else {
			for i, p := range c.outputGrads {
				if p == nil || c.outputs[i] == nil {
					continue
				}
				roots, grads = append(roots, c.outputs[i]), append(grads, p.take())
			}
			c.outputGrads = nil
		}
		s.recorder.begin(s.next, a, grads)
		if err != nil || len(roots) == 0 {
			return
		}
		o := autograd.Options{}
		if a.Kind == InputGrad {
			o.First = []*core.Tensor{}
			if c.inputRoot != nil {
				o.First = append(o.First, c.inputRoot)
			}
		}
		c.run, err = autograd.NewRun(roots, grads, o)
	})
	release(c.outputs)
	c.outputs = nil
	c.loss.Release()
	c.loss = nil
	return err
}

// endBackward sends the gradients of a stage's inputs to the previous stage after Backward or InputGrad. It frees the graph after
// Backward or WeightGrad.
func (s *Step) endBackward(a Action, c *stageState) error {
	s.recorder.end(s.next, a, nil)
	s.next++
	if a.Kind != WeightGrad && a.Stage > 0 {
		if s.x.isLocal(a.Stage - 1) {
			before := s.states[a.Stage-1][a.Micro]
			before.outputGrads = make([]*transfer, len(c.inputGrads))
			for i, g := range c.inputGrads {
				if g == nil {
					continue
				}
				var err error
				s.withMode(a, false, func() { before.outputGrads[i], err = s.x.copier.send(g, s.x.Device(a.Stage-1), false) })
				if err != nil {
					return err
				}
			}
		} else {
			c.unsent, c.inputGrads = c.inputGrads, nil
		}
		release(c.inputGrads)
		c.inputGrads = nil
	}
	if a.Kind != InputGrad {
		if c.run != nil {
			c.run.Close()
		}
		c.run = nil
		c.inputRoot.Release()
		c.inputRoot = nil
	}
	return nil
}

// saveInputGrads is the backward function of the node that [stageState.beginReceived] makes.
func (c *stageState) saveInputGrads(ctx *core.BackwardContext) {
	for i := range c.inputGrads {
		if i < ctx.Node.Outputs() {
			if g := ctx.GradAt(i); g != nil {
				c.inputGrads[i] = g.Alias(false).Keep()
			}
		}
	}
}
