package ddp

import (
	"encoding/json"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/optim"
)

// makeOptimizer makes the server's optimiser: the user's optimiser, with its hyperparameters and states, restricted to the masters.
func (s *paramServer) makeOptimizer() error {
	var groups []optim.Params
	state := s.client.opt.StateDict()
	mine := &optim.StateDict{Algorithm: state.Algorithm, Params: map[int]optim.ParamState{}}
	number := 0 // of a parameter in the user's optimiser
	for gi, g := range s.client.opt.Groups() {
		p := optim.Params{Hyper: g.Hyper()}
		gs := state.Groups[gi]
		gs.Params = nil
		for _, t := range g.Params() {
			for k, i := range s.params {
				if s.client.reducer.params[i].Tensor == t {
					at := len(s.userParam)
					s.userParam[at] = number
					if ps, ok := state.Params[number]; ok {
						mine.Params[at] = ps
					}
					gs.Params = append(gs.Params, at)
					p.Tensors, p.Names = append(p.Tensors, s.masters[k]), append(p.Names, s.client.reducer.params[i].Name)
				}
			}
			number++
		}
		if len(p.Tensors) > 0 {
			groups = append(groups, p)
			mine.Groups = append(mine.Groups, gs)
			s.userGroup = append(s.userGroup, gi)
		}
	}
	if len(groups) == 0 {
		return nil
	}
	var err error
	if s.opt, err = optim.New(s.client.opt.Algorithm(), nil, groups...); err != nil {
		return err
	}
	return s.opt.LoadStateDict(mine)
}

// updateHyper copies the hyperparameters of the user's optimiser on this rank, which a schedule may have changed.
func (s *paramServer) updateHyper() {
	if s.opt == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, g := range s.opt.Groups() {
		_ = g.SetAll(s.client.opt.Groups()[s.userGroup[i]].Hyper()) // they were valid there
	}
}

// A paramState is the serialised optimiser state of one parameter.
type paramState struct {
	Param   int // index in the user's optimiser
	Step    float64
	Numbers map[string]float64
	Tensors map[string][]byte
	DTypes  map[string]core.DType
}

// exchangeStates loads the optimiser states of all owners into the user's optimiser on every rank.
func (x *asyncClient) exchangeStates() error {
	var mine []paramState
	if x.server.opt != nil {
		for at, ps := range x.server.opt.StateDict().Params {
			st := paramState{Param: x.server.userParam[at], Step: ps.Step, Numbers: ps.Numbers, Tensors: map[string][]byte{}, DTypes: map[string]core.DType{}}
			for name, t := range ps.Tensors {
				b, err := t.Bytes()
				if err != nil {
					return err
				}
				st.Tensors[name], st.DTypes[name] = b, t.DType()
			}
			mine = append(mine, st)
		}
	}
	b, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	all, err := x.reducer.groupFor("the optimiser's state").Exchange(b)
	if err != nil {
		return err
	}
	state := x.opt.StateDict()
	var params []*core.Tensor
	for _, g := range x.opt.Groups() {
		params = append(params, g.Params()...)
	}
	core.Tidy(func() {
		for _, b := range all {
			var list []paramState
			if err = json.Unmarshal(b, &list); err != nil {
				return
			}
			for _, st := range list {
				ps := optim.ParamState{Step: st.Step, Numbers: st.Numbers, Tensors: map[string]*core.Tensor{}}
				for name, raw := range st.Tensors {
					ps.Tensors[name] = core.FromBytes(st.DTypes[name], raw, params[st.Param].Shape()...)
				}
				state.Params[st.Param] = ps
			}
		}
		err = x.opt.LoadStateDict(state)
	})
	return err
}
