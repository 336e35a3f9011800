package optim

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A lineSearch looks along a direction for a rate that meets the strong Wolfe conditions: Nocedal and Wright 2006,
// algorithms 3.5 and 3.6, with cubic interpolation. Each probe starts from the parameters as they were, so that the loss
// and the gradient of a rate are those where the rate puts them, however many were tried before.
type lineSearch struct {
	problem     *problem
	base        []*core.Tensor // the parameters at rate 0
	direction   *core.Tensor
	loss, slope float64 // at rate 0
	limit       int     // of evaluations after the first one
	evaluations int
}

// A point is a rate with the loss, gradient and slope there.
type point struct {
	rate, loss, slope float64
	grad              *core.Tensor
}

const (
	decrease = 1e-4 // of the loss, as a part of what the slope promises
	flatness = 0.9  // of the slope, as a part of the first one
)

// put sets the parameters to those at a rate.
func (s *lineSearch) put(rate float64) {
	if s.problem.err == nil {
		s.problem.err = s.problem.place(s.base)
	}
	s.problem.move(s.direction, rate)
}

func (s *lineSearch) probe(rate float64) point {
	s.put(rate)
	loss, grad := s.problem.evaluate()
	s.evaluations++
	if s.problem.err != nil {
		return point{rate: rate}
	}
	return point{rate, loss, s.problem.dot(grad, s.direction), grad}
}

func (s *lineSearch) run(rate float64, grad *core.Tensor) (float64, *core.Tensor, float64) {
	for _, slot := range s.problem.slots {
		c := op.Clone(slot.param)
		defer c.Release()
		s.base = append(s.base, c)
	}
	low, high, found := s.bracket(rate, point{0, s.loss, s.slope, grad})
	if !found {
		low = s.zoom(low, high)
	}
	s.put(low.rate)
	return low.loss, low.grad, low.rate
}

// short reports whether the loss of p falls short of the decrease that the slope promises. A decrease that is less than
// the precision of single-precision parameters is not asked for.
func (s *lineSearch) short(p point) bool {
	most := s.loss + decrease*p.rate*s.slope
	if precision(s.problem.slots[0]) != core.Float64 {
		most = float64(float32(most))
	}
	return p.loss > most || math.IsNaN(p.loss)
}

// bracket goes outward from the start. It returns a point that meets the conditions (found), or two between which there
// is one, in the order of their rates.
func (s *lineSearch) bracket(rate float64, start point) (left, right point, found bool) {
	before, now := start, s.probe(rate)
	for n := 0; n < s.limit && s.problem.err == nil; n++ {
		switch {
		case s.short(now) || n > 1 && now.loss >= before.loss:
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
	return start, now, false
}

// zoom narrows the interval between two points until one meets the conditions, the interval is too short to matter, or
// there are no more evaluations, and returns the better; of equal ones, the first.
func (s *lineSearch) zoom(a, b point) point {
	ends := [2]point{a, b}
	low := 0
	better := func() {
		if low = 0; ends[0].loss > ends[1].loss {
			low = 1
		}
	}
	better()
	tolerance := s.problem.hyper["tolerance_change"]
	size := s.problem.norm(s.direction, math.Inf(1))
	stuck := false
	for s.evaluations <= s.limit && s.problem.err == nil {
		left, right := min(ends[0].rate, ends[1].rate), max(ends[0].rate, ends[1].rate)
		if (right-left)*size < tolerance {
			break
		}
		rate := cubicMinimum(ends[0], ends[1], left, right)
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
		high := 1 - low
		if s.short(now) || now.loss >= ends[low].loss {
			ends[high] = now
			better()
			continue
		}
		if math.Abs(now.slope) <= -flatness*s.slope {
			return now
		}
		if now.slope*(ends[high].rate-ends[low].rate) >= 0 {
			ends[high] = ends[low]
		}
		ends[low] = now
	}
	return ends[low]
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
