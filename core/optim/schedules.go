package optim

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
)

// NewLambdaLR multiplies each group's initial rate by what a function makes of the epoch: one for all groups or one for
// each.
func NewLambdaLR(o *Optimizer, factors ...func(epoch int) float64) (*Schedule, error) {
	if err := factorPerGroup("lambda_lr", o, factors); err != nil {
		return nil, err
	}
	return newSchedule(o, "lambda_lr", curve{sets: true, at: func(base float64, g int, t float64) float64 {
		return base * factors[g%len(factors)](int(t))
	}})
}

// NewMultiplicativeLR multiplies each group's rate at every step by what a function makes of the epoch, from epoch 1 on:
// one function for all groups or one for each.
func NewMultiplicativeLR(o *Optimizer, factors ...func(epoch int) float64) (*Schedule, error) {
	if err := factorPerGroup("multiplicative_lr", o, factors); err != nil {
		return nil, err
	}
	return newSchedule(o, "multiplicative_lr", curve{factor: func(g int, t float64) float64 {
		return factors[g%len(factors)](int(t))
	}})
}

// factorPerGroup returns an error unless there is one function or one for each group, and none is nil.
func factorPerGroup(kind string, o *Optimizer, factors []func(epoch int) float64) error {
	for i, f := range factors {
		if f == nil {
			return core.Errorf(core.TypeError, kind, "function %d is nil", i)
		}
	}
	return onePerGroup(kind, o, len(factors))
}

// onePerGroup returns an error unless n is 1 or the number of groups.
func onePerGroup(kind string, o *Optimizer, n int) error {
	if o == nil {
		return core.Errorf(core.TypeError, kind, "the optimiser is nil")
	}
	if n != 1 && n != len(o.groups) {
		return core.Errorf(core.ValueError, kind, "want one value or one for each of %d groups, got %d", len(o.groups), n)
	}
	return nil
}

// NewStepLR multiplies the rate by gamma every size epochs.
func NewStepLR(o *Optimizer, size int, gamma float64) (*Schedule, error) {
	if err := positive("step_lr", "the step size", float64(size)); err != nil {
		return nil, err
	}
	return newSchedule(o, "step_lr", curve{at: func(base float64, _ int, t float64) float64 {
		return base * math.Pow(gamma, math.Floor(t/float64(size)))
	}})
}

// NewMultiStepLR multiplies the rate by gamma at each of the milestones; one that is named twice counts twice.
func NewMultiStepLR(o *Optimizer, milestones []int, gamma float64) (*Schedule, error) {
	sorted := slices.Sorted(slices.Values(milestones))
	return newSchedule(o, "multi_step_lr", curve{at: func(base float64, _ int, t float64) float64 {
		n := 0
		for n < len(sorted) && float64(sorted[n]) <= t {
			n++
		}
		return base * math.Pow(gamma, float64(n))
	}})
}

// NewConstantLR multiplies the rate by factor for the first total epochs. PyTorch's defaults are 1/3 and 5.
func NewConstantLR(o *Optimizer, factor float64, total int) (*Schedule, error) {
	if !(factor >= 0 && factor <= 1) {
		return nil, core.Errorf(core.ValueError, "constant_lr", "the factor must be in [0, 1], got %v", factor)
	}
	return newSchedule(o, "constant_lr", curve{at: func(base float64, _ int, t float64) float64 {
		if t >= float64(total) {
			return base
		}
		return base * factor
	}})
}

// NewLinearLR takes the rate linearly from start to end times the initial one over total epochs. PyTorch's defaults are
// 1/3, 1 and 5.
func NewLinearLR(o *Optimizer, start, end float64, total int) (*Schedule, error) {
	if !(start > 0 && start <= 1) || !(end >= 0 && end <= 1) {
		return nil, core.Errorf(core.ValueError, "linear_lr", "want a start in (0, 1] and an end in [0, 1], got %v and %v", start, end)
	}
	if err := positive("linear_lr", "the number of epochs", float64(total)); err != nil {
		return nil, err
	}
	return newSchedule(o, "linear_lr", curve{at: func(base float64, _ int, t float64) float64 {
		return base * (start + (end-start)*min(t, float64(total))/float64(total))
	}})
}

// NewExponentialLR multiplies the rate by gamma every epoch.
func NewExponentialLR(o *Optimizer, gamma float64) (*Schedule, error) {
	return newSchedule(o, "exponential_lr", curve{at: func(base float64, _ int, t float64) float64 {
		return base * math.Pow(gamma, t)
	}})
}

// NewPolynomialLR takes the rate to 0 over total epochs as a power of what is left of them. PyTorch's defaults are 5 and 1.
func NewPolynomialLR(o *Optimizer, total int, power float64) (*Schedule, error) {
	if err := positive("polynomial_lr", "the number of epochs", float64(total)); err != nil {
		return nil, err
	}
	return newSchedule(o, "polynomial_lr", curve{at: func(base float64, _ int, t float64) float64 {
		return base * math.Pow(1-min(t, float64(total))/float64(total), power)
	}})
}

// NewCosineAnnealingLR takes the rate down to etaMin and up again along half waves of a cosine, each of period epochs.
// Loshchilov and Hutter 2017, "SGDR: stochastic gradient descent with warm restarts", without the restarts.
func NewCosineAnnealingLR(o *Optimizer, period int, etaMin float64) (*Schedule, error) {
	if err := positive("cosine_annealing_lr", "the period", float64(period)); err != nil {
		return nil, err
	}
	return newSchedule(o, "cosine_annealing_lr", curve{floor: etaMin, at: func(base float64, _ int, t float64) float64 {
		return cosine(base, etaMin, t/float64(period))
	}})
}

// cosine goes from start to end as x goes from 0 to 1.
func cosine(start, end, x float64) float64 { return end + (start-end)*(1+math.Cos(math.Pi*x))/2 }

// NewCosineAnnealingWarmRestarts takes the rate down to etaMin along a cosine and starts anew: first after period epochs,
// then each time after growth times as many. Loshchilov and Hutter 2017, as above.
func NewCosineAnnealingWarmRestarts(o *Optimizer, period, growth int, etaMin float64) (*Schedule, error) {
	const kind = "cosine_annealing_warm_restarts"
	if err := positive(kind, "the period", float64(period)); err != nil {
		return nil, err
	}
	if growth < 1 {
		return nil, core.Errorf(core.ValueError, kind, "the growth must be at least 1, got %d", growth)
	}
	return newSchedule(o, kind, curve{sets: true, at: func(base float64, _ int, t float64) float64 {
		length := float64(period)
		if growth == 1 {
			t = math.Mod(t, length)
		}
		for ; t >= length; length *= float64(growth) {
			t -= length
		}
		return cosine(base, etaMin, t/length)
	}})
}

// NewSequentialLR runs one schedule after the other: number i+1 starts at epoch milestones[i]. The schedules must have
// been made for o.
func NewSequentialLR(o *Optimizer, schedules []*Schedule, milestones []int) (*Schedule, error) {
	const kind = "sequential_lr"
	if len(schedules) == 0 || len(milestones) != len(schedules)-1 || !slices.IsSorted(milestones) {
		return nil, core.Errorf(core.ValueError, kind, "want sorted milestones, one less than schedules, got %v for %d schedules", milestones, len(schedules))
	}
	if err := sameOptimizer(kind, o, schedules); err != nil {
		return nil, err
	}
	current := func(t float64) int {
		n := 0
		for n < len(milestones) && float64(milestones[n]) <= t {
			n++
		}
		return n
	}
	restart := func(s *Schedule) {
		s.epoch = 0
		for _, c := range s.children[1:] {
			c.epoch = 0
		}
		first := s.children[current(0)]
		first.restart()
		copy(s.set, first.set)
	}
	s := &Schedule{opt: o, kind: kind, children: schedules, base: slices.Clone(schedules[0].base), curve: curve{
		restart: restart,
		step: func(s *Schedule) error {
			n := current(s.epoch + 1)
			active := s.children[n]
			if n > 0 && float64(milestones[n-1]) == s.epoch+1 {
				active.restart()
			} else if err := active.Step(); err != nil {
				return err
			}
			s.epoch++
			copy(s.set, active.set)
			return nil
		},
	}}
	s.set = make([]float64, len(s.base))
	restart(s)
	return s, nil
}

// NewChainedScheduler steps several schedules together, each multiplying the rate.
func NewChainedScheduler(schedules ...*Schedule) (*Schedule, error) {
	const kind = "chained_scheduler"
	if len(schedules) == 0 {
		return nil, core.Errorf(core.ValueError, kind, "got no schedules")
	}
	if schedules[0] == nil {
		return nil, core.Errorf(core.TypeError, kind, "schedule 0 is nil")
	}
	o := schedules[0].opt
	if err := sameOptimizer(kind, o, schedules); err != nil {
		return nil, err
	}
	note := func(s *Schedule) {
		for i := range s.set {
			s.set[i] = o.groups[i].values()["lr"]
		}
	}
	s := &Schedule{opt: o, kind: kind, children: schedules, base: slices.Clone(schedules[0].base), curve: curve{
		restart: func(s *Schedule) {
			s.epoch = 0
			for i, c := range s.children {
				if i == 0 {
					c.restart()
				} else {
					c.begin()
				}
			}
			note(s)
		},
		step: func(s *Schedule) error {
			for _, c := range s.children {
				if err := c.Step(); err != nil {
					return err
				}
			}
			s.epoch++
			note(s)
			return nil
		},
	}}
	s.set = make([]float64, len(s.base))
	note(s)
	return s, nil
}

func sameOptimizer(kind string, o *Optimizer, schedules []*Schedule) error {
	for i, s := range schedules {
		if s == nil || s.opt != o {
			return core.Errorf(core.ValueError, kind, "schedule %d belongs to another optimiser", i)
		}
	}
	return nil
}
