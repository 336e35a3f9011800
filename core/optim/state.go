package optim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	processes "github.com/plait-ml/plait/core/sharing"
)

// A StateDict is all that an optimiser must know to go on where it was: hyperparameters by group, and what it keeps for
// each parameter, numbered through the groups in order.
type StateDict struct {
	Algorithm string
	Groups    []GroupState
	Params    map[int]ParamState // parameters that were stepped at least once
}

// A GroupState is a group's hyperparameters and the numbers of its parameters.
type GroupState struct {
	Hyper  Hyper
	Params []int
	// InitialLR is what schedules started from; nil without one.
	InitialLR *float64 `json:",omitempty"`
}

// A ParamState is what an optimiser keeps for one parameter.
type ParamState struct {
	Step    float64
	Numbers map[string]float64      `json:",omitempty"`
	Tensors map[string]*core.Tensor `json:"-"`
}

// StateDict returns the optimiser's state. The tensors are the optimiser's own and go on changing with it. Those of L-BFGS for distributed
// parameters are gathered: every rank of the mesh calls it.
func (o *Optimizer) StateDict() *StateDict {
	o.lock()
	defer o.mu.Unlock()
	o.settle()
	d := &StateDict{Algorithm: o.algorithm.name, Params: map[int]ParamState{}}
	n := 0
	for _, g := range o.groups {
		gs := GroupState{Hyper: g.Hyper()}
		if g.scheduled {
			lr := g.initialLR
			gs.InitialLR = &lr
		}
		for _, s := range g.slots {
			gs.Params = append(gs.Params, n)
			if ps, ok := o.stateOf(s); ok {
				d.Params[n] = ps
			}
			n++
		}
		d.Groups = append(d.Groups, gs)
	}
	if o.lbfgs != nil {
		d.Params[0] = o.lbfgs.state(o.wholeVectors())
	}
	return d
}

// stateOf returns what is kept for a parameter, and false before its first step.
func (o *Optimizer) stateOf(s *slot) (ParamState, bool) {
	if s.count == 0 && len(s.states) == 0 {
		return ParamState{}, false
	}
	ps := ParamState{Step: s.count, Tensors: maps.Clone(s.states)}
	if name := o.algorithm.carries; name != "" {
		ps.Numbers = map[string]float64{name: s.carried}
	}
	return ps, true
}

// State returns what the optimiser keeps for parameter n, counted through the groups, and false if that is nothing. The
// tensors are the optimiser's own and go on changing with it.
func (o *Optimizer) State(n int) (ParamState, bool) {
	o.lock()
	defer o.mu.Unlock()
	if o.algorithm.closure {
		if n != 0 || o.lbfgs == nil {
			return ParamState{}, false
		}
		return o.lbfgs.state(o.wholeVectors()), true
	}
	o.settle()
	for _, g := range o.groups {
		if n >= 0 && n < len(g.slots) {
			return o.stateOf(g.slots[n])
		}
		n -= len(g.slots)
	}
	return ParamState{}, false
}

// SetStep says how many steps parameter n, counted through the groups, has had, as where several optimisers share its states.
func (o *Optimizer) SetStep(n int, step float64) error {
	o.lock()
	defer o.mu.Unlock()
	o.settle()
	at := n
	for _, g := range o.groups {
		if at >= 0 && at < len(g.slots) {
			g.slots[at].count = step
			return nil
		}
		at -= len(g.slots)
	}
	return core.Errorf(core.IndexError, o.algorithm.name, "there is no parameter of that number: %d", n)
}

// LoadStateDict puts the optimiser in the state d, copying its tensors, but for those in memory that processes share: such a one becomes
// the optimiser's. Groups must have as many parameters as those of
// d, states the parameters' shapes; on an error nothing has changed. The state of a distributed parameter is distributed, and moved if it
// lies otherwise than the parameter, or this rank's part.
func (o *Optimizer) LoadStateDict(d *StateDict) error {
	o.lock()
	defer o.mu.Unlock()
	name := o.algorithm.name
	if d == nil {
		return core.Errorf(core.TypeError, name, "the state is nil")
	}
	if d.Algorithm != name {
		return core.Errorf(core.ValueError, name, "the state is of another algorithm, got %q", d.Algorithm)
	}
	if len(d.Groups) != len(o.groups) {
		return core.Errorf(core.ValueError, name, "the state has another number of groups, got %d, want %d", len(d.Groups), len(o.groups))
	}
	hypers := make([]Hyper, len(o.groups))
	for i, g := range o.groups {
		if got, want := len(d.Groups[i].Params), len(g.slots); got != want {
			return core.Errorf(core.ValueError, name, "group %d has another number of parameters, got %d, want %d", i, got, want)
		}
		h, err := merge(name, g.values(), d.Groups[i].Hyper)
		if err == nil {
			err = o.valid(h)
		}
		if err != nil {
			return err
		}
		hypers[i] = h
	}
	if o.algorithm.closure {
		return o.loadLBFGS(d, hypers[0])
	}
	fresh := map[*slot]*slot{}
	var loaded []*core.Tensor
	fail := func(err error) error {
		for _, t := range loaded {
			t.Release()
		}
		return err
	}
	for i, g := range o.groups {
		for k, s := range g.slots {
			n := d.Groups[i].Params[k]
			ps, ok := d.Params[n]
			f := &slot{whole: s.whole, param: s.param, parts: s.parts, name: s.name, carried: 1, states: map[string]*core.Tensor{}, history: s.history}
			fresh[s] = f
			if !ok {
				continue
			}
			f.count = ps.Step
			if v, ok := ps.Numbers[o.algorithm.carries]; ok {
				f.carried = v
			}
			for _, state := range slices.Sorted(maps.Keys(ps.Tensors)) { // in one order on all ranks, which move them together
				c, err := copyState(o.algorithm, s, state, ps.Tensors[state])
				if err != nil {
					return fail(err)
				}
				loaded = append(loaded, c)
				f.states[state] = c
			}
		}
	}
	o.launches = nil
	for i, g := range o.groups {
		g.hyper.Store(&hypers[i])
		if lr := d.Groups[i].InitialLR; lr != nil {
			g.initialLR, g.scheduled = *lr, true
		}
		for k, s := range g.slots {
			s.reset()
			g.slots[k] = fresh[s]
		}
	}
	return nil
}

// copyState returns a copy of t as a state of s: of its shape, placed as the parameter, on its device, in the dtype of states. Of shared
// memory it is t itself, where t is like that.
func copyState(a *algorithm, s *slot, state string, t *core.Tensor) (c *core.Tensor, err error) {
	if err := t.Present(a.name); err != nil {
		return nil, core.Errorf(core.ValueError, a.name, "state %q of parameter %s: %w", state, s.name, err)
	}
	d := stateDType(s.param)
	shape, _ := a.stateShape(state, s.whole.Shape())
	if processes.Of(t) != nil && s.parts == nil && t.DType() == d && t.Contiguous() && slices.Equal(t.Shape(), shape) {
		core.NoGrad(func() { c = t.Alias(false).Keep() })
		return c, c.Err()
	}
	c = s.like(shape, func(shape []int) *core.Tensor { return emptyState(shape, d, s.param.Device()) }).Keep()
	if err = c.Err(); err == nil {
		core.NoGrad(func() { core.Tidy(func() { err = s.fill(a, state, c, t) }) })
	}
	if err != nil {
		c.Release()
		return nil, err
	}
	return c, nil
}

// fill copies t to c, a state of the parameter: t is like it, or lies otherwise on the same mesh, or is this rank's part.
func (s *slot) fill(a *algorithm, state string, c, t *core.Tensor) error {
	wrong := func(got, want any) error {
		return core.Errorf(core.ShapeError, a.name, "state %q of parameter %s has another shape, got %v, want %v", state, s.name, got, want)
	}
	to, from := part(c), t
	switch p := c.Parts(); {
	case p == nil && t.Parts() != nil:
		return core.Errorf(core.TypeError, a.name, "state %q of parameter %s, which is not distributed: got %v, want an ordinary tensor of shape %v", state, s.name, t, c.Shape())
	case p == nil && !slices.Equal(t.Shape(), c.Shape()):
		return wrong(t.Shape(), c.Shape())
	case t.Parts() != nil && !slices.Equal(t.Shape(), c.Shape()):
		return wrong(t, c)
	case t.Parts() == nil && !slices.Equal(t.Shape(), to.Shape()):
		return wrong(t.Shape(), fmt.Sprintf("%v, or this rank's part of it, of shape %v", c, to.Shape()))
	case t.Parts() != nil:
		var err error
		if from, err = p.Take(a.name, t); err != nil {
			return err
		}
	}
	return op.CopyInPlace(to, from).Err()
}

// emptyState returns an uninitialised tensor that is counted as optimiser state and belongs to no scope.
func emptyState(shape []int, d core.DType, dev core.Device) (t *core.Tensor) {
	core.WithCategory(core.OptimizerState, func() { t = op.EmptyWith(shape, op.TensorOptions{DType: &d, Device: dev}).Keep() })
	return t
}

// keptCopy returns a contiguous copy of t that is counted as optimiser state.
func keptCopy(t *core.Tensor, d core.DType, dev core.Device) (c *core.Tensor, err error) {
	c = emptyState(t.Shape(), d, dev)
	core.NoGrad(func() { err = op.CopyInPlace(c, t).Err() })
	if err != nil {
		c.Release()
	}
	return c, err
}

// Flatten returns the tensors of d by name, such as "3.exp_avg", for a file of named tensors; the rest of d can be
// encoded as JSON.
func (d *StateDict) Flatten() map[string]*core.Tensor {
	out := map[string]*core.Tensor{}
	for n, p := range d.Params {
		for name, t := range p.Tensors {
			out[strconv.Itoa(n)+"."+name] = t
		}
	}
	return out
}

// Unflatten gives d, decoded from JSON, the tensors that [StateDict.Flatten] named.
func (d *StateDict) Unflatten(tensors map[string]*core.Tensor) error {
	for full, t := range tensors {
		number, name, ok := strings.Cut(full, ".")
		n, err := strconv.Atoi(number)
		p, known := d.Params[n]
		if !ok || err != nil || !known {
			return core.Errorf(core.ValueError, d.Algorithm, "unexpected tensor in a state, got %q", full)
		}
		if p.Tensors == nil {
			p.Tensors = map[string]*core.Tensor{}
		}
		p.Tensors[name] = t
		d.Params[n] = p
	}
	return nil
}
