package pipeline

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// A cell is the state of one micro-batch in one stage: its inputs and outputs, what its backward pass needs, and what is to be sent.
type cell struct {
	arriving []*parcel // inputs
	inputs   []*core.Tensor
	first    *core.Tensor // stands for one of the inputs in the graph, if their gradients are wanted
	caught   []*core.Tensor
	outs     []*core.Tensor // where its backward pass begins
	returned []*parcel      // gradients of the outputs
	loss     *core.Tensor
	ready    []*core.Tensor // outputs that are to be sent to another rank
	begun    bool           // its backward pass has
	resting  bool           // the gradients of its weights are under way
	run      *autograd.Run
}

// beginForward asks for a stage's forward pass.
func (s *Step) beginForward(a Action, c *cell) error {
	m := s.micros[a.Micro]
	dev := s.x.Device(a.Stage)
	var err error
	s.in(a, s.batch.Train, func() {
		if a.Stage == 0 {
			err = c.begin(s.batch.Inputs[a.Micro], dev)
		} else {
			err = c.receive()
		}
		if m.forked {
			m.context.Generator(dev).SetState(m.seed, m.offset)
		}
	})
	if err != nil {
		return err
	}
	s.marks.begin(s.at, a, c.inputs)
	s.call = &Call{What: CallForward, Stage: a.Stage, Micro: a.Micro, Inputs: c.inputs, Mode: s.mode(a, s.batch.Train)}
	return nil
}

// begin takes a part of the batch to the first stage's device.
func (c *cell) begin(inputs []*core.Tensor, dev core.Device) error {
	for i, t := range inputs {
		if err := t.Usable("pipeline"); err != nil {
			return core.Errorf(core.ValueError, "pipeline", "input %d: %w", i, err)
		}
		t = op.ToDevice(t, dev).Keep()
		if err := t.Err(); err != nil {
			return err
		}
		c.inputs = append(c.inputs, t)
		if c.first == nil && t.RequiresGrad() && core.CurrentMode().GradEnabled() {
			var err error
			if c.first, err = stand(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// receive makes the inputs that have arrived the beginning of the micro-batch's graph in this stage.
func (c *cell) receive() error {
	mode := core.CurrentMode()
	var node *core.Node
	n := 0
	for _, p := range c.arriving {
		t := p.take()
		c.inputs = append(c.inputs, t)
		if !p.grad || !mode.GradEnabled() {
			continue
		}
		if node == nil {
			node = core.NewNode(mode, "pipeline", c.catch)
		}
		node.Attach(t, len(c.inputs)-1)
		n++
	}
	c.caught = make([]*core.Tensor, len(c.inputs))
	c.arriving = nil
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
			c.first = first.Keep()
			break
		}
	}
	return nil
}

// catch is the derivative of the node that the inputs come from.
func (c *cell) catch(ctx *core.BackwardContext) {
	for i := range c.caught {
		if i < ctx.Node.Outputs() {
			if g := ctx.GradAt(i); g != nil {
				c.caught[i] = g.Alias(false).Keep()
			}
		}
	}
}

// endForward takes a stage's outputs.
func (s *Step) endForward(a Action, c *cell, outs []*core.Tensor) error {
	if len(outs) == 0 {
		return core.Errorf(core.ValueError, "forward", "got no outputs")
	}
	for i, t := range outs {
		if err := t.Usable("forward"); err != nil {
			return s.fits(a, c, err)
		}
		if t.IsNumber() {
			return core.Errorf(core.TypeError, "forward", "output %d is a number, want tensors", i)
		}
	}
	m := s.micros[a.Micro]
	if m.forked {
		_, m.offset = m.context.Generator(s.x.Device(a.Stage)).State()
	}
	release(c.inputs)
	c.inputs = nil
	if a.Stage < s.x.Stages()-1 {
		s.marks.end(s.at, a, outs)
		s.at++
		return s.pass(a, c, outs)
	}
	if s.batch.Outputs {
		for _, t := range outs {
			s.outputs[a.Micro] = append(s.outputs[a.Micro], t.Detach().Keep())
		}
	}
	switch {
	case s.batch.Loss:
		for _, t := range outs {
			c.outs = append(c.outs, t.Alias(true).Keep())
		}
		s.call = &Call{What: CallLoss, Stage: a.Stage, Micro: a.Micro, Inputs: c.outs, Mode: s.mode(a, s.batch.Train)}
		return nil
	case s.batch.Train:
		return s.endLoss(a, c, outs)
	}
	s.marks.end(s.at, a, outs)
	s.at++
	return nil
}

// fits adds to an error of a stage's forward pass what the stage before gave it.
func (s *Step) fits(a Action, c *cell, err error) error {
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

// pass sends a stage's outputs to the next one, and keeps what its backward pass begins with.
func (s *Step) pass(a Action, c *cell, outs []*core.Tensor) error {
	next := a.Stage + 1
	var err error
	s.in(a, false, func() {
		for _, t := range outs {
			grad := s.batch.Train && t.RequiresGrad()
			if s.x.mine(next) {
				var p *parcel
				if p, err = s.x.lines.send(t, s.x.Device(next), grad); err != nil {
					return
				}
				s.cells[next][a.Micro].arriving = append(s.cells[next][a.Micro].arriving, p)
			} else {
				ready := t.Detach().Keep()
				c.ready = append(c.ready, ready)
			}
			var root *core.Tensor
			if grad {
				if root, err = stand(t); err != nil {
					return
				}
			}
			c.outs = append(c.outs, root)
		}
	})
	return err
}

// stand returns a tensor without t's memory from which backward passes can begin.
func stand(t *core.Tensor) (*core.Tensor, error) {
	e := t.AutogradMeta().Edge()
	defer e.Node.Release()
	root, err := e.Node.Placeholder(e.Index)
	if err != nil {
		return nil, err
	}
	return root.Keep(), nil
}

// endLoss takes the loss of a micro-batch.
func (s *Step) endLoss(a Action, c *cell, results []*core.Tensor) error {
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
	release(c.outs)
	c.outs = nil
	s.marks.end(s.at, a, results)
	s.at++
	var err error
	s.in(a, false, func() {
		weighted := op.Mul(loss.Detach(), core.Num(s.batch.Weights[a.Micro])).Keep()
		s.losses[a.Micro], err = weighted, weighted.Err()
	})
	if s.batch.Train && err == nil {
		c.loss = loss.Alias(true).Keep()
	}
	return err
}

// beginBackward prepares a micro-batch's backward pass in a stage.
func (s *Step) beginBackward(a Action, c *cell) error {
	c.begun = true
	var roots, grads []*core.Tensor
	defer func() { release(grads) }()
	var err error
	s.in(a, true, func() {
		if c.loss != nil {
			core.NoGrad(func() {
				g := op.Mul(op.OnesLike(c.loss, op.TensorOptions{}), core.Num(s.batch.Weights[a.Micro]*s.batch.Scale)).Keep()
				roots, grads, err = []*core.Tensor{c.loss}, []*core.Tensor{g}, g.Err()
			})
		} else {
			for i, p := range c.returned {
				if p == nil || c.outs[i] == nil {
					continue
				}
				roots, grads = append(roots, c.outs[i]), append(grads, p.take())
			}
			c.returned = nil
		}
		s.marks.begin(s.at, a, grads)
		if err != nil || len(roots) == 0 {
			return
		}
		o := autograd.Options{}
		if a.Kind == InputGrad {
			o.First = []*core.Tensor{}
			if c.first != nil {
				o.First = append(o.First, c.first)
			}
		}
		c.run, err = autograd.NewRun(roots, grads, o)
	})
	release(c.outs)
	c.outs = nil
	c.loss.Release()
	c.loss = nil
	return err
}

// endBackward passes the gradients of a stage's inputs on to the stage before, after the part of the backward pass that makes
// them, and lets go of the graph after the last.
func (s *Step) endBackward(a Action, c *cell) error {
	s.marks.end(s.at, a, nil)
	s.at++
	if a.Kind != WeightGrad && a.Stage > 0 {
		if s.x.mine(a.Stage - 1) {
			before := s.cells[a.Stage-1][a.Micro]
			before.returned = make([]*parcel, len(c.caught))
			for i, g := range c.caught {
				if g == nil {
					continue
				}
				var err error
				s.in(a, false, func() { before.returned[i], err = s.x.lines.send(g, s.x.Device(a.Stage-1), false) })
				if err != nil {
					return err
				}
			}
		} else {
			c.ready, c.caught = c.caught, nil
		}
		release(c.caught)
		c.caught = nil
	}
	if a.Kind != InputGrad {
		if c.run != nil {
			c.run.Close()
		}
		c.run = nil
		c.first.Release()
		c.first = nil
	}
	return nil
}

// drop lets go of everything.
func (c *cell) drop() {
	if c.run != nil {
		c.run.Close()
		c.run = nil
	}
	for _, list := range [][]*core.Tensor{c.inputs, c.caught, c.outs, c.ready, {c.first, c.loss}} {
		release(list)
	}
	c.first, c.loss = nil, nil
	for _, list := range [][]*parcel{c.arriving, c.returned} {
		for _, p := range list {
			p.drop()
		}
	}
	c.arriving, c.returned = nil, nil
}
