package optim

import (
	"math"

	"github.com/plait-ml/plait/core"
)

// A Schedule changes the learning rates of an optimiser's groups as training goes on, and for some kinds their momentum.
// Making one sets the rates for the start; each Step, after the optimiser's, sets those for the next epoch, or the next
// step, whichever the caller counts in.
//
// A schedule starts from the rates that the groups had when the first schedule was made for the optimiser. Schedules that
// multiply the rate can share an optimiser: each changes the rate by the ratio of its own new and old value. The others
// (lambda, cosine with restarts, cyclic, one-cycle) set it.
type Schedule struct {
	opt      *Optimizer
	kind     string
	epoch    float64
	base     []float64 // rate of each group at the start
	set      []float64 // rate of each group that this schedule set last
	curve    curve
	children []*Schedule // of a sequential or chained schedule
}

// A curve is the form of a schedule.
type curve struct {
	// at returns the rate of group g at an epoch in closed form.
	at func(base float64, g int, epoch float64) float64
	// floor is what a shared rate is measured from.
	floor float64
	// sets says that the rate is set, whatever other schedules made of it.
	sets bool
	// factor, instead of at, multiplies the rate at each epoch from 1 on.
	factor func(g int, epoch float64) float64
	// momentum returns the momentum at an epoch; nil where it is not changed.
	momentum func(epoch float64) float64
	// last is the last epoch there is; 0 means no limit.
	last float64
	// step, restart and check replace the ordinary ones of schedules made of others.
	step    func(s *Schedule) error
	restart func(s *Schedule)
}

// newSchedule makes a schedule and sets the rates for its start.
func newSchedule(o *Optimizer, kind string, c curve) (*Schedule, error) {
	if o == nil {
		return nil, core.Errorf(core.TypeError, kind, "the optimiser is nil")
	}
	s := &Schedule{opt: o, kind: kind, curve: c}
	for _, g := range o.groups {
		if !g.scheduled {
			g.initialLR, g.scheduled = g.values()["lr"], true
		}
		s.base = append(s.base, g.initialLR)
	}
	s.set = make([]float64, len(s.base))
	s.begin()
	return s, nil
}

// begin sets the rates for epoch 0, on top of what schedules made before have set.
func (s *Schedule) begin() {
	s.epoch = 0
	for i, g := range s.opt.groups[:len(s.base)] {
		if s.curve.at == nil {
			s.set[i] = g.values()["lr"]
			continue
		}
		rate := s.curve.at(s.base[i], i, 0)
		if lr := g.values()["lr"]; !s.curve.sets && lr != s.base[i] && s.base[i] != 0 {
			rate *= lr / s.base[i]
		}
		s.put(i, rate)
	}
	s.putMomentum()
}

// restart sets the rates for epoch 0, whatever they are now.
func (s *Schedule) restart() {
	if s.curve.restart != nil {
		s.curve.restart(s)
		return
	}
	s.epoch = 0
	for i := range s.base {
		rate := s.base[i]
		if s.curve.at != nil {
			rate = s.curve.at(s.base[i], i, 0)
		}
		s.put(i, rate)
	}
	s.putMomentum()
}

func (s *Schedule) put(group int, rate float64) {
	s.opt.groups[group].put("lr", rate)
	s.set[group] = rate
}

func (s *Schedule) putMomentum() {
	if s.curve.momentum == nil {
		return
	}
	v := s.curve.momentum(s.epoch)
	for _, g := range s.opt.groups {
		g.put(momentumName(g.values()), v)
	}
}

// momentumName returns the name of the hyperparameter that plays the part of momentum; empty if there is none.
func momentumName(h Hyper) string {
	for _, name := range []string{"momentum", "beta1"} {
		if _, ok := h[name]; ok {
			return name
		}
	}
	return ""
}

// Step moves to the next epoch. It is an error for a schedule that has an end to go past it.
func (s *Schedule) Step() error {
	if s.curve.step != nil {
		return s.curve.step(s)
	}
	next := s.epoch + 1
	if s.curve.last > 0 && next > s.curve.last+1 {
		return core.Errorf(core.ValueError, s.kind, "the schedule ends after %v steps", s.curve.last+1)
	}
	for i, g := range s.opt.groups[:len(s.base)] {
		lr := g.values()["lr"]
		switch {
		case s.curve.factor != nil:
			s.put(i, lr*s.curve.factor(i, next))
		case s.curve.sets:
			s.put(i, s.curve.at(s.base[i], i, next))
		default:
			now, then, floor := s.curve.at(s.base[i], i, s.epoch), s.curve.at(s.base[i], i, next), s.curve.floor
			if lr != now && now != floor { // others have a part in the rate
				then = (lr-floor)*((then-floor)/(now-floor)) + floor
			}
			s.put(i, then)
		}
	}
	s.epoch = next
	s.putMomentum()
	return nil
}

// StepTo moves to an epoch, which may be a fraction, of a schedule that has a closed form.
func (s *Schedule) StepTo(epoch float64) error {
	if s.curve.at == nil {
		return core.Errorf(core.StateError, s.kind, "the schedule has no closed form to move to an epoch; use Step")
	}
	if !(epoch >= 0) || s.curve.last > 0 && epoch > s.curve.last+1 {
		return core.Errorf(core.ValueError, s.kind, "epoch out of range, got %v", epoch)
	}
	s.epoch = epoch
	for i := range s.base {
		s.put(i, s.curve.at(s.base[i], i, epoch))
	}
	s.putMomentum()
	return nil
}

// Epoch returns how many steps the schedule has made since its start.
func (s *Schedule) Epoch() float64 { return s.epoch }

// LastLR returns the learning rates of the groups as the schedule set them last.
func (s *Schedule) LastLR() []float64 { return append([]float64(nil), s.set...) }

// A ScheduleState is what a schedule must know to go on where it was.
type ScheduleState struct {
	Kind     string
	Epoch    float64
	Base     []float64
	Set      []float64
	Numbers  map[string]float64 `json:",omitempty"`
	Children []ScheduleState    `json:",omitempty"`
}

// State returns the schedule's state. Learning rates are in the optimiser's own; functions are not saved.
func (s *Schedule) State() ScheduleState {
	st := ScheduleState{Kind: s.kind, Epoch: s.epoch, Base: append([]float64(nil), s.base...), Set: append([]float64(nil), s.set...)}
	for _, c := range s.children {
		st.Children = append(st.Children, c.State())
	}
	return st
}

// Load puts a schedule of the same kind in the state st. The optimiser's rates are not touched: load its state too.
func (s *Schedule) Load(st ScheduleState) error {
	if err := s.Fits(st); err != nil {
		return err
	}
	s.load(st)
	return nil
}

// Fits returns the error that [Schedule.Load] would.
func (s *Schedule) Fits(st ScheduleState) error {
	if st.Kind != s.kind || len(st.Base) != len(s.base) || len(st.Set) != len(s.set) || len(st.Children) != len(s.children) {
		return core.Errorf(core.ValueError, s.kind, "the state is of another schedule, got %q for %d groups made of %d, want %q for %d made of %d",
			st.Kind, len(st.Base), len(st.Children), s.kind, len(s.base), len(s.children))
	}
	for i, c := range s.children {
		if err := c.Fits(st.Children[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Schedule) load(st ScheduleState) {
	s.epoch = st.Epoch
	copy(s.base, st.Base)
	copy(s.set, st.Set)
	for i, c := range s.children {
		c.load(st.Children[i])
	}
}

// positive returns an error unless v is above 0.
func positive(kind, what string, v float64) error {
	if !(v > 0) || math.IsInf(v, 0) {
		return core.Errorf(core.ValueError, kind, "%s must be positive, got %v", what, v)
	}
	return nil
}
