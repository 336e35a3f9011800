package checkpoint

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
)

// A Training is what a rank trains, or its share of it. Its checkpoint does not depend on how the ranks split the model. Tensors are saved
// under these names:
//
//	model.<name>                     parameters and buffers of the module
//	optimizer.state.<name>.<state>   the optimiser's state of a parameter
//
// where <name> is the name in the module. A module that is a part of a model, such as a pipeline stage, needs the names of the whole model.
// Values are optimizer.algorithm, optimizer.state.<name>.step, optimizer.param_groups.<name>.lr and so on, schedule, random.<rank>, and those
// of the field Values.
type Training struct {
	// Model is the module itself, not a wrapper around it.
	Model nn.Module
	// Divided is the wrapper that sharded the module's tensors, such as one of package fsdp. It is nil if they are not sharded.
	Divided Divided
	// Optimizer trains parameters of the module. It may be nil.
	Optimizer *optim.Optimizer
	// Schedule belongs to the optimiser. It may be nil.
	Schedule *optim.Schedule
	// Random includes the state of the rank's random generator. A rank that did not exist at the save keeps its state on a load.
	Random bool
	// Values are pointers to further state, such as the step number. encoding/json must support their types.
	Values map[string]any
}

// Divided is a wrapper that gathers a module's tensors while it computes.
type Divided interface {
	// Settle restores the rank's shards in the module's tensors, if they are gathered now.
	Settle() error
}

const (
	modelPrefix  = "model."
	statePrefix  = "optimizer.state."
	groupPrefix  = "optimizer.param_groups."
	algorithmKey = "optimizer.algorithm"
	initialLR    = "initial_lr"
	scheduleKey  = "schedule"
	randomPrefix = "random."
)

// Save saves the training of all ranks: see [Save].
func (t *Training) Save(dir string, group *collective.Group) error {
	return Save(dir, t.state(group), group)
}

// SaveAsync saves the training of all ranks in the background: see [SaveAsync].
func (t *Training) SaveAsync(dir string, group *collective.Group) (*Pending, error) {
	return SaveAsync(dir, t.state(group), group)
}

// Load restores the training of all ranks from a checkpoint, whatever the layout of the save. The optimiser need not have made a step.
// Hyperparameters that the checkpoint lacks keep their values.
//
// Errors, on every rank and with nothing changed: those of [Load], and an optimiser or schedule of another kind.
func (t *Training) Load(dir string, group *collective.Group) error {
	l := &loading{Training: t}
	defer l.release()
	want := State{Problem: l.prepare(dir, group)}
	if want.Problem == nil {
		want = State{Pieces: l.pieces, Values: l.required}
	}
	if _, err := Load(dir, want, group); err != nil {
		return err
	}
	return l.finish()
}

// Pieces returns the rank's pieces of a module's parameters and buffers, for [Gather], [Scatter] and [Reshard]. d may be nil.
func Pieces(m nn.Module, d Divided) ([]Piece, error) {
	if d != nil {
		if err := d.Settle(); err != nil {
			return nil, err
		}
	}
	var list []Piece
	for _, n := range nn.NamedTensors(m) {
		if n.Kind != nn.Transient {
			list = append(list, Piece{Name: n.Name, Tensor: n.Tensor, Any: n.Kind != nn.Parameter})
		}
	}
	return list, nil
}

// model returns the pieces of the module and the names of its parameters.
func (t *Training) model() (list []Piece, names map[*core.Tensor]string, err error) {
	if list, err = Pieces(t.Model, t.Divided); err != nil {
		return nil, nil, err
	}
	for i := range list {
		list[i].Name = modelPrefix + list[i].Name
	}
	names = map[*core.Tensor]string{}
	for _, n := range nn.NamedParameters(t.Model) {
		names[n.Tensor] = n.Name
	}
	return list, names, nil
}

// parameters returns the optimiser's parameters in order, with the index of each one's group.
func (t *Training) parameters() (params []*core.Tensor, groups []int) {
	if t.Optimizer == nil {
		return nil, nil
	}
	for i, g := range t.Optimizer.Groups() {
		for _, p := range g.Params() {
			params, groups = append(params, p), append(groups, i)
		}
	}
	return params, groups
}

// name returns the name of one of the optimiser's parameters.
func name(names map[*core.Tensor]string, p *core.Tensor) (string, error) {
	n, ok := names[p]
	if !ok {
		return "", errorf(core.ValueError, "a parameter of shape %v of the optimiser is not among the module's", p.Shape())
	}
	return n, nil
}

// randomKey returns the name of the state of the rank's random generator.
func randomKey(group *collective.Group) string {
	rank := core.CurrentContext().Rank()
	if group != nil {
		rank = group.Ranks()[group.Rank()]
	}
	return randomPrefix + strconv.Itoa(rank)
}

// state returns the rank's state for a save.
func (t *Training) state(group *collective.Group) State {
	s, err := t.collect(group)
	if err != nil {
		return State{Problem: err}
	}
	return s
}

func (t *Training) collect(group *collective.Group) (State, error) {
	list, names, err := t.model()
	if err != nil {
		return State{}, err
	}
	s := State{Pieces: list, Values: map[string]json.RawMessage{}}
	put := func(name string, v any) {
		text, e := json.Marshal(v)
		if e != nil && err == nil {
			err = errorf(core.ValueError, "value %q: %w", name, e)
		}
		s.Values[name] = text
	}
	params, groups := t.parameters()
	if t.Optimizer != nil {
		put(algorithmKey, t.Optimizer.Algorithm())
		state := t.Optimizer.StateDict()
		for i, p := range params {
			n, e := name(names, p)
			if e != nil {
				return State{}, e
			}
			g := state.Groups[groups[i]]
			for _, h := range slices.Sorted(maps.Keys(g.Hyper)) {
				put(groupPrefix+n+"."+h, g.Hyper[h])
			}
			if g.InitialLR != nil {
				put(groupPrefix+n+"."+initialLR, *g.InitialLR)
			}
			kept, ok := state.Params[i]
			if !ok {
				continue
			}
			put(statePrefix+n+".step", kept.Step)
			for k, v := range kept.Numbers {
				put(statePrefix+n+"."+k, v)
			}
			for k, v := range kept.Tensors {
				s.Pieces = append(s.Pieces, Piece{Name: statePrefix + n + "." + k, Tensor: v})
			}
		}
	}
	if t.Schedule != nil {
		put(scheduleKey, t.Schedule.State())
	}
	if t.Random {
		ctx := core.CurrentContext()
		g, e := generator(ctx)
		if e != nil {
			return State{}, e
		}
		seed, offset := g.State()
		put(randomKey(group), [2]uint64{seed, offset})
	}
	for k, v := range t.Values {
		if _, taken := s.Values[k]; taken || strings.HasPrefix(k, randomPrefix) {
			return State{}, errorf(core.ValueError, "value %q: the training state already uses this name", k)
		}
		put(k, v)
	}
	return s, err
}

// generator returns the random generator of the rank's device.
func generator(ctx *core.Context) (*core.Generator, error) {
	dev, err := ctx.Home()
	if err != nil {
		return nil, err
	}
	return ctx.Generator(dev), nil
}
