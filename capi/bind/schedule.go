package bind

import (
	"encoding/json"
	"math"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/optim"
)

// scheduleOptions are the options of all kinds of schedules, by PyTorch's names.
type scheduleOptions struct {
	StepSize   int       `json:"step_size"`
	Gamma      float64   `json:"gamma"`
	Milestones []int     `json:"milestones"`
	Factor     float64   `json:"factor"`
	Start      float64   `json:"start_factor"`
	End        float64   `json:"end_factor"`
	Total      int       `json:"total_iters"`
	Power      float64   `json:"power"`
	Period     int       `json:"T_max"`
	First      int       `json:"T_0"`
	Growth     int       `json:"T_mult"`
	EtaMin     float64   `json:"eta_min"`
	MaxLR      []float64 `json:"max_lr"`
	BaseLR     []float64 `json:"base_lr"`
	TotalSteps int       `json:"total_steps"`
	PctStart   float64   `json:"pct_start"`
	Linear     bool      `json:"linear"`
	Momentum   bool      `json:"cycle_momentum"`
	BaseMom    float64   `json:"base_momentum"`
	MaxMom     float64   `json:"max_momentum"`
	Div        float64   `json:"div_factor"`
	FinalDiv   float64   `json:"final_div_factor"`
	ThreePhase bool      `json:"three_phase"`
	Up         int       `json:"step_size_up"`
	Down       int       `json:"step_size_down"`
	Mode       string    `json:"mode"`
	Scale      *float64  `json:"scale"` // what a function of the caller's says
}

func newSchedule(kind string, o *optim.Optimizer, v scheduleOptions) (*optim.Schedule, error) {
	switch kind {
	case "step":
		return optim.NewStepLR(o, v.StepSize, v.Gamma)
	case "multi_step":
		return optim.NewMultiStepLR(o, v.Milestones, v.Gamma)
	case "constant":
		return optim.NewConstantLR(o, v.Factor, v.Total)
	case "linear":
		return optim.NewLinearLR(o, v.Start, v.End, v.Total)
	case "exponential":
		return optim.NewExponentialLR(o, v.Gamma)
	case "polynomial":
		return optim.NewPolynomialLR(o, v.Total, v.Power)
	case "cosine":
		return optim.NewCosineAnnealingLR(o, v.Period, v.EtaMin)
	case "restarts":
		return optim.NewCosineAnnealingWarmRestarts(o, v.First, v.Growth, v.EtaMin)
	case "one_cycle":
		return optim.NewOneCycleLR(o, optim.OneCycleOptions{MaxLR: v.MaxLR, TotalSteps: v.TotalSteps, PctStart: v.PctStart, Linear: v.Linear,
			FixedMomentum: !v.Momentum, BaseMomentum: v.BaseMom, MaxMomentum: v.MaxMom, DivFactor: v.Div, FinalDivFactor: v.FinalDiv,
			ThreePhase: v.ThreePhase})
	case "cyclic":
		c := optim.CyclicOptions{BaseLR: v.BaseLR, MaxLR: v.MaxLR, StepsUp: v.Up, StepsDown: v.Down, FixedMomentum: !v.Momentum,
			BaseMomentum: v.BaseMom, MaxMomentum: v.MaxMom}
		switch {
		case v.Scale != nil:
			c.Scale = func(float64) float64 { return *v.Scale }
		case v.Mode == "triangular2":
			c.Scale = optim.Halving
		case v.Mode == "exp_range":
			c.Scale, c.ByStep = optim.Decaying(v.Gamma), true
		}
		return optim.NewCyclicLR(o, c)
	}
	return nil, core.Errorf(core.ValueError, "lr_scheduler", "unknown kind of schedule %q", kind)
}

// ScheduleRates replaces the n learning rates, and momenta unless that is 0, by those at an epoch of a schedule of the
// given kind, whose options are JSON: the first ones from where the groups are (how 0), those after one step from the
// epoch before (1), or in closed form (2). base are the rates that the schedule starts from.
func ScheduleRates(kind string, options string, how int64, epoch float64, base Floats, rates FloatsOut, momenta FloatsOut, n int64) (status Status) {
	defer protect("lr_scheduler", &status)
	var v scheduleOptions
	if err := json.Unmarshal([]byte(options), &v); err != nil {
		return failf(core.ValueError, "lr_scheduler", "options of a schedule: %v", err)
	}
	from := append([]float64{}, handle.Slice[float64](rates, n)...)
	var momentum []float64
	if momenta != 0 {
		momentum = append([]float64{}, handle.Slice[float64](momenta, n)...)
	}
	o := optim.Rates(from, handle.Slice[float64](base, n), momentum)
	s, err := newSchedule(kind, o, v)
	if err != nil {
		return failure(err)
	}
	switch how {
	case 1:
		s.Continue(epoch-1, from)
		err = s.Step()
	case 2:
		err = s.StepTo(epoch)
	}
	if err != nil {
		return failure(err)
	}
	for i, g := range o.Groups() {
		handle.Slice[float64](rates, n)[i] = g.LR()
		if momenta != 0 {
			handle.Slice[float64](momenta, n)[i], _ = g.Get("momentum")
		}
	}
	return 0
}

// ScheduleAnneal replaces the n learning rates of the epoch before by those of an epoch on the way to targets, which lasts
// epochs, along half a wave of a cosine or a line.
func ScheduleAnneal(rates FloatsOut, targets Floats, n int64, epoch int64, epochs int64, linear bool) (status Status) {
	defer protect("lr_scheduler", &status)
	to := handle.Slice[float64](targets, n)
	for i, r := range handle.Slice[float64](rates, n) {
		handle.Slice[float64](rates, n)[i] = optim.AnnealSWA(r, to[i], int(epoch), int(epochs), linear)
	}
	return 0
}

// SchedulePlateau takes the metric of an epoch of a schedule that reduces rates when it has stopped to improve. It
// replaces the n learning rates, and the state: the best value, the steps since it, and those until steps count again.
// max wants the metric to grow, and absolute takes the threshold as a difference. numbers are factor, patience, threshold,
// cooldown and eps; least are the lowest rates.
func SchedulePlateau(metric float64, max bool, absolute bool, numbers Floats, least Floats, rates FloatsOut, n int64, state FloatsOut) (status Status) {
	defer protect("lr_scheduler", &status)
	now, remembered := handle.Slice[float64](rates, n), handle.Slice[float64](state, 3)
	o := optim.Rates(append([]float64{}, now...), now, nil)
	given := handle.Slice[float64](numbers, 5)
	factor, allowed, threshold, eps := given[0], int(given[1]), given[2], given[4]
	const tiny = math.SmallestNonzeroFloat64
	if factor == 0 { // the options' 0 stands for a default
		factor = tiny
	}
	if eps == 0 {
		eps = tiny
	}
	p, err := optim.NewReduceLROnPlateau(o, optim.PlateauOptions{Max: max, Factor: factor, Patience: &allowed, Threshold: &threshold,
		Absolute: absolute, Cooldown: int(given[3]), MinLR: handle.Slice[float64](least, n), Eps: eps})
	if err != nil {
		return failure(err)
	}
	p.Continue(optim.PlateauState{Best: remembered[0], Bad: int(remembered[1]), Cooling: int(remembered[2])})
	p.Step(metric)
	for i, g := range o.Groups() {
		now[i] = g.LR()
	}
	s := p.Now()
	remembered[0], remembered[1], remembered[2] = s.Best, float64(s.Bad), float64(s.Cooling)
	return 0
}
