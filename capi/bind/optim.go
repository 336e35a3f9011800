package bind

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/optim"
)

// hypers returns the hyperparameters whose names, joined by commas, and n values are given.
func hypers(names string, values Floats, n int64) optim.Hyper {
	h := optim.Hyper{}
	v := handle.Slice[float64](values, n)
	for i, name := range split(names) {
		if i < len(v) {
			h[name] = v[i]
		}
	}
	return h
}

// split returns what commas separate; nothing in an empty string.
func split(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func optimizer(h Object) (*optim.Optimizer, error) {
	o, ok := handle.Object[*optim.Optimizer](h)
	if !ok {
		return nil, core.Errorf(core.TypeError, "optim", "%d is not the handle of an optimiser", h)
	}
	return o, nil
}

// OptimNew returns an optimiser of the named algorithm with a first group of n parameters, which must live as long as
// it. names are those of hyperparameters, joined by commas, and values their valuesLen values; the others have the
// algorithm's defaults. Release it with
// [ObjectRelease].
func OptimNew(algorithm string, names string, values Floats, valuesLen int64, params Tensors, n int64) (status Object) {
	defer protect(algorithm, &status)
	h := hypers(names, values, valuesLen)
	o, err := optim.New(algorithm, h, optim.Params{Tensors: tensors(params, n)})
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(o)
}

// OptimAddGroup adds a group of n parameters; hyperparameters are as for [OptimNew].
func OptimAddGroup(h Object, names string, values Floats, valuesLen int64, params Tensors, n int64) (status Status) {
	defer protect("optim", &status)
	o, err := optimizer(h)
	if err != nil {
		return failure(err)
	}
	return failure(o.AddGroup(optim.Params{Tensors: tensors(params, n), Hyper: hypers(names, values, valuesLen)}))
}

// OptimSet changes hyperparameters of a group; either all of those given or, on an error, none.
func OptimSet(h Object, group int64, names string, values Floats, valuesLen int64) (status Status) {
	defer protect("optim", &status)
	o, err := optimizer(h)
	if err != nil {
		return failure(err)
	}
	if group < 0 || group >= int64(len(o.Groups())) {
		return failf(core.IndexError, o.Algorithm(), "group %d out of range, want less than %d", group, len(o.Groups()))
	}
	return failure(o.Groups()[group].SetAll(hypers(names, values, valuesLen)))
}

// OptimStep updates every parameter that has a gradient.
func OptimStep(h Object) (status Status) {
	defer protect("optim", &status)
	if queueNearlyFull() {
		return Busy
	}
	o, err := optimizer(h)
	if err != nil {
		return failure(err)
	}
	return failure(o.Step())
}

// OptimSetStep says how many steps parameter index, counted through the groups, has had.
func OptimSetStep(h Object, index int64, step float64) (status Status) {
	defer protect("optim", &status)
	o, err := optimizer(h)
	if err != nil {
		return failure(err)
	}
	return failure(o.SetStep(int(index), step))
}

// OptimState returns, as JSON, what the optimiser keeps for parameter index, counted through the groups: its steps, other
// numbers (as strings, by name) and the names of its tensors, which [OptimStateTensor] returns. It is empty before the
// parameter's first step.
func OptimState(h Object, index int64) string {
	o, err := optimizer(h)
	if err != nil {
		return ""
	}
	s, ok := o.State(int(index))
	if !ok {
		return ""
	}
	out := struct {
		Step    float64           `json:"step"`
		Numbers map[string]string `json:"numbers"`
		Tensors []string          `json:"tensors"`
	}{s.Step, map[string]string{}, []string{}}
	for name, v := range s.Numbers {
		out.Numbers[name] = strconv.FormatFloat(v, 'g', -1, 64)
	}
	for name := range s.Tensors {
		out.Tensors = append(out.Tensors, name)
	}
	slices.Sort(out.Tensors)
	b, _ := json.Marshal(out)
	return string(b)
}

// OptimStateTensor returns a state of parameter index. Its memory is the optimiser's own and goes on changing with it.
func OptimStateTensor(h Object, index int64, name string) (status Tensor) {
	defer protect("optim", &status)
	o, err := optimizer(h)
	if err != nil {
		return failure(err)
	}
	s, _ := o.State(int(index))
	t := s.Tensors[name]
	if t == nil {
		return failf(core.ValueError, o.Algorithm(), "parameter %d has no state %q", index, name)
	}
	return result(t.Alias(false))
}

// OptimStatesNew returns an empty collection of states; fill it with [OptimStatesAdd] and give it to [OptimLoad].
func OptimStatesNew() Object { return handle.AddObject(map[int]optim.ParamState{}) }

// OptimStatesAdd adds the state of parameter index to a collection: its steps, numbers, and n tensors, which are copied
// when the collection is loaded. Names are joined by commas.
func OptimStatesAdd(states Object, index int64, step float64, names string, numbers Floats, numbersLen int64, tensorNames string, list Tensors, n int64) (status Status) {
	defer protect("optim", &status)
	all, ok := handle.Object[map[int]optim.ParamState](states)
	if !ok {
		return failf(core.TypeError, "optim", "%d is not the handle of states", states)
	}
	s := optim.ParamState{Step: step, Numbers: hypers(names, numbers, numbersLen), Tensors: map[string]*core.Tensor{}}
	ts := tensors(list, n)
	for i, name := range split(tensorNames) {
		if i < len(ts) {
			s.Tensors[name] = ts[i]
		}
	}
	all[int(index)] = s
	return 0
}

// OptimLoad replaces the states of all parameters by those of a collection; on an error nothing has changed.
func OptimLoad(h Object, states Object) (status Status) {
	defer protect("optim", &status)
	o, err := optimizer(h)
	if err != nil {
		return failure(err)
	}
	all, ok := handle.Object[map[int]optim.ParamState](states)
	if !ok {
		return failf(core.TypeError, "optim", "%d is not the handle of states", states)
	}
	d := &optim.StateDict{Algorithm: o.Algorithm(), Params: all}
	next := 0
	for _, g := range o.Groups() {
		gs := optim.GroupState{Hyper: g.Hyper()}
		for range g.Params() {
			gs.Params = append(gs.Params, next)
			next++
		}
		d.Groups = append(d.Groups, gs)
	}
	return failure(o.LoadStateDict(d))
}

// GradsDrop drops the gradients of n tensors.
func GradsDrop(list Tensors, n int64) (status Status) {
	defer protect("zero_grad", &status)
	for _, t := range tensors(list, n) {
		if err := t.Present("zero_grad"); err != nil {
			return failure(err)
		}
		t.DropGrad()
	}
	return 0
}
