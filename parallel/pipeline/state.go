package pipeline

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
)

// A stageState is the state of one micro-batch in one stage.
type stageState struct {
	received        []*transfer // inputs from the previous stage
	inputs          []*core.Tensor
	inputRoot       *core.Tensor   // placeholder of the first input that requires a gradient; InputGrad computes its gradient
	inputGrads      []*core.Tensor // gradients for the previous stage
	outputs         []*core.Tensor // roots of the backward pass
	outputGrads     []*transfer    // gradients of the outputs, from the next stage
	loss            *core.Tensor
	unsent          []*core.Tensor // outputs or gradients to send to another rank
	backwardBegun   bool
	weightGradBegun bool
	run             *autograd.Run
}

// release frees the state at the end of the step, also if the step has failed.
func (c *stageState) release() {
	if c.run != nil {
		c.run.Close()
		c.run = nil
	}
	for _, list := range [][]*core.Tensor{c.inputs, c.inputGrads, c.outputs, c.unsent, {c.inputRoot, c.loss}} {
		release(list)
	}
	c.inputRoot, c.loss = nil, nil
	for _, list := range [][]*transfer{c.received, c.outputGrads} {
		for _, p := range list {
			p.release()
		}
	}
	c.received, c.outputGrads = nil, nil
}
