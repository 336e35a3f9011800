package optim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
)

// Params is a group of parameters as it is given to [New] and [Optimizer.AddGroup].
type Params struct {
	Tensors []*core.Tensor
	Names   []string // for messages; may be nil
	Hyper   Hyper    // where it differs from the optimiser's
}

// An Optimizer changes parameters by their gradients. It keeps states, such as running means of gradients, in memory that
// is counted as [core.OptimizerState].
type Optimizer struct {
	algorithm *algorithm
	defaults  Hyper
	groups    []*Group
	known     map[*core.Tensor]bool
	lbfgs     *lbfgs      // of that algorithm
	launches  []*launched // in order, of which it is not known yet whether they ran

	mu       sync.Mutex  // held in a step but while the loss is evaluated, and by what changes groups or states
	stepping atomic.Bool // in a step that evaluates the loss
}

// lock keeps other goroutines from the groups and states.
func (o *Optimizer) lock() { core.Lock(&o.mu) }

// A Group is parameters that share hyperparameters.
type Group struct {
	optimizer *Optimizer
	hyper     atomic.Pointer[Hyper] // replaced as a whole
	initialLR float64               // what schedules start from, once one has been made
	scheduled bool
	slots     []*slot
}

// A slot is a parameter with what an optimiser keeps for it.
type slot struct {
	whole   *core.Tensor // the parameter as it was given
	param   *core.Tensor // what this rank changes: the parameter, or its part of a distributed one
	parts   core.Parts   // of a distributed parameter, else nil; it may be gathered when the optimiser steps
	name    string
	count   float64                 // steps so far
	carried float64                 // what the last step left; see [algorithm].carries
	states  map[string]*core.Tensor // distributed where the parameter is
	history *core.AutogradMeta      // the parameter's when it was given
}

// laid returns the parameter, which is distributed as it was given even if it is gathered now.
func (s *slot) laid() *core.Tensor {
	if s.parts == nil {
		return s.whole
	}
	return s.parts.With(s.param.Alias(false))
}

// part returns this rank's part of a distributed tensor, and an ordinary tensor as it is.
func part(t *core.Tensor) *core.Tensor {
	if p := t.Parts(); p != nil {
		return p.Local()
	}
	return t
}

// masterState is the name of the float32 copy of a half parameter among its states.
const masterState = "master"

// New returns an optimiser of the named algorithm (see [Algorithms]) for groups of parameters: leaves that require a
// gradient or may come to. h holds the hyperparameters that differ from the algorithm's defaults.
func New(algorithm string, h Hyper, groups ...Params) (*Optimizer, error) {
	a := algorithms[algorithm]
	if a == nil {
		return nil, core.Errorf(core.ValueError, "optim", "unknown algorithm, got %q, want one of %s", algorithm, strings.Join(Algorithms(), ", "))
	}
	defaults, err := merge(a.name, a.defaults, h)
	if err != nil {
		return nil, err
	}
	o := &Optimizer{algorithm: a, defaults: defaults, known: map[*core.Tensor]bool{}}
	if err := o.valid(defaults); err != nil {
		return nil, err
	}
	if len(groups) == 0 {
		return nil, core.Errorf(core.ValueError, a.name, "got no parameters")
	}
	for _, g := range groups {
		if err := o.AddGroup(g); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func (o *Optimizer) valid(h Hyper) error {
	if err := check(o.algorithm.name, h, o.algorithm.limits); err != nil {
		return err
	}
	if o.algorithm.check != nil {
		return o.algorithm.check(h)
	}
	return nil
}

// steps returns an error if the optimiser only stands for one elsewhere.
func (o *Optimizer) steps() error {
	if o.known == nil {
		return core.Errorf(core.StateError, o.algorithm.name, "stands for an optimiser elsewhere and has no parameters of its own")
	}
	return nil
}

// AddGroup adds parameters, none of which the optimiser may have already.
func (o *Optimizer) AddGroup(p Params) error {
	name := o.algorithm.name
	o.lock()
	defer o.mu.Unlock()
	if err := o.steps(); err != nil {
		return err
	}
	h, err := merge(name, o.defaults, p.Hyper)
	if err != nil {
		return err
	}
	if err := o.valid(h); err != nil {
		return err
	}
	if len(p.Tensors) == 0 {
		return core.Errorf(core.ValueError, name, "got an empty list of parameters")
	}
	if o.algorithm.closure && len(o.groups) > 0 {
		return core.Errorf(core.ValueError, name, "takes one group of parameters only")
	}
	if p.Names != nil && len(p.Names) != len(p.Tensors) {
		return core.Errorf(core.ValueError, name, "got %d names for %d parameters", len(p.Names), len(p.Tensors))
	}
	g := &Group{optimizer: o}
	g.hyper.Store(&h)
	seen := map[*core.Tensor]bool{}
	for i, t := range p.Tensors {
		label := fmt.Sprintf("%d of group %d", i, len(o.groups))
		if p.Names != nil {
			label = p.Names[i]
		}
		whole := t
		if t.IsSparse() {
			return core.Errorf(core.ValueError, name, "parameter %s is a sparse tensor, want an ordinary one: optimise its values and make the tensor of them in each step", label)
		}
		if p := t.Parts(); p != nil {
			if p.Pending() {
				return core.Errorf(core.ValueError, name, "parameter %s is placed %v: every rank would add the step to its part of the sum; redistribute it", label, p)
			}
			t = p.Local()
		}
		if err := t.Usable(name); err != nil {
			return core.Errorf(core.TypeError, name, "parameter %s: %w", label, err)
		}
		if t.IsNumber() || !t.DType().Differentiable() {
			return core.Errorf(core.DTypeError, name, "parameter %s must be a floating-point or complex tensor, got %v", label, t)
		}
		if t.DType().IsComplex() && o.algorithm.apply != nil {
			return core.Errorf(core.DTypeError, name, "parameter %s: not defined for %v; use the real tensor that view_as_real gives", label, t.DType())
		}
		if accepts := o.algorithm.accepts; accepts != nil {
			if err := accepts(t); err != nil {
				return err
			}
		}
		if !t.IsLeaf() {
			return core.Errorf(core.ValueError, name, "parameter %s is the result of an operation, want a leaf", label)
		}
		if o.known[t] || seen[t] {
			return core.Errorf(core.ValueError, name, "parameter %s was given twice", label)
		}
		seen[t] = true
		g.slots = append(g.slots, &slot{whole: whole, param: t, parts: whole.Parts(), name: label, carried: 1, states: map[string]*core.Tensor{}, history: t.EnsureAutogradMeta()})
	}
	maps.Copy(o.known, seen)
	o.groups = append(o.groups, g)
	return nil
}

// Algorithm returns the name that the optimiser was made with.
func (o *Optimizer) Algorithm() string { return o.algorithm.name }

// Groups returns the parameter groups.
func (o *Optimizer) Groups() []*Group {
	o.lock()
	defer o.mu.Unlock()
	return slices.Clone(o.groups)
}

// Params returns the group's parameters.
func (g *Group) Params() []*core.Tensor {
	out := make([]*core.Tensor, len(g.slots))
	for i, s := range g.slots {
		out[i] = s.whole
	}
	return out
}

// Hyper returns a copy of the group's hyperparameters.
func (g *Group) Hyper() Hyper { return maps.Clone(g.values()) }

// values returns the hyperparameters, which must not be changed.
func (g *Group) values() Hyper { return *g.hyper.Load() }

// put changes a hyperparameter that is known to be valid.
func (g *Group) put(name string, v float64) {
	core.RefuseRecording("the step sets " + name + " of an optimiser: set it between steps, as by stepping the schedule there")
	for {
		old := g.hyper.Load()
		h := maps.Clone(*old)
		h[name] = v
		if g.hyper.CompareAndSwap(old, &h) {
			return
		}
	}
}

// Get returns a hyperparameter, and false if the algorithm has none of that name.
func (g *Group) Get(name string) (float64, bool) {
	v, ok := g.values()[name]
	return v, ok
}

// Set changes a hyperparameter.
func (g *Group) Set(name string, v float64) error { return g.SetAll(Hyper{name: v}) }

// SetAll changes several hyperparameters; on an error none.
func (g *Group) SetAll(changed Hyper) error {
	for {
		old := g.hyper.Load()
		h, err := merge(g.optimizer.algorithm.name, *old, changed)
		if err != nil {
			return err
		}
		if err := g.optimizer.valid(h); err != nil {
			return err
		}
		if g.hyper.CompareAndSwap(old, &h) {
			return nil
		}
	}
}

// LR returns the group's learning rate.
func (g *Group) LR() float64 { return g.values()["lr"] }

// ZeroGrad drops the gradients of all parameters.
func (o *Optimizer) ZeroGrad() {
	o.lock()
	defer o.mu.Unlock()
	for _, g := range o.groups {
		for _, s := range g.slots {
			s.param.SetGrad(nil)
		}
	}
}

// Release frees the optimiser's states at once. It can go on, as if it were new.
func (o *Optimizer) Release() {
	o.lock()
	defer o.mu.Unlock()
	for _, g := range o.groups {
		for _, s := range g.slots {
			s.reset()
		}
	}
	o.launches = nil
	if o.lbfgs != nil {
		o.lbfgs.release()
		o.lbfgs = nil
	}
}

func (s *slot) reset() {
	for _, t := range s.states {
		t.Release()
	}
	s.count, s.carried, s.states = 0, 1, map[string]*core.Tensor{}
}

// StateBytes returns the bytes that the optimiser's states hold.
func (o *Optimizer) StateBytes() int {
	o.lock()
	defer o.mu.Unlock()
	n := 0
	for _, g := range o.groups {
		for _, s := range g.slots {
			for _, t := range s.states {
				n += part(t).Storage().Size()
			}
		}
	}
	if o.lbfgs != nil {
		n += o.lbfgs.bytes()
	}
	return n
}
