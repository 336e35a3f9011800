package optim

import (
	"math"

	"github.com/plait-ml/plait/core"
)

// A lineSearch looks along a direction for a rate that meets the strong Wolfe conditions: Nocedal and Wright 2006,
// algorithms 3.5 and 3.6, with cubic interpolation. Parameters are moved back and forth; at the end they are where the
// rate that was chosen puts them.
type lineSearch struct {
	problem     *problem
	direction   *core.Tensor
	loss, slope float64 // at rate 0
	at          float64 // where the parameters are now
	evaluations int
}

// A point is a rate with the loss, gradient and slope there.
type point struct {
	rate, loss, slope float64
	grad              *core.Tensor
}

const (
	decrease  = 1e-4 // of the loss, as a part of what the slope promises
	flatness  = 0.9  // of the slope, as a part of the first one
	maxProbes = 25
)

func (s *lineSearch) probe(rate float64) point {
	s.problem.move(s.direction, rate-s.at)
	s.at = rate
	loss, grad := s.problem.evaluate()
	s.evaluations++
	if s.problem.err != nil {
		return point{rate: rate}
	}
	return point{rate, loss, s.problem.dot(grad, s.direction), grad}
}

func (s *lineSearch) run(rate float64, grad *core.Tensor) (float64, *core.Tensor, float64) {
	low, high, found := s.bracket(rate, point{0, s.loss, s.slope, grad})
	if !found {
		low = s.zoom(low, high)
	}
	if s.problem.err == nil {
		s.problem.move(s.direction, low.rate-s.at)
	}
	return low.loss, low.grad, low.rate
}

// bracket goes outward from the start. It returns a point that meets the conditions (found), or two between which there
// is one.
func (s *lineSearch) bracket(rate float64, start point) (low, high point, found bool) {
	before, now := start, s.probe(rate)
	for n := 0; n < maxProbes && s.problem.err == nil; n++ {
		switch {
		case now.loss > s.loss+decrease*now.rate*s.slope || n > 0 && now.loss >= before.loss || math.IsNaN(now.loss):
			return before, now, false
		case math.Abs(now.slope) <= -flatness*s.slope:
			return now, now, true
		case now.slope >= 0:
			return before, now, false
		}
		// Extrapolate, but neither too little nor more than tenfold.
		least, most := now.rate+0.01*(now.rate-before.rate), 10*now.rate
		next := cubicMinimum(before, now, least, most)
		before, now = now, s.probe(next)
	}
	if now.loss < start.loss {
		return now, start, true
	}
	return start, now, false
}

// zoom narrows the interval between two points until one meets the conditions or the interval is too short to matter, and
// returns the better.
func (s *lineSearch) zoom(a, b point) point {
	low, high := a, b
	if low.loss > high.loss {
		low, high = high, low
	}
	tolerance := s.problem.hyper["tolerance_change"]
	size := s.problem.norm(s.direction, math.Inf(1))
	stuck := false
	for s.evaluations < maxProbes && s.problem.err == nil {
		if math.Abs(high.rate-low.rate)*size < tolerance {
			break
		}
		left, right := min(low.rate, high.rate), max(low.rate, high.rate)
		rate := cubicMinimum(low, high, left, right)
		// A minimum close to an end hardly shortens the interval: twice in a row, or past the end, take a tenth.
		edge := 0.1 * (right - left)
		if min(right-rate, rate-left) < edge {
			if stuck || rate >= right || rate <= left {
				if math.Abs(rate-right) < math.Abs(rate-left) {
					rate = right - edge
				} else {
					rate = left + edge
				}
				stuck = false
			} else {
				stuck = true
			}
		} else {
			stuck = false
		}
		now := s.probe(rate)
		if s.problem.err != nil {
			break
		}
		if now.loss > s.loss+decrease*rate*s.slope || now.loss >= low.loss || math.IsNaN(now.loss) {
			high = now
			if high.loss < low.loss {
				low, high = high, low
			}
		} else {
			if math.Abs(now.slope) <= -flatness*s.slope {
				return now
			}
			if now.slope*(high.rate-low.rate) >= 0 {
				high = low
			}
			low = now
		}
	}
	return low
}

// cubicMinimum returns where the cubic through two points with their slopes has its minimum, kept within [least, most];
// the middle if it has none.
func cubicMinimum(a, b point, least, most float64) float64 {
	if a.rate > b.rate {
		a, b = b, a
	}
	d1 := a.slope + b.slope - 3*(a.loss-b.loss)/(a.rate-b.rate)
	square := d1*d1 - a.slope*b.slope
	if !(square >= 0) {
		return (least + most) / 2
	}
	d2 := math.Sqrt(square)
	v := b.rate - (b.rate-a.rate)*(b.slope+d2-d1)/(b.slope-a.slope+2*d2)
	if math.IsNaN(v) {
		return (least + most) / 2
	}
	return min(max(v, least), most)
}
