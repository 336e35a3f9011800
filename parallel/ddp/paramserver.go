package ddp

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
)

// A paramServer keeps the parameters and optimiser states that a rank owns while the rank trains. One goroutine serves each other
// rank, on a stream of the server.
type paramServer struct {
	x         *asyncClient
	ctx       *core.Context
	masters   []*core.Tensor // in the order of the rank's shares
	params    []int          // of the reducer
	opt       *optim.Optimizer
	groups    []int // index of the user optimiser's group, for each group of opt
	userIndex map[int]int
	wg        sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond // a clock has moved, or err is set
	clock   []int
	left    []bool // ranks that have left
	err     error
}

func newParamServer(x *asyncClient) (*paramServer, error) {
	n := x.r.group.Size()
	s := &paramServer{x: x, clock: make([]int, n), left: make([]bool, n), userIndex: map[int]int{}}
	s.changed = sync.NewCond(&s.mu)
	here := core.CurrentContext()
	dev, err := here.DefaultDevice()
	if err != nil {
		return nil, err
	}
	s.ctx = core.NewRankContext(here.Rank(), dev)
	for _, sh := range x.shards[x.r.group.Rank()] {
		s.params = append(s.params, sh.params...)
	}
	core.WithContext(s.ctx, func() {
		core.NoGrad(func() {
			for _, i := range s.params {
				var c *core.Tensor
				core.WithCategory(core.Parameter, func() { c = op.Clone(x.r.params[i].Tensor).Keep() })
				if err == nil {
					err = c.Err()
				}
				s.masters = append(s.masters, c)
			}
			if err == nil {
				err = s.makeOptimizer()
			}
		})
	})
	if err != nil {
		s.free()
		return nil, err
	}
	if len(s.masters) == 0 {
		return s, nil
	}
	for peer := range n {
		if peer != x.r.group.Rank() {
			x.r.group.AddThreads(1)
			s.wg.Go(func() {
				defer x.r.group.AddThreads(-1)
				s.serve(peer)
			})
		}
	}
	return s, nil
}

// makeOptimizer makes an optimiser for the masters with the hyperparameters and states of the user's.
func (s *paramServer) makeOptimizer() error {
	var groups []optim.Params
	state := s.x.opt.StateDict()
	mine := &optim.StateDict{Algorithm: state.Algorithm, Params: map[int]optim.ParamState{}}
	number := 0 // in the user's optimiser
	for gi, g := range s.x.opt.Groups() {
		p := optim.Params{Hyper: g.Hyper()}
		gs := state.Groups[gi]
		gs.Params = nil
		for _, t := range g.Params() {
			for k, i := range s.params {
				if s.x.r.params[i].Tensor == t {
					at := len(s.userIndex)
					s.userIndex[at] = number
					if ps, ok := state.Params[number]; ok {
						mine.Params[at] = ps
					}
					gs.Params = append(gs.Params, at)
					p.Tensors, p.Names = append(p.Tensors, s.masters[k]), append(p.Names, s.x.r.params[i].Name)
				}
			}
			number++
		}
		if len(p.Tensors) > 0 {
			groups = append(groups, p)
			mine.Groups = append(mine.Groups, gs)
			s.groups = append(s.groups, gi)
		}
	}
	if len(groups) == 0 {
		return nil
	}
	var err error
	if s.opt, err = optim.New(s.x.opt.Algorithm(), nil, groups...); err != nil {
		return err
	}
	return s.opt.LoadStateDict(mine)
}

// syncHyper copies the hyperparameters of this rank's own optimiser.
func (s *paramServer) syncHyper() {
	if s.opt == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, g := range s.opt.Groups() {
		_ = g.SetAll(s.x.opt.Groups()[s.groups[i]].Hyper()) // they were valid there
	}
}

// inContext runs fn in the server's context and frees temporary tensors.
func (s *paramServer) inContext(fn func() error) (err error) {
	core.WithContext(s.ctx, func() {
		core.NoGrad(func() { core.Tidy(func() { err = fn() }) })
	})
	return err
}

// serve answers one rank until it leaves.
func (s *paramServer) serve(peer int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for more := true; more; {
		err := s.inContext(func() (err error) {
			defer func() {
				if v := recover(); v != nil {
					err = core.Errorf(core.StateError, "ddp", "internal error of the server: %v\n%s", v, debug.Stack())
				}
			}()
			more, err = s.request(peer)
			return err
		})
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// request receives and answers one step of a rank. It reports whether more will follow.
func (s *paramServer) request(peer int) (more bool, err error) {
	g, shares := s.x.push, s.x.shards[s.x.r.group.Rank()]
	header := core.FromSlice(make([]int64, 1+len(s.masters)))
	if err := g.For("a step").Recv(header, peer, tagHeader).Wait(); err != nil {
		return false, err
	}
	v, err := core.Values[int64](header)
	if err != nil {
		return false, err
	}
	if v[0] == whatLeave {
		s.markLeft(peer)
		return false, nil
	}
	var flats []*core.Tensor
	for i, sh := range shares {
		f := op.EmptyWith([]int{sh.numel}, op.TensorOptions{DType: &sh.dtype})
		if err := f.Err(); err != nil {
			return false, err
		}
		if err := g.For("gradients").Recv(f, peer, tagShare+i).Arrived(); err != nil {
			return false, err
		}
		flats = append(flats, f)
	}
	if err := s.apply(peer, v, flats); err != nil {
		return false, err
	}
	clocks, answer, err := s.reply(peer)
	if err != nil {
		return false, err
	}
	// The parameters are sent before the clocks. A rank continues once it has the clocks, and its next gradients depend on the
	// parameters. Sending those later could deadlock the streams.
	var works []*collective.Work
	for i, f := range answer {
		works = append(works, s.x.pull.For("parameters").Send(f, peer, tagParam+i))
	}
	works = append(works, s.x.pull.For("the clocks").Send(core.FromSlice(clocks), peer, tagReply))
	for _, w := range works {
		if err := w.Arrived(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// apply makes one step of the optimiser with a rank's gradients.
func (s *paramServer) apply(rank int, header []int64, flats []*core.Tensor) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	err := s.inContext(func() error {
		at := 0
		for i, sh := range s.x.shards[s.x.r.group.Rank()] {
			offset := 0
			for _, n := range sh.sizes {
				m := s.masters[at]
				m.SetGrad(nil)
				if header[1+at] != 0 {
					m.SetGrad(op.Reshape(op.Narrow(flats[i], 0, offset, n), m.Shape()...).Detach())
				}
				offset += n
				at++
			}
		}
		if s.opt == nil {
			return nil
		}
		err := s.opt.Step()
		s.opt.ZeroGrad()
		return err
	})
	if err != nil {
		s.err = err
	} else {
		s.clock[rank]++
	}
	s.changed.Broadcast()
	return err
}

// reply waits until the staleness bound lets a rank continue, and returns the clocks and the current parameters.
func (s *paramServer) reply(rank int) (clocks []int64, flats []*core.Tensor, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && s.x.mode.Kind == BoundedStaleness && s.clock[rank]-s.slowest() > s.x.mode.Max {
		s.changed.Wait()
	}
	if s.err != nil {
		return nil, nil, s.err
	}
	for i, c := range s.clock {
		if s.left[i] {
			c = -1 - c // makes no more steps
		}
		clocks = append(clocks, int64(c))
	}
	at := 0
	core.WithContext(s.ctx, func() {
		core.NoGrad(func() {
			for _, sh := range s.x.shards[s.x.r.group.Rank()] {
				var list []*core.Tensor
				for range sh.params {
					m := s.masters[at]
					list = append(list, op.Reshape(m, m.Numel()))
					at++
				}
				f := op.Cat(list, 0)
				if err == nil {
					err = f.Err()
				}
				flats = append(flats, f)
				for _, t := range list {
					t.Release()
				}
			}
		})
	})
	return clocks, flats, err
}

// slowest returns the smallest number of steps of the ranks that have not left.
func (s *paramServer) slowest() int {
	least := -1
	for i, c := range s.clock {
		if !s.left[i] && (least < 0 || c < least) {
			least = c
		}
	}
	if least < 0 {
		return slices.Max(s.clock)
	}
	return least
}

// markLeft records that a rank makes no more steps.
func (s *paramServer) markLeft(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[rank] = true
	s.changed.Broadcast()
}

func (s *paramServer) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.changed.Broadcast()
}

// stop waits until every other rank has left, and returns the server's error.
func (s *paramServer) stop() error {
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// copyBack copies the masters to the rank's own parameters.
func (s *paramServer) copyBack() error {
	for k, i := range s.params {
		if err := op.CopyInPlace(s.x.r.params[i].Tensor, s.masters[k]).Err(); err != nil {
			return err
		}
	}
	return nil
}

func (s *paramServer) free() {
	for _, m := range s.masters {
		m.Release()
	}
	if s.opt != nil {
		s.opt.Release()
	}
	s.masters, s.opt = nil, nil
	s.ctx.Free()
}

// sentState is an optimiser's state of one parameter on its way to the other ranks.
type sentState struct {
	Param   int
	Step    float64
	Numbers map[string]float64
	Tensors map[string][]byte
	DTypes  map[string]core.DType
}

// shareStates gives every rank's optimiser the states that the owners keep.
func (x *asyncClient) shareStates() error {
	var mine []sentState
	if x.server.opt != nil {
		for at, ps := range x.server.opt.StateDict().Params {
			st := sentState{Param: x.server.userIndex[at], Step: ps.Step, Numbers: ps.Numbers, Tensors: map[string][]byte{}, DTypes: map[string]core.DType{}}
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
	all, err := x.r.groupFor("the optimiser's state").Exchange(b)
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
			var list []sentState
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
