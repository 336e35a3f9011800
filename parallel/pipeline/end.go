package pipeline

import (
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// finish ends a step after all its actions: it reduces gradients and losses, and waits until no rank can fail any more.
func (s *Step) finish(d time.Duration) (*Call, error) {
	if !s.reduced {
		s.reduced = true
		if err := s.reduce(); err != nil {
			return nil, s.stop(err)
		}
	}
	if s.p2p != nil {
		if !s.endAsked {
			s.endAsked = true
			s.call = &Call{What: CallEnd, Mode: core.CurrentMode()}
			return s.call, nil
		}
		switch again, err := s.awaitRanks(d); {
		case err != nil:
			return nil, s.stop(err)
		case again:
			return &Call{What: CallAgain}, nil
		}
	}
	s.committed = true
	for _, y := range s.x.shared {
		y.synced = true
	}
	s.Close()
	return nil, nil
}

// reduce sums the gradients of tensors that several stages use, and the losses of the micro-batches.
func (s *Step) reduce() error {
	if s.batch.Train {
		for _, y := range s.x.tied {
			err := y.addGrads(s.x.copier)
			if s.recorder.markTies(y.owner.Device()); err != nil {
				return err
			}
		}
		for _, y := range s.x.shared {
			if err := y.reduceGrad(s.p2p); err != nil {
				return err
			}
		}
	}
	var err error
	core.NoGrad(func() {
		for _, l := range s.losses {
			switch {
			case l == nil:
			case s.totalLoss == nil:
				s.totalLoss = l.Alias(false).Keep()
			default:
				sum := op.Add(s.totalLoss, l).Keep()
				s.totalLoss.Release()
				s.totalLoss, err = sum, sum.Err()
			}
			if err != nil {
				return
			}
		}
	})
	return err
}

// awaitRanks waits until every rank has reached the end of the step. No rank may use its gradients if another rank has failed.
func (s *Step) awaitRanks(d time.Duration) (again bool, err error) {
	if again, err = s.p2p.drain(d); again || err != nil {
		return again, err
	}
	if s.endWork == nil {
		s.endWork = s.p2p.group.For("the end of a pipeline's step").StartExchange("pipeline", nil)
	}
	done, err := waitFor(s.endWork.ArrivedOn, s.endWork.Arrived, d)
	return !done, err
}

// Loss returns the weighted sum of the micro-batches' losses after all passes, and nil if this rank has no losses. The tensor
// belongs to the caller and its scope.
func (s *Step) Loss() *core.Tensor {
	if s.totalLoss == nil {
		return nil
	}
	return s.totalLoss.Alias(false)
}
