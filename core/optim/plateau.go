package optim

import (
	"math"

	"github.com/plait-ml/plait/core"
)

// PlateauOptions describe a [Plateau]. Numbers left at 0 have PyTorch's defaults, but for those that say otherwise.
type PlateauOptions struct {
	Max      bool    // the metric is to grow, not to shrink
	Factor   float64 // of the rate at each reduction; 0.1
	Patience *int    // steps without improvement that are allowed; nil means 10
	// Threshold is by what part of the best value (or, if Absolute, by how much) a value must be better to count; nil
	// means 1e-4.
	Threshold *float64
	Absolute  bool
	Cooldown  int       // steps after a reduction in which none is counted
	MinLR     []float64 // the lowest rate: none, one for all groups or one for each
	Eps       float64   // reductions by no more than this are not made; 1e-8
}

// A Plateau reduces the learning rate when a metric has stopped to improve.
type Plateau struct {
	opt       *Optimizer
	o         PlateauOptions
	patience  int
	threshold float64
	best      float64
	bad       int // steps since the last improvement
	cooling   int
	epoch     int
}

// NewReduceLROnPlateau returns a plateau schedule for an optimiser.
func NewReduceLROnPlateau(opt *Optimizer, o PlateauOptions) (*Plateau, error) {
	const kind = "reduce_lr_on_plateau"
	if opt == nil {
		return nil, core.Errorf(core.TypeError, kind, "the optimiser is nil")
	}
	orDefault(&o.Factor, 0.1)
	orDefault(&o.Eps, 1e-8)
	if !(o.Factor > 0 && o.Factor < 1) {
		return nil, core.Errorf(core.ValueError, kind, "the factor must be in (0, 1), got %v", o.Factor)
	}
	if len(o.MinLR) > 0 {
		if err := onePerGroup(kind, opt, len(o.MinLR)); err != nil {
			return nil, err
		}
	}
	p := &Plateau{opt: opt, o: o, patience: 10, threshold: 1e-4}
	if o.Patience != nil {
		p.patience = *o.Patience
	}
	if o.Threshold != nil {
		p.threshold = *o.Threshold
	}
	p.best = math.Inf(1)
	if o.Max {
		p.best = math.Inf(-1)
	}
	return p, nil
}

func (p *Plateau) better(v float64) bool {
	switch {
	case p.o.Max && p.o.Absolute:
		return v > p.best+p.threshold
	case p.o.Max:
		return v > p.best*(1+p.threshold)
	case p.o.Absolute:
		return v < p.best-p.threshold
	}
	return v < p.best*(1-p.threshold)
}

// Step takes the metric of an epoch and reports whether the rate was reduced.
func (p *Plateau) Step(metric float64) bool {
	p.epoch++
	if p.better(metric) {
		p.best, p.bad = metric, 0
	} else {
		p.bad++
	}
	if p.cooling > 0 {
		p.cooling--
		p.bad = 0
	}
	if p.bad <= p.patience {
		return false
	}
	p.cooling, p.bad = p.o.Cooldown, 0
	reduced := false
	for i, g := range p.opt.groups {
		least := 0.0
		if n := len(p.o.MinLR); n > 0 {
			least = p.o.MinLR[i%n]
		}
		old := g.values()["lr"]
		if next := max(old*p.o.Factor, least); old-next > p.o.Eps {
			g.put("lr", next)
			reduced = true
		}
	}
	return reduced
}

// A PlateauState is what a plateau remembers of the metrics so far.
type PlateauState struct {
	Best         float64
	Bad, Cooling int // steps since the last improvement, and until steps count again
}

// Continue puts the plateau where another has been.
func (p *Plateau) Continue(s PlateauState) { p.best, p.bad, p.cooling = s.Best, s.Bad, s.Cooling }

// Now returns what the plateau remembers.
func (p *Plateau) Now() PlateauState { return PlateauState{p.best, p.bad, p.cooling} }

// State returns the schedule's state.
func (p *Plateau) State() ScheduleState {
	return ScheduleState{Kind: "reduce_lr_on_plateau", Epoch: float64(p.epoch), Numbers: map[string]float64{
		"num_bad_epochs": float64(p.bad), "cooldown_counter": float64(p.cooling), "best": finite(p.best)}}
}

// finite returns v, or the largest number of its sign for an infinity, which JSON cannot hold.
func finite(v float64) float64 { return min(max(v, -math.MaxFloat64), math.MaxFloat64) }

// Load puts the schedule in the state st.
func (p *Plateau) Load(st ScheduleState) error {
	if st.Kind != "reduce_lr_on_plateau" {
		return core.Errorf(core.ValueError, "reduce_lr_on_plateau", "the state is of another schedule, got %q", st.Kind)
	}
	p.epoch, p.bad, p.cooling = int(st.Epoch), int(st.Numbers["num_bad_epochs"]), int(st.Numbers["cooldown_counter"])
	if p.best = st.Numbers["best"]; math.Abs(p.best) == math.MaxFloat64 {
		p.best = math.Copysign(math.Inf(1), p.best)
	}
	return nil
}
