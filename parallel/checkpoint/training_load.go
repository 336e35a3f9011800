package checkpoint

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
)

// A loading is the state of a [Training.Load].
type loading struct {
	*Training
	pieces   []Piece
	required map[string]json.RawMessage // of values that the checkpoint must have

	optimizer *optim.StateDict
	schedule  *optim.ScheduleState
	random    *[2]uint64
	values    map[string]reflect.Value
	allocated []*core.Tensor
}

func (l *loading) release() {
	for _, t := range l.allocated {
		t.Release()
	}
}

// prepare lists the pieces to load, and decodes and checks the values.
func (l *loading) prepare(dir string, group *collective.Group) error {
	infos, values, err := Inspect(dir)
	if err != nil {
		return err
	}
	var names map[*core.Tensor]string
	if l.pieces, names, err = l.model(); err != nil {
		return err
	}
	l.required, l.values = map[string]json.RawMessage{}, map[string]reflect.Value{}
	get := func(name string, v any) error {
		l.required[name] = nil
		text, ok := values[name]
		if !ok {
			return nil // [Load] reports all missing values in one error
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
		key := randomKey(group)
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

// prepareOptimizer allocates the optimiser state that the checkpoint fills.
func (l *loading) prepareOptimizer(dir string, infos map[string]Info, values map[string]json.RawMessage, names map[*core.Tensor]string) error {
	var algorithm string
	if text, ok := values[algorithmKey]; ok && json.Unmarshal(text, &algorithm) == nil && algorithm != l.Optimizer.Algorithm() {
		return errorf(core.ValueError, "%s has the state of an optimiser %q, want %q", dir, algorithm, l.Optimizer.Algorithm())
	}
	l.optimizer = l.Optimizer.StateDict() // for its structure
	l.optimizer.Params = map[int]optim.ParamState{}
	known := map[string]bool{}
	for _, n := range names {
		known[n] = true
	}
	fields := map[string][]string{} // of the states of parameters
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
		l.required[groupPrefix+n+".lr"] = nil
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
			t, err := l.allocate(statePrefix+n+"."+k, infos[statePrefix+n+"."+k], p)
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

// stateOf splits the name of an optimiser state into parameter and field. Both may contain dots, as in "layers.0.weight" and "old_dirs.3":
// the longest known parameter name wins.
func stateOf(entry string, known map[string]bool) (param, field string, ok bool) {
	rest, ok := strings.CutPrefix(entry, statePrefix)
	for at := len(rest); ok && at > 0; {
		if at = strings.LastIndexByte(rest[:at], '.'); at > 0 && known[rest[:at]] {
			return rest[:at], rest[at+1:], true
		}
	}
	return "", "", false
}

// allocate creates a tensor for the rank's shard of a state of parameter p.
func (l *loading) allocate(name string, info Info, p *core.Tensor) (*core.Tensor, error) {
	if info.Problem != nil {
		return nil, info.Problem
	}
	var t *core.Tensor
	empty := func(shape []int) *core.Tensor {
		return op.EmptyWith(shape, op.TensorOptions{DType: &info.DType, Device: p.Device()})
	}
	core.WithCategory(core.OptimizerState, func() {
		if parts := p.Parts(); parts != nil {
			t = parts.Like(info.Shape, empty).Keep()
		} else {
			t = empty(info.Shape).Keep()
		}
	})
	if err := t.Err(); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	l.allocated = append(l.allocated, t)
	l.pieces = append(l.pieces, Piece{Name: name, Tensor: t})
	return t, nil
}

// finish applies the loaded state to the objects.
func (l *loading) finish() error {
	if l.optimizer != nil {
		for i, kept := range l.optimizer.Params {
			for k, t := range kept.Tensors {
				if k == "step" { // other programs save the step as a tensor
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
