package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
)

// A Training is what a rank trains, or the part of it that it has: what a checkpoint holds of it does not depend on how the
// ranks divide it. Tensors are saved under these names:
//
//	model.<name>                     parameters and buffers of the module
//	optimizer.state.<name>.<state>   what the optimiser keeps for a parameter
//
// <name> being the module's; a module that has a part of a whole model, such as a pipeline's stage, needs the names that the
// whole has. Values are optimizer.algorithm, optimizer.state.<name>.step, optimizer.param_groups.<name>.lr and the like,
// schedule, random.<rank>, and those of Values.
type Training struct {
	// Model is the module; that of a wrapper, not the wrapper.
	Model nn.Module
	// Divided is the wrapper that gave the module parts of its tensors, such as one of package fsdp; nil if they are whole.
	Divided Divided
	// Optimizer trains parameters of the module; nil if there is none.
	Optimizer *optim.Optimizer
	// Schedule is of the optimiser; nil if there is none.
	Schedule *optim.Schedule
	// Random includes the state of the rank's random generator. A rank that was not there when it was saved keeps its own.
	Random bool
	// Values are pointers to what else there is, such as the number of steps: what encoding/json can encode.
	Values map[string]any
}

// Divided knows which parts of a module's tensors a rank has.
type Divided interface {
	// Settle puts the rank's parts in the module's tensors, if the whole ones are there for a while.
	Settle() error
	// Place returns the shape of the whole tensor of which t, one of the module's, is a part, and where it begins; nil if t is
	// whole.
	Place(t *core.Tensor) (shape, offset []int)
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
	return Save(dir, t.state(), group)
}

// SaveAsync saves the training of all ranks while it goes on: see [SaveAsync].
func (t *Training) SaveAsync(dir string, group *collective.Group) (*Pending, error) {
	return SaveAsync(dir, t.state(), group)
}

// Load puts the training of all ranks in the state of a checkpoint, whatever the ranks and their parts were that saved it.
// The optimiser need not have made a step. Hyperparameters that the checkpoint does not have stay as they are.
//
// Errors, on every rank, with nothing changed: those of [Load], and an optimiser or schedule of another kind.
func (t *Training) Load(dir string, group *collective.Group) error {
	l := &loading{Training: t}
	defer l.release()
	want := State{Problem: l.prepare(dir)}
	if want.Problem == nil {
		want = State{Pieces: l.pieces, Values: l.names}
	}
	if _, err := Load(dir, want, group); err != nil {
		return err
	}
	return l.finish()
}

// Pieces returns the pieces that a rank has of a module's parameters and buffers, by name, for [Gather], [Scatter] and
// [Reshard]; d may be nil.
func Pieces(m nn.Module, d Divided) ([]Piece, error) {
	if d != nil {
		if err := d.Settle(); err != nil {
			return nil, err
		}
	}
	var list []Piece
	for _, n := range nn.NamedTensors(m) {
		if n.Kind != nn.Transient {
			list = appendPiece(list, n.Name, n.Tensor, n.Tensor, d, n.Kind != nn.Parameter)
		}
	}
	return list, nil
}

// appendPiece adds t, which lies as a module's tensor does if it has its shape, unless the rank has nothing of it. Ranks may hold
// different values of it if any.
func appendPiece(list []Piece, name string, t, as *core.Tensor, d Divided, any bool) []Piece {
	p := Piece{Name: name, Tensor: t, Any: any}
	if d != nil && slices.Equal(t.Shape(), as.Shape()) {
		if p.Shape, p.Offset = d.Place(as); p.Shape != nil && t.Numel() == 0 {
			return list
		}
	}
	return append(list, p)
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

// parameters returns the optimiser's parameters, in order, with the numbers of their groups.
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

// state returns what a checkpoint holds of the rank's training.
func (t *Training) state() State {
	s, err := t.collect()
	if err != nil {
		return State{Problem: err}
	}
	return s
}

func (t *Training) collect() (State, error) {
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
				s.Pieces = appendPiece(s.Pieces, statePrefix+n+"."+k, v, p, t.Divided, false)
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
		put(randomPrefix+strconv.Itoa(ctx.Rank()), [2]uint64{seed, offset})
	}
	for k, v := range t.Values {
		if _, taken := s.Values[k]; taken || strings.HasPrefix(k, randomPrefix) {
			return State{}, errorf(core.ValueError, "value %q: the training itself has something of that name", k)
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

// A loading is a Training on its way from a checkpoint.
type loading struct {
	*Training
	pieces []Piece
	names  map[string]json.RawMessage // of the values that must be there

	optimizer *optim.StateDict
	schedule  *optim.ScheduleState
	random    *[2]uint64
	values    map[string]reflect.Value
	made      []*core.Tensor
}

func (l *loading) release() {
	for _, t := range l.made {
		t.Release()
	}
}

// prepare finds out what to load, and checks what of it needs no tensor.
func (l *loading) prepare(dir string) error {
	infos, values, err := Inspect(dir)
	if err != nil {
		return err
	}
	var names map[*core.Tensor]string
	if l.pieces, names, err = l.model(); err != nil {
		return err
	}
	l.names, l.values = map[string]json.RawMessage{}, map[string]reflect.Value{}
	get := func(name string, v any) error {
		l.names[name] = nil
		text, ok := values[name]
		if !ok {
			return nil // which [Load] reports, with others
		}
		if err := json.Unmarshal(text, v); err != nil {
			return errorf(core.ValueError, "value %q of %s: %w", name, dir, err)
		}
		return nil
	}
	if l.Optimizer != nil {
		if err := l.prepareOptimizer(dir, infos, values, names); err != nil {
			return err
		}
	}
	if l.Schedule != nil {
		st := l.Schedule.State()
		l.schedule = &st
		if err := get(scheduleKey, l.schedule); err != nil {
			return err
		}
		if err := l.Schedule.Fits(*l.schedule); err != nil {
			return err
		}
	}
	if l.Random {
		key := randomPrefix + strconv.Itoa(core.CurrentContext().Rank())
		if _, ok := values[key]; ok {
			l.random = new([2]uint64)
			if err := get(key, l.random); err != nil {
				return err
			}
		}
	}
	for k, v := range l.Values {
		p := reflect.ValueOf(v)
		if p.Kind() != reflect.Pointer || p.IsNil() {
			return errorf(core.TypeError, "value %q: want a pointer, got a %T", k, v)
		}
		fresh := reflect.New(p.Type().Elem())
		if err := get(k, fresh.Interface()); err != nil {
			return err
		}
		l.values[k] = fresh
	}
	return nil
}

// prepareOptimizer makes the state that the checkpoint will fill.
func (l *loading) prepareOptimizer(dir string, infos map[string]Info, values map[string]json.RawMessage, names map[*core.Tensor]string) error {
	var algorithm string
	if text, ok := values[algorithmKey]; ok && json.Unmarshal(text, &algorithm) == nil && algorithm != l.Optimizer.Algorithm() {
		return errorf(core.ValueError, "%s has the state of an optimiser %q, want %q", dir, algorithm, l.Optimizer.Algorithm())
	}
	l.optimizer = l.Optimizer.StateDict() // for its form
	l.optimizer.Params = map[int]optim.ParamState{}
	known := map[string]bool{}
	for _, n := range names {
		known[n] = true
	}
	fields := map[string][]string{} // of parameters' states
	for entry := range infos {
		if param, field, ok := stateOf(entry, known); ok {
			fields[param] = append(fields[param], field)
		}
	}
	numbers := map[string]map[string]float64{}
	for entry, text := range values {
		param, field, ok := stateOf(entry, known)
		var v float64
		if !ok || json.Unmarshal(text, &v) != nil {
			continue
		}
		if numbers[param] == nil {
			numbers[param] = map[string]float64{}
		}
		numbers[param][field] = v
	}
	params, groups := l.parameters()
	for i, p := range params {
		n, err := name(names, p)
		if err != nil {
			return err
		}
		l.names[groupPrefix+n+".lr"] = nil
		g := &l.optimizer.Groups[groups[i]]
		for h := range g.Hyper {
			if text, ok := values[groupPrefix+n+"."+h]; ok {
				var v float64
				if err := json.Unmarshal(text, &v); err != nil {
					return errorf(core.ValueError, "value %q of %s: %w", groupPrefix+n+"."+h, dir, err)
				}
				g.Hyper[h] = v
			}
		}
		if text, ok := values[groupPrefix+n+"."+initialLR]; ok {
			var v float64
			if json.Unmarshal(text, &v) == nil {
				g.InitialLR = &v
			}
		}
		kept := optim.ParamState{Numbers: map[string]float64{}, Tensors: map[string]*core.Tensor{}}
		for k, v := range numbers[n] {
			if k == "step" {
				kept.Step = v
			} else {
				kept.Numbers[k] = v
			}
		}
		for _, k := range fields[n] {
			t, err := l.room(statePrefix+n+"."+k, infos[statePrefix+n+"."+k], p)
			if err != nil {
				return err
			}
			kept.Tensors[k] = t
		}
		if numbers[n] != nil || fields[n] != nil {
			l.optimizer.Params[i] = kept
		}
	}
	return nil
}

// stateOf returns the parameter and the name of the state that an entry is, given the parameters' names. Both may hold dots, as in
// "layers.0.weight" and "old_dirs.3": the longest name counts.
func stateOf(entry string, known map[string]bool) (param, field string, ok bool) {
	rest, ok := strings.CutPrefix(entry, statePrefix)
	for at := len(rest); ok && at > 0; {
		if at = strings.LastIndexByte(rest[:at], '.'); at > 0 && known[rest[:at]] {
			return rest[:at], rest[at+1:], true
		}
	}
	return "", "", false
}

// room makes a tensor for the rank's part of a state of a parameter.
func (l *loading) room(name string, info Info, p *core.Tensor) (*core.Tensor, error) {
	if info.Problem != nil {
		return nil, info.Problem
	}
	shape := info.Shape
	var whole []int
	if l.Divided != nil {
		if whole, _ = l.Divided.Place(p); whole != nil && slices.Equal(whole, info.Shape) {
			shape = p.Shape()
		}
	}
	var t *core.Tensor
	core.WithCategory(core.OptimizerState, func() {
		t = op.EmptyWith(shape, op.TensorOptions{DType: &info.DType, Device: p.Device()}).Keep()
	})
	if err := t.Err(); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	l.made = append(l.made, t)
	l.pieces = appendPiece(l.pieces, name, t, p, l.Divided, false)
	return t, nil
}

// finish gives the objects what was loaded for them.
func (l *loading) finish() error {
	if l.optimizer != nil {
		for i, kept := range l.optimizer.Params {
			for k, t := range kept.Tensors {
				if k == "step" { // as other programs save it
					v, err := t.Item()
					if err != nil {
						return err
					}
					kept.Step = v
					delete(kept.Tensors, k)
					l.optimizer.Params[i] = kept
				}
			}
		}
		if err := l.Optimizer.LoadStateDict(l.optimizer); err != nil {
			return err
		}
	}
	if l.schedule != nil {
		if err := l.Schedule.Load(*l.schedule); err != nil {
			return err
		}
	}
	if l.random != nil {
		g, err := generator(core.CurrentContext())
		if err != nil {
			return err
		}
		g.SetState(l.random[0], l.random[1])
	}
	for k, v := range l.values {
		reflect.ValueOf(l.Values[k]).Elem().Set(v.Elem())
	}
	return nil
}
