package pipeline

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// A step of ranks counts on all of them or on none. What they send goes through a channel of the group. A rank whose step fails, such as
// for lack of memory, revokes the channel, so that the others fail with its error in whatever they wait for, at the latest at the end,
// where all ranks meet. The next step has a new channel, on every rank the same.

// channel returns the handle for the steps until one fails. Ranks make their first steps in one order, and so their channels.
func (x *Executor) channel() *collective.Group {
	if x.steps == nil {
		if x.own == nil {
			x.own = x.group.Channel()
		}
		x.steps = x.own.Channel()
	}
	return x.steps
}

// Refuse makes the ranks' next step fail on all of them: this one cannot begin it because of cause. It waits for nobody.
func (x *Executor) Refuse(cause error) error {
	if err := x.take(busy); err != nil {
		return err
	}
	defer x.open.Store(nil)
	if x.group != nil {
		x.channel().Revoke(cause)
		x.steps = nil
	}
	return nil
}

// Forget takes back what a step that has failed left on parameters and buffers of this rank's stages: gradients are dropped, as they
// must be on every rank, and what was to be changed by something that did not come is as it was.
func Forget(tensors []*core.Tensor) {
	for _, t := range tensors {
		if t.Grad() != nil {
			t.SetGrad(nil)
		}
		t.Recover(collective.IsNotStarted)
	}
}

// giveUp ends the step on all ranks.
func (s *Step) giveUp() {
	cause := s.err
	if cause == nil {
		cause = core.Errorf(core.StateError, "pipeline", "its step was closed before it had ended")
	}
	for _, row := range s.cells {
		for _, c := range row {
			if c.run != nil {
				c.run.Fail(cause)
			}
		}
	}
	s.remote.group.Revoke(cause)
	s.x.steps = nil
	for _, y := range s.x.shares {
		if !y.equal { // its values were on their way
			y.tensor.Recover(collective.IsNotStarted)
		}
	}
}

// stop ends the step because of an error.
func (s *Step) stop(err error) error {
	s.err = err
	s.Close()
	return err
}
