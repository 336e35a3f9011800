package pipeline

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// A step succeeds on all ranks or fails on all ranks. The ranks communicate through a channel of the group. If a step fails on one rank,
// for example because memory runs out, that rank revokes the channel. The sends and receives of the other ranks then fail with the same
// error, at the latest in the exchange at the end of the step. The next step opens a new channel on every rank.

// stepsChannel returns the channel for steps and opens it if needed. Channels match across ranks because all ranks run their
// steps in the same order.
func (x *Executor) stepsChannel() *collective.Group {
	if x.stepChannel == nil {
		if x.channel == nil {
			x.channel = x.group.Channel()
		}
		x.stepChannel = x.channel.Channel()
	}
	return x.stepChannel
}

// Refuse makes the next step fail on all ranks because this rank cannot begin it. It does not wait.
func (x *Executor) Refuse(cause error) error {
	if err := x.acquire(notAStep); err != nil {
		return err
	}
	defer x.current.Store(nil)
	if x.group != nil {
		x.stepsChannel().Revoke(cause)
		x.stepChannel = nil
	}
	return nil
}

// Forget undoes the effects of a failed step on parameters and buffers of this rank's stages. It drops gradients, as every rank
// must, and recovers tensors whose pending writes did not start.
func Forget(tensors []*core.Tensor) {
	for _, t := range tensors {
		if t.Grad() != nil {
			t.SetGrad(nil)
		}
		t.Recover()
	}
}

// abort fails the step on all ranks.
func (s *Step) abort() {
	cause := s.err
	if cause == nil {
		cause = core.Errorf(core.StateError, "pipeline", "its step was closed before it had ended")
	}
	for _, row := range s.states {
		for _, c := range row {
			if c.run != nil {
				c.run.Fail(cause)
			}
		}
	}
	s.p2p.group.Revoke(cause)
	s.x.stepChannel = nil
	for _, y := range s.x.shared {
		if !y.synced { // the owner's values may be in transit
			y.tensor.Recover()
		}
	}
}

// stop ends the step with an error that belongs to no action.
func (s *Step) stop(err error) error {
	s.err = err
	s.Close()
	return err
}
