package pipeline

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// A Tie is a parameter that several stages share. At the end of a step, the other devices send their gradients to the device of
// the first stage. A gradient is sent after the last pass that adds to it.
type Tie struct {
	Stages []int
	// Time is the time of sending the gradient from one device to another. Transfers between the same two devices run one after the
	// other.
	Time float64
}

// check returns an error if the stages or the time are invalid.
func (y Tie) check(stages int) error {
	if len(y.Stages) == 0 || slices.Min(y.Stages) < 0 || slices.Max(y.Stages) >= stages {
		return core.Errorf(core.ValueError, "simulate", "got a tie of the stages %v, want some from 0 to %d", y.Stages, stages-1)
	}
	if !(y.Time >= 0) {
		return core.Errorf(core.ValueError, "simulate", "got the cost %v of a tie, want 0 or more", y.Time)
	}
	return nil
}

// tiesEnd returns when the last gradient of a tied parameter was added. free holds the time at which each device has done
// everything else.
func (s *Schedule) tiesEnd(c Costs, spans [][]Span, free []float64) (end float64) {
	place := s.Devices()
	ready := map[[2]int]float64{} // by sender and receiver
	for _, y := range c.Ties {
		owner := place[slices.Min(y.Stages)]
		for from := range spans {
			made := -1.0 // end of the last pass on this device that adds to the gradient
			for _, x := range spans[from] {
				if from != owner && (x.Kind == Backward || x.Kind == WeightGrad) && slices.Contains(y.Stages, x.Stage) {
					made = max(made, x.End)
				}
			}
			if made < 0 {
				continue
			}
			line := [2]int{from, owner}
			if c.NoOverlap {
				free[from] += y.Time / 2
				free[owner] = max(free[owner], free[from]) + y.Time/2
				end = max(end, free[owner])
				continue
			}
			ready[line] = max(ready[line], made) + y.Time
			end = max(end, ready[line], free[owner])
		}
	}
	return end
}
