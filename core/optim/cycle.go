package optim

import (
	"math"

	"github.com/plait-ml/plait/core"
)

// OneCycleOptions describe a [NewOneCycleLR]. Numbers left at 0 have PyTorch's defaults.
type OneCycleOptions struct {
	MaxLR          []float64 // the highest rate: one for all groups or one for each
	TotalSteps     int
	PctStart       float64 // the part of the cycle in which the rate rises; 0.3
	Linear         bool    // straight lines instead of half cosines
	FixedMomentum  bool    // leave the momentum alone
	BaseMomentum   float64 // at the highest rate; 0.85
	MaxMomentum    float64 // at the ends; 0.95
	DivFactor      float64 // the first rate is MaxLR over this; 25
	FinalDivFactor float64 // the last rate is the first over this; 1e4
	ThreePhase     bool    // come down as fast as up, then go on to the last rate
}

func orDefault(v *float64, d float64) {
	if *v == 0 {
		*v = d
	}
}

// NewOneCycleLR takes the rate up and then down to almost 0 in one cycle, and the momentum (or beta1) the other way: Smith
// and Topin 2018, "Super-convergence: very fast training of neural networks using large learning rates". A loop that ends
// each of the steps with [Schedule.Step] goes one past the last rate: there it stays, where PyTorch goes back up.
func NewOneCycleLR(o *Optimizer, c OneCycleOptions) (*Schedule, error) {
	const kind = "one_cycle_lr"
	orDefault(&c.PctStart, 0.3)
	orDefault(&c.BaseMomentum, 0.85)
	orDefault(&c.MaxMomentum, 0.95)
	orDefault(&c.DivFactor, 25)
	orDefault(&c.FinalDivFactor, 1e4)
	if err := onePerGroup(kind, o, len(c.MaxLR)); err != nil {
		return nil, err
	}
	if c.TotalSteps < 1 {
		return nil, core.Errorf(core.ValueError, kind, "the number of steps must be positive, got %d", c.TotalSteps)
	}
	if !(c.PctStart >= 0 && c.PctStart <= 1) {
		return nil, core.Errorf(core.ValueError, kind, "the rising part must be in [0, 1], got %v", c.PctStart)
	}
	momentum, err := cycledMomentum(kind, o, !c.FixedMomentum)
	if err != nil {
		return nil, err
	}
	// The ends of the phases, and how far up from first (0) to highest (1), or down from there to last (2), each goes.
	total := float64(c.TotalSteps)
	ends, marks := []float64{c.PctStart*total - 1, total - 1}, []int{0, 1, 2}
	if c.ThreePhase {
		ends, marks = []float64{c.PctStart*total - 1, 2*c.PctStart*total - 2, total - 1}, []int{0, 1, 0, 2}
	}
	along := func(t float64, value func(mark int) float64) float64 {
		t = min(t, total-1)
		start := 0.0
		for i, end := range ends {
			if t <= end || i == len(ends)-1 {
				x := 1.0
				if end != start {
					x = (t - start) / (end - start)
				}
				a, b := value(marks[i]), value(marks[i+1])
				if c.Linear {
					return a + (b-a)*x
				}
				return cosine(a, b, x)
			}
			start = end
		}
		return 0
	}
	v := curve{sets: true, last: total - 1, at: func(_ float64, g int, t float64) float64 {
		most := c.MaxLR[g%len(c.MaxLR)]
		first := most / c.DivFactor
		return along(t, func(mark int) float64 { return []float64{first, most, first / c.FinalDivFactor}[mark] })
	}}
	if momentum {
		v.momentum = func(t float64) float64 {
			return along(t, func(mark int) float64 { return []float64{c.MaxMomentum, c.BaseMomentum, c.MaxMomentum}[mark] })
		}
	}
	return newSchedule(o, kind, v)
}

// cycledMomentum reports whether the momentum is to be changed; an error if there is none to change.
func cycledMomentum(kind string, o *Optimizer, wanted bool) (bool, error) {
	if !wanted {
		return false, nil
	}
	for _, g := range o.groups {
		if momentumName(g.values()) == "" {
			return false, core.Errorf(core.ValueError, kind, "%s has no momentum to cycle; set FixedMomentum", o.algorithm.name)
		}
	}
	return true, nil
}

// CyclicOptions describe a [NewCyclicLR]. Numbers left at 0 have PyTorch's defaults.
type CyclicOptions struct {
	BaseLR, MaxLR []float64 // one for all groups or one for each
	StepsUp       int       // 2000
	StepsDown     int       // as many as up
	// Scale returns how much of the amplitude a cycle (counted from 1) or, with ByStep, a step has. Nil means all of it;
	// see [Halving] and [Decaying].
	Scale         func(n float64) float64
	ByStep        bool
	FixedMomentum bool    // leave the momentum alone
	BaseMomentum  float64 // at the highest rate; 0.8
	MaxMomentum   float64 // at the lowest rate; 0.9
}

// Halving is PyTorch's mode triangular2, a [CyclicOptions] Scale: every cycle has half the amplitude of the one before.
func Halving(cycle float64) float64 { return math.Pow(2, 1-cycle) }

// Decaying returns PyTorch's mode exp_range, a [CyclicOptions] Scale by step: the amplitude shrinks by gamma every step.
func Decaying(gamma float64) func(step float64) float64 {
	return func(step float64) float64 { return math.Pow(gamma, step) }
}

// NewCyclicLR takes the rate up and down between two bounds in straight lines, and the momentum (or beta1) the other way:
// Smith 2017, "Cyclical learning rates for training neural networks".
func NewCyclicLR(o *Optimizer, c CyclicOptions) (*Schedule, error) {
	const kind = "cyclic_lr"
	orDefault(&c.BaseMomentum, 0.8)
	orDefault(&c.MaxMomentum, 0.9)
	if c.StepsUp == 0 {
		c.StepsUp = 2000
	}
	if c.StepsDown == 0 {
		c.StepsDown = c.StepsUp
	}
	if c.StepsUp < 1 || c.StepsDown < 1 {
		return nil, core.Errorf(core.ValueError, kind, "steps must be positive, got %d up and %d down", c.StepsUp, c.StepsDown)
	}
	for _, n := range []int{len(c.BaseLR), len(c.MaxLR)} {
		if err := onePerGroup(kind, o, n); err != nil {
			return nil, err
		}
	}
	momentum, err := cycledMomentum(kind, o, !c.FixedMomentum)
	if err != nil {
		return nil, err
	}
	total := float64(c.StepsUp + c.StepsDown)
	up := float64(c.StepsUp) / total
	height := func(t float64) float64 {
		cycle := math.Floor(1 + t/total)
		x := 1 + t/total - cycle
		h := x / up
		if x > up {
			h = (x - 1) / (up - 1)
		}
		if c.Scale != nil {
			if c.ByStep {
				h *= c.Scale(t)
			} else {
				h *= c.Scale(cycle)
			}
		}
		return h
	}
	v := curve{sets: true, at: func(_ float64, g int, t float64) float64 {
		low, high := c.BaseLR[g%len(c.BaseLR)], c.MaxLR[g%len(c.MaxLR)]
		return low + (high-low)*height(t)
	}}
	if momentum {
		v.momentum = func(t float64) float64 { return c.MaxMomentum - (c.MaxMomentum-c.BaseMomentum)*height(t) }
	}
	return newSchedule(o, kind, v)
}
