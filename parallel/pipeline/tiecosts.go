package pipeline

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// A Tie is a tensor that several stages share. At the end of a step, each other device's gradient of it travels to the device of the
// first of these stages, once the last pass there has added to it.
type Tie struct {
	Stages []int
	// Time is what the gradient takes from one device to another. Those between the same two devices follow one another.
	Time float64
}

// check returns an error unless the tie is one of so many stages.
func (y Tie) check(stages int) error {
	if len(y.Stages) == 0 || slices.Min(y.Stages) < 0 || slices.Max(y.Stages) >= stages {
		return core.Errorf(core.ValueError, "simulate", "got a tie of the stages %v, want some from 0 to %d", y.Stages, stages-1)
	}
	if !(y.Time >= 0) {
		return core.Errorf(core.ValueError, "simulate", "got the cost %v of a tie, want 0 or more", y.Time)
	}
	return nil
}

// tied returns when the last gradient of a tied tensor was added. free are the times at which the devices have done all else.
func (s *Schedule) tied(c Costs, spans [][]Span, free []float64) (end float64) {
	place := s.Devices()
	ready := map[[2]int]float64{} // by sender and receiver
	for _, y := range c.Ties {
		owner := place[slices.Min(y.Stages)]
		for from := range spans {
			made := -1.0 // when the last pass there has added to the gradient
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
