package pipeline

import (
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// finish ends a step all of whose actions are done.
func (s *Step) finish(d time.Duration) (*Call, error) {
	if !s.joined {
		s.joined = true
		if err := s.join(); err != nil {
			return nil, s.stop(err)
		}
	}
	if s.remote != nil {
		if !s.asked {
			s.asked = true
			s.call = &Call{What: CallEnd, Mode: core.CurrentMode()}
			return s.call, nil
		}
		switch again, err := s.meet(d); {
		case err != nil:
			return nil, s.stop(err)
		case again:
			return &Call{What: CallAgain}, nil
		}
	}
	s.over = true
	for _, y := range s.x.shares {
		y.equal = true
	}
	s.Close()
	return nil, nil
}

// join adds up the gradients of tensors that several stages have, and the losses.
func (s *Step) join() error {
	if s.batch.Train {
		for _, y := range s.x.ties {
			err := y.collect(s.x.lines)
			if s.marks.tied(y.owner.Device()); err != nil {
				return err
			}
		}
		for _, y := range s.x.shares {
			if err := y.collect(s.remote); err != nil {
				return err
			}
		}
	}
	var err error
	core.NoGrad(func() {
		for _, l := range s.losses {
			switch {
			case l == nil:
			case s.total == nil:
				s.total = l.Alias(false).Keep()
			default:
				sum := op.Add(s.total, l).Keep()
				s.total.Release()
				s.total, err = sum, sum.Err()
			}
			if err != nil {
				return
			}
		}
	})
	return err
}

// meet waits, at the end of a step, for the other ranks to have come so far: none may use its gradients if one has failed.
func (s *Step) meet(d time.Duration) (again bool, err error) {
	if again, err = s.remote.leave(d); again || err != nil {
		return again, err
	}
	if s.end == nil {
		s.end = s.remote.group.For("the end of a pipeline's step").StartExchange("pipeline", nil)
	}
	done, err := wait(s.end.ArrivedOn, s.end.Arrived, d)
	return !done, err
}

// Loss returns the weighted sum of the micro-batches' losses, once all passes have ended; nil where there is none. It belongs to the
// caller and to its scope.
func (s *Step) Loss() *core.Tensor {
	if s.total == nil {
		return nil
	}
	return s.total.Alias(false)
}
