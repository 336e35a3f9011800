package optim

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
)

// twoGroups returns an optimiser with rates 1 and 0.5.
func twoGroups(t *testing.T) *Optimizer {
	o, err := New("sgd", Hyper{"momentum": 0.5, "lr": 1}, Params{Tensors: []*core.Tensor{leaf(core.Float32, start(1), 1)}},
		Params{Tensors: []*core.Tensor{leaf(core.Float32, start(1), 1)}, Hyper: Hyper{"lr": 0.5}})
	require.NoError(t, err)
	return o
}

func rates(o *Optimizer) (lr []float64) {
	for _, g := range o.Groups() {
		lr = append(lr, g.LR())
	}
	return lr
}

// closedForms are all schedules with the factor of the initial rate at an epoch, written down anew.
var closedForms = map[string]struct {
	make   func(o *Optimizer) (*Schedule, error)
	factor func(t float64) float64
}{
	"lambda": {func(o *Optimizer) (*Schedule, error) {
		return NewLambdaLR(o, func(t int) float64 { return 1 / float64(1+t) })
	}, func(t float64) float64 { return 1 / (1 + t) }},
	"step": {func(o *Optimizer) (*Schedule, error) { return NewStepLR(o, 3, 0.1) }, func(t float64) float64 { return []float64{1, 0.1, 0.01, 0.001, 1e-4, 1e-5, 1e-6, 1e-7}[int(t)/3] }},
	"multi_step": {func(o *Optimizer) (*Schedule, error) { return NewMultiStepLR(o, []int{8, 2, 8}, 0.5) }, func(t float64) float64 {
		switch {
		case t < 2:
			return 1
		case t < 8:
			return 0.5
		}
		return 0.125
	}},
	"constant": {func(o *Optimizer) (*Schedule, error) { return NewConstantLR(o, 0.25, 4) }, func(t float64) float64 {
		if t < 4 {
			return 0.25
		}
		return 1
	}},
	"linear": {func(o *Optimizer) (*Schedule, error) { return NewLinearLR(o, 0.2, 0.6, 8) }, func(t float64) float64 {
		if t >= 8 {
			return 0.6
		}
		return 0.2 + 0.05*t
	}},
	"exponential": {func(o *Optimizer) (*Schedule, error) { return NewExponentialLR(o, 0.9) }, func(t float64) float64 { return math.Exp(t * math.Log(0.9)) }},
	"polynomial": {func(o *Optimizer) (*Schedule, error) { return NewPolynomialLR(o, 10, 2) }, func(t float64) float64 {
		if t >= 10 {
			return 0
		}
		return (10 - t) * (10 - t) / 100
	}},
	"cosine":   {func(o *Optimizer) (*Schedule, error) { return NewCosineAnnealingLR(o, 6, 0) }, func(t float64) float64 { return math.Pow(math.Cos(math.Pi*t/12), 2) }},
	"restarts": {func(o *Optimizer) (*Schedule, error) { return NewCosineAnnealingWarmRestarts(o, 4, 1, 0) }, func(t float64) float64 { return math.Pow(math.Cos(math.Pi*math.Mod(t, 4)/8), 2) }},
	"restarts x2": {func(o *Optimizer) (*Schedule, error) { return NewCosineAnnealingWarmRestarts(o, 3, 2, 0) }, func(t float64) float64 {
		switch {
		case t < 3:
			return math.Pow(math.Cos(math.Pi*t/6), 2)
		case t < 9:
			return math.Pow(math.Cos(math.Pi*(t-3)/12), 2)
		}
		return math.Pow(math.Cos(math.Pi*(t-9)/24), 2)
	}},
	"multiplicative": {func(o *Optimizer) (*Schedule, error) {
		return NewMultiplicativeLR(o, func(t int) float64 { return 1 - 0.5/float64(t) })
	}, func(t float64) float64 {
		f := 1.0
		for k := 1.0; k <= t; k++ {
			f *= 1 - 0.5/k
		}
		return f
	}},
}

func TestClosedForms(t *testing.T) {
	for name, c := range closedForms {
		o := twoGroups(t)
		s, err := c.make(o)
		require.NoError(t, err)
		for epoch := range 20 {
			f := c.factor(float64(epoch))
			require.InDeltaSlice(t, []float64{f, f / 2}, rates(o), 1e-13, "%s at %d", name, epoch)
			require.Equal(t, rates(o), s.LastLR())
			require.Equal(t, float64(epoch), s.Epoch())
			require.NoError(t, s.Step())
		}
		if name != "multiplicative" {
			require.NoError(t, s.StepTo(2.0))
			require.InDelta(t, c.factor(2), o.Groups()[0].LR(), 1e-13, name)
		}
	}
	// The lowest rate.
	o := twoGroups(t)
	s, err := NewCosineAnnealingLR(o, 5, 0.1)
	require.NoError(t, err)
	for range 5 {
		require.NoError(t, s.Step())
	}
	require.InDeltaSlice(t, []float64{0.1, 0.1}, rates(o), 1e-15)
	for range 5 {
		require.NoError(t, s.Step())
	}
	require.InDeltaSlice(t, []float64{1, 0.5}, rates(o), 1e-15)
}

// Any schedule can be saved and go on with a new optimiser.
func TestSchedulesResume(t *testing.T) {
	for name, c := range closedForms {
		run := func(stop bool) (all [][]float64) {
			o := twoGroups(t)
			s, err := c.make(o)
			require.NoError(t, err)
			for n := range 12 {
				if stop && n == 5 {
					text, err := json.Marshal(s.State())
					require.NoError(t, err)
					d := o.StateDict()
					o = twoGroups(t)
					s, err = c.make(o)
					require.NoError(t, err)
					require.NoError(t, o.LoadStateDict(d))
					var st ScheduleState
					require.NoError(t, json.Unmarshal(text, &st))
					require.NoError(t, s.Load(st))
				}
				require.NoError(t, s.Step())
				all = append(all, rates(o))
			}
			return all
		}
		require.Equal(t, run(false), run(true), name)
	}
	s, err := NewStepLR(twoGroups(t), 1, 0.1)
	require.NoError(t, err)
	require.ErrorContains(t, s.Load(ScheduleState{Kind: "linear_lr"}), "step_lr: the state is of another schedule, got \"linear_lr\"")
}

// Two schedules on one optimiser multiply: the example of PyTorch's ChainedScheduler.
func TestChained(t *testing.T) {
	o := twoGroups(t)
	a, err := NewConstantLR(o, 0.1, 2)
	require.NoError(t, err)
	b, err := NewExponentialLR(o, 0.9)
	require.NoError(t, err)
	s, err := NewChainedScheduler(a, b)
	require.NoError(t, err)
	for epoch, want := range []float64{0.1, 0.09, 0.81, 0.729, 0.6561} {
		require.InDeltaSlice(t, []float64{want, want / 2}, rates(o), 1e-15, "epoch %d", epoch)
		require.Equal(t, rates(o), s.LastLR())
		require.NoError(t, s.Step())
	}
	// A rate that was changed by hand is scaled from there.
	require.NoError(t, o.Groups()[0].Set("lr", 7))
	require.NoError(t, s.Step())
	require.InDelta(t, 6.3, o.Groups()[0].LR(), 1e-14)
}

// The examples of PyTorch's SequentialLR, and a warm-up before a cosine.
func TestSequential(t *testing.T) {
	o := twoGroups(t)
	a, err := NewConstantLR(o, 0.1, 2)
	require.NoError(t, err)
	b, err := NewExponentialLR(o, 0.9)
	require.NoError(t, err)
	s, err := NewSequentialLR(o, []*Schedule{a, b}, []int{2})
	require.NoError(t, err)
	for epoch, want := range []float64{0.1, 0.1, 1, 0.9, 0.81} {
		require.InDeltaSlice(t, []float64{want, want / 2}, rates(o), 1e-15, "epoch %d", epoch)
		require.NoError(t, s.Step())
	}

	build := func() (*Optimizer, *Schedule) {
		o := twoGroups(t)
		warm, err := NewLinearLR(o, 0.1, 1, 5)
		require.NoError(t, err)
		cool, err := NewCosineAnnealingLR(o, 10, 0)
		require.NoError(t, err)
		s, err := NewSequentialLR(o, []*Schedule{warm, cool}, []int{5})
		require.NoError(t, err)
		return o, s
	}
	o, s = build()
	for epoch := range 15 {
		want := 0.1 + 0.18*float64(epoch)
		if epoch >= 5 {
			want = (1 + math.Cos(math.Pi*float64(epoch-5)/10)) / 2
		}
		require.InDeltaSlice(t, []float64{want, want / 2}, rates(o), 1e-15, "epoch %d", epoch)
		if epoch == 7 { // stop here and go on
			o2, s2 := build()
			require.NoError(t, o2.LoadStateDict(o.StateDict()))
			require.NoError(t, s2.Load(s.State()))
			o, s = o2, s2
		}
		require.NoError(t, s.Step())
	}
	_, err = NewSequentialLR(o, []*Schedule{a, b}, []int{2})
	require.EqualError(t, err, "sequential_lr: schedule 0 belongs to another optimiser")
	_, err = NewSequentialLR(o, []*Schedule{s}, []int{2})
	require.EqualError(t, err, "sequential_lr: want sorted milestones, one less than schedules, got [2] for 1 schedules")
}

func TestOneCycle(t *testing.T) {
	for _, three := range []bool{false, true} {
		for _, linear := range []bool{false, true} {
			o := twoGroups(t)
			s, err := NewOneCycleLR(o, OneCycleOptions{MaxLR: []float64{2, 3}, TotalSteps: 20, ThreePhase: three, Linear: linear})
			require.NoError(t, err)
			// Steps at which a phase ends, with the rates of the first group and the momentum there.
			ends, lr, momentum := []float64{0, 5, 19}, []float64{2. / 25, 2, 2. / 25 / 1e4}, []float64{0.95, 0.85, 0.95}
			if three {
				ends, lr, momentum = []float64{0, 5, 10, 19}, []float64{2. / 25, 2, 2. / 25, 2. / 25 / 1e4}, []float64{0.95, 0.85, 0.95, 0.95}
			}
			for step := range 20 {
				k := 1
				for float64(step) > ends[k] {
					k++
				}
				x := (float64(step) - ends[k-1]) / (ends[k] - ends[k-1])
				if !linear {
					x = (1 - math.Cos(math.Pi*x)) / 2
				}
				want := lr[k-1] + (lr[k]-lr[k-1])*x
				require.InDeltaSlice(t, []float64{want, want * 1.5}, rates(o), 1e-14, "step %d", step)
				m, _ := o.Groups()[1].Get("momentum")
				require.InDelta(t, momentum[k-1]+(momentum[k]-momentum[k-1])*x, m, 1e-14)
				if step < 19 {
					require.NoError(t, s.Step())
				}
			}
			before := rates(o)
			require.NoError(t, s.Step(), "that of a loop's last round")
			require.Equal(t, before, rates(o))
			require.EqualError(t, s.Step(), "one_cycle_lr: the schedule ends after 20 steps")
			require.Equal(t, before, rates(o))
		}
	}
	o, err := NewAdagrad([]*core.Tensor{leaf(core.Float32, start(1), 1)}, nil)
	require.NoError(t, err)
	_, err = NewOneCycleLR(o, OneCycleOptions{MaxLR: []float64{1}, TotalSteps: 10})
	require.EqualError(t, err, "one_cycle_lr: adagrad has no momentum to cycle; set FixedMomentum")
	adam, err := NewAdam([]*core.Tensor{leaf(core.Float32, start(1), 1)}, nil)
	require.NoError(t, err)
	_, err = NewOneCycleLR(adam, OneCycleOptions{MaxLR: []float64{1}, TotalSteps: 10})
	require.NoError(t, err)
	beta, _ := adam.Groups()[0].Get("beta1")
	require.Equal(t, 0.95, beta)
}

func TestCyclic(t *testing.T) {
	for name, scale := range map[string]struct {
		scale  func(float64) float64
		byStep bool
		want   func(step, cycle float64) float64
	}{
		"triangular":  {nil, false, func(_, _ float64) float64 { return 1 }},
		"triangular2": {Halving, false, func(_, cycle float64) float64 { return math.Pow(0.5, cycle-1) }},
		"exp_range":   {Decaying(0.97), true, func(step, _ float64) float64 { return math.Pow(0.97, step) }},
	} {
		o := twoGroups(t)
		s, err := NewCyclicLR(o, CyclicOptions{BaseLR: []float64{0.1}, MaxLR: []float64{1.1, 2.1}, StepsUp: 4, StepsDown: 6, Scale: scale.scale, ByStep: scale.byStep})
		require.NoError(t, err)
		for step := range 35 {
			in := step % 10
			h := float64(in) / 4
			if in > 4 {
				h = float64(10-in) / 6
			}
			h *= scale.want(float64(step), float64(1+step/10))
			require.InDeltaSlice(t, []float64{0.1 + h, 0.1 + 2*h}, rates(o), 1e-13, "%s step %d", name, step)
			m, _ := o.Groups()[0].Get("momentum")
			require.InDelta(t, 0.9-0.1*h, m, 1e-13)
			require.NoError(t, s.Step())
		}
	}
}

func TestPlateau(t *testing.T) {
	patience, threshold := 2, 0.1
	o := twoGroups(t)
	p, err := NewReduceLROnPlateau(o, PlateauOptions{Factor: 0.5, Patience: &patience, Threshold: &threshold, Cooldown: 1, MinLR: []float64{0.2, 0.4}})
	require.NoError(t, err)
	for i, c := range []struct {
		metric  float64
		reduced bool
		lr      float64
	}{
		{10, false, 1}, {9.5, false, 1}, {9.1, false, 1}, {8.9, false, 1}, // 9.5 and 9.1 are no improvement by a tenth, 8.9 is
		{8.9, false, 1}, {8.9, false, 1}, {8.9, true, 0.5},
		{8.9, false, 0.5}, // cooling down
		{8.9, false, 0.5}, {8.9, false, 0.5}, {math.NaN(), true, 0.25},
		{1, false, 0.25}, {1, false, 0.25},
	} {
		require.Equal(t, c.reduced, p.Step(c.metric), "step %d", i)
		require.InDelta(t, c.lr, o.Groups()[0].LR(), 1e-15, "step %d", i)
		require.InDelta(t, max(c.lr/2, 0.4), o.Groups()[1].LR(), 1e-15)
		text, err := json.Marshal(p.State())
		require.NoError(t, err)
		var st ScheduleState
		require.NoError(t, json.Unmarshal(text, &st))
		old := *p
		p, err = NewReduceLROnPlateau(o, PlateauOptions{Factor: 0.5, Patience: &patience, Threshold: &threshold, Cooldown: 1, MinLR: []float64{0.2, 0.4}})
		require.NoError(t, err)
		require.NoError(t, p.Load(st))
		require.Equal(t, old, *p)
	}
	zero := 0
	for i, c := range []struct {
		o       PlateauOptions
		metrics []float64
		want    []bool
	}{
		{PlateauOptions{Max: true}, []float64{1, 1.00005, 1.001}, []bool{false, true, false}},
		{PlateauOptions{Max: true, Absolute: true, Threshold: &threshold}, []float64{1, 1.05, 1.2, 1.2}, []bool{false, true, false, true}},
		{PlateauOptions{Absolute: true, Threshold: &threshold}, []float64{1, 0.95, 0.8}, []bool{false, true, false}},
	} {
		c.o.Patience = &zero
		p, err := NewReduceLROnPlateau(twoGroups(t), c.o)
		require.NoError(t, err)
		for k, m := range c.metrics {
			require.Equal(t, c.want[k], p.Step(m), "case %d metric %d", i, k)
		}
	}
	_, err = NewReduceLROnPlateau(o, PlateauOptions{Factor: 1})
	require.EqualError(t, err, "reduce_lr_on_plateau: the factor must be in (0, 1), got 1")
}

func TestScheduleErrors(t *testing.T) {
	o := twoGroups(t)
	for want, make := range map[string]func() (*Schedule, error){
		"step_lr: the step size must be positive, got 0":                       func() (*Schedule, error) { return NewStepLR(o, 0, 0.1) },
		"linear_lr: want a start in (0, 1] and an end in [0, 1], got 0 and 1":  func() (*Schedule, error) { return NewLinearLR(o, 0, 1, 5) },
		"constant_lr: the factor must be in [0, 1], got 2":                     func() (*Schedule, error) { return NewConstantLR(o, 2, 5) },
		"cosine_annealing_lr: the period must be positive, got -1":             func() (*Schedule, error) { return NewCosineAnnealingLR(o, -1, 0) },
		"cosine_annealing_warm_restarts: the growth must be at least 1, got 0": func() (*Schedule, error) { return NewCosineAnnealingWarmRestarts(o, 3, 0, 0) },
		"lambda_lr: want one value or one for each of 2 groups, got 0":         func() (*Schedule, error) { return NewLambdaLR(o) },
		"one_cycle_lr: want one value or one for each of 2 groups, got 3": func() (*Schedule, error) {
			return NewOneCycleLR(o, OneCycleOptions{MaxLR: []float64{1, 2, 3}, TotalSteps: 5})
		},
		"one_cycle_lr: the number of steps must be positive, got 0":    func() (*Schedule, error) { return NewOneCycleLR(o, OneCycleOptions{MaxLR: []float64{1}}) },
		"cyclic_lr: want one value or one for each of 2 groups, got 0": func() (*Schedule, error) { return NewCyclicLR(o, CyclicOptions{}) },
		"chained_scheduler: got no schedules":                          func() (*Schedule, error) { return NewChainedScheduler() },
	} {
		_, err := make()
		require.EqualError(t, err, want)
	}
	require.Equal(t, []float64{1, 0.5}, rates(o))
}
