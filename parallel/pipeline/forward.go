package pipeline

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// beginForward prepares the inputs of a stage and asks the caller for the stage's forward pass.
func (s *Step) beginForward(a Action, c *stageState) error {
	m := s.micros[a.Micro]
	dev := s.x.Device(a.Stage)
	var err error
	s.withMode(a, s.batch.Train, func() {
		if a.Stage == 0 {
			err = c.begin(s.batch.Inputs[a.Micro], dev)
		} else {
			err = c.beginReceived()
		}
		if m.ownRandom {
			m.context.Generator(dev).SetState(m.seed, m.offset)
		}
	})
	if err != nil {
		return err
	}
	s.recorder.begin(s.next, a, c.inputs)
	s.call = &Call{What: CallForward, Stage: a.Stage, Micro: a.Micro, Inputs: c.inputs, Mode: s.mode(a, s.batch.Train)}
	return nil
}

// begin moves a micro-batch to the first stage's device.
func (c *stageState) begin(inputs []*core.Tensor, dev core.Device) error {
	for i, t := range inputs {
		if err := t.Usable("pipeline"); err != nil {
			return core.Errorf(core.ValueError, "pipeline", "input %d: %w", i, err)
		}
		if err := core.RefuseTangent("pipeline", t); err != nil {
			return err
		}
		t = op.ToDevice(t, dev).Keep()
		if err := t.Err(); err != nil {
			return err
		}
		c.inputs = append(c.inputs, t)
		if c.inputRoot == nil && t.RequiresGrad() && core.CurrentMode().GradEnabled() {
			var err error
			if c.inputRoot, err = placeholder(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// beginReceived turns the received tensors into the stage's inputs. The inputs are outputs of a new autograd node, whose backward
// saves their gradients for the previous stage.
func (c *stageState) beginReceived() error {
	mode := core.CurrentMode()
	var node *core.Node
	n := 0
	for _, p := range c.received {
		t := p.take()
		c.inputs = append(c.inputs, t)
		if !p.wantsGrad || !mode.GradEnabled() {
			continue
		}
		if node == nil {
			node = core.NewNode(mode, "pipeline", c.saveInputGrads)
		}
		node.Attach(t, len(c.inputs)-1)
		n++
	}
	c.inputGrads = make([]*core.Tensor, len(c.inputs))
	c.received = nil
	if node == nil {
		return nil
	}
	defer node.Release()
	for i := range c.inputs {
		if c.inputs[i].RequiresGrad() {
			first, err := node.Placeholder(i)
			if err != nil {
				return err
			}
			c.inputRoot = first.Keep()
			break
		}
	}
	return nil
}

// endForward takes the outputs of a stage's forward pass. It sends them to the next stage. In the last stage it asks the caller
// for the loss.
func (s *Step) endForward(a Action, c *stageState, outs []*core.Tensor) error {
	if len(outs) == 0 {
		return core.Errorf(core.ValueError, "forward", "got no outputs")
	}
	for i, t := range outs {
		if err := t.Usable("forward"); err != nil {
			return s.explainInput(a, c, err)
		}
		if err := core.RefuseTangent("pipeline", t); err != nil {
			return err
		}
		if t.IsNumber() {
			return core.Errorf(core.TypeError, "forward", "output %d is a number, want tensors", i)
		}
	}
	m := s.micros[a.Micro]
	if m.ownRandom {
		_, m.offset = m.context.Generator(s.x.Device(a.Stage)).State()
	}
	release(c.inputs)
	c.inputs = nil
	if a.Stage < s.x.Stages()-1 {
		s.recorder.end(s.next, a, outs)
		s.next++
		return s.sendOutputs(a, c, outs)
	}
	if s.batch.Outputs {
		for _, t := range outs {
			s.outputs[a.Micro] = append(s.outputs[a.Micro], t.Detach().Keep())
		}
	}
	switch {
	case s.batch.Loss:
		for _, t := range outs {
			c.outputs = append(c.outputs, t.Alias(true).Keep())
		}
		s.call = &Call{What: CallLoss, Stage: a.Stage, Micro: a.Micro, Inputs: c.outputs, Mode: s.mode(a, s.batch.Train)}
		return nil
	case s.batch.Train:
		return s.endLoss(a, c, outs)
	}
	s.recorder.end(s.next, a, outs)
	s.next++
	return nil
}

// explainInput adds the shapes of the input to a shape error of a stage's forward pass, since another stage made the input.
func (s *Step) explainInput(a Action, c *stageState, err error) error {
	if kind, _ := core.KindOf(err); kind != core.ShapeError || a.Stage == 0 {
		return err
	}
	return core.Errorf(core.ShapeError, "", "its input, the output of stage %d, is %s: %w", a.Stage-1, shapes(c.inputs), err)
}

func shapes(list []*core.Tensor) string {
	var names []string
	for _, t := range list {
		names = append(names, fmt.Sprintf("%v%v", t.DType(), t.Shape()))
	}
	return strings.Join(names, ", ")
}

// sendOutputs sends a stage's outputs to the next stage and keeps placeholders of them as roots of the backward pass.
func (s *Step) sendOutputs(a Action, c *stageState, outs []*core.Tensor) error {
	next := a.Stage + 1
	var err error
	s.withMode(a, false, func() {
		for _, t := range outs {
			grad := s.batch.Train && t.RequiresGrad()
			if s.x.isLocal(next) {
				var p *transfer
				if p, err = s.x.copier.send(t, s.x.Device(next), grad); err != nil {
					return
				}
				s.states[next][a.Micro].received = append(s.states[next][a.Micro].received, p)
			} else {
				ready := t.Detach().Keep()
				c.unsent = append(c.unsent, ready)
			}
			var root *core.Tensor
			if grad {
				if root, err = placeholder(t); err != nil {
					return
				}
			}
			c.outputs = append(c.outputs, root)
		}
	})
	return err
}

// placeholder returns a tensor at t's place in the graph without t's memory, from which a backward pass can begin.
func placeholder(t *core.Tensor) (*core.Tensor, error) {
	e := t.AutogradMeta().Edge()
	defer e.Node.Release()
	root, err := e.Node.Placeholder(e.Index)
	if err != nil {
		return nil, err
	}
	return root.Keep(), nil
}

// endLoss takes the loss of a micro-batch and weights it.
func (s *Step) endLoss(a Action, c *stageState, results []*core.Tensor) error {
	if len(results) != 1 {
		return core.Errorf(core.ValueError, "loss", "got %d tensors, want one with one element", len(results))
	}
	loss := results[0]
	if err := loss.Usable("loss"); err != nil {
		return err
	}
	if loss.Numel() != 1 || loss.Dim() != 0 {
		return core.Errorf(core.ShapeError, "loss", "got a loss of shape %v, want a scalar: reduce it by a mean or a sum", loss.Shape())
	}
	release(c.outputs)
	c.outputs = nil
	s.recorder.end(s.next, a, results)
	s.next++
	var err error
	s.withMode(a, false, func() {
		weighted := op.Mul(loss.Detach(), core.Num(s.batch.Weights[a.Micro])).Keep()
		s.losses[a.Micro], err = weighted, weighted.Err()
	})
	if s.batch.Train && err == nil {
		c.loss = loss.Alias(true).Keep()
	}
	return err
}
