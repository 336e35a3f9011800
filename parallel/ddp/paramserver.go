package ddp

import (
	"runtime"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
)

// A paramServer holds the master copies of the parameters that a rank owns, and their optimiser. It applies the gradients of all ranks. One
// goroutine serves each other rank, on a stream of the server; the rank's own client calls apply and reply directly.
type paramServer struct {
	client    *asyncClient
	ctx       *core.Context    // with the server's stream
	masters   []*core.Tensor   // in the order of the owner's shards
	params    []int            // indices of the masters in the reducer
	opt       *optim.Optimizer // over the masters
	userGroup []int            // for each group of opt, its index in the user's optimiser
	userParam map[int]int      // the same for parameters
	wg        sync.WaitGroup   // of the goroutines that serve

	mu      sync.Mutex
	changed *sync.Cond // signals a change of the fields below
	clocks  []int      // steps applied, by rank
	left    []bool     // ranks that make no more steps
	err     error      // fails all later requests
}

// newParamServer copies the parameters that the rank owns and their optimiser states, and starts a goroutine for each other rank.
func newParamServer(x *asyncClient) (*paramServer, error) {
	n := x.reducer.group.Size()
	s := &paramServer{client: x, clocks: make([]int, n), left: make([]bool, n), userParam: map[int]int{}}
	s.changed = sync.NewCond(&s.mu)
	here := core.CurrentContext()
	dev, err := here.DefaultDevice()
	if err != nil {
		return nil, err
	}
	s.ctx = core.NewRankContext(here.Rank(), dev)
	for _, sh := range x.shards[x.reducer.group.Rank()] {
		s.params = append(s.params, sh.params...)
	}
	core.WithContext(s.ctx, func() {
		core.NoGrad(func() {
			for _, i := range s.params {
				var c *core.Tensor
				core.WithCategory(core.Parameter, func() { c = op.Clone(x.reducer.params[i].Tensor).Keep() })
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
		s.release()
		return nil, err
	}
	if len(s.masters) == 0 {
		return s, nil
	}
	for peer := range n {
		if peer != x.reducer.group.Rank() {
			x.reducer.group.AddThreads(1)
			s.wg.Go(func() {
				defer x.reducer.group.AddThreads(-1)
				s.serve(peer)
			})
		}
	}
	return s, nil
}

// inContext runs fn in the server's context and frees temporary tensors.
func (s *paramServer) inContext(fn func() error) (err error) {
	core.WithContext(s.ctx, func() {
		core.NoGrad(func() { core.Tidy(func() { err = fn() }) })
	})
	return err
}

// serve answers one rank's requests until it leaves.
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
			more, err = s.serveStep(peer)
			return err
		})
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// serveStep receives and answers one request. It reports whether more will follow.
func (s *paramServer) serveStep(peer int) (more bool, err error) {
	g, shards := s.client.push, s.client.shards[s.client.reducer.group.Rank()]
	header := core.FromSlice(make([]int64, 1+len(s.masters)))
	if err := g.For("a step").Recv(header, peer, tagRequest).Wait(); err != nil {
		return false, err
	}
	v, err := core.Values[int64](header)
	if err != nil {
		return false, err
	}
	if v[0] == requestLeave {
		s.markLeft(peer)
		return false, nil
	}
	var flats []*core.Tensor
	for i, sh := range shards {
		f := op.EmptyWith([]int{sh.numel}, op.TensorOptions{DType: &sh.dtype})
		if err := f.Err(); err != nil {
			return false, err
		}
		if err := g.For("gradients").Recv(f, peer, tagGradients+i).Arrived(); err != nil {
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
	// The parameters are sent before the clocks. The client continues once it has the clocks, and its next gradients depend on the
	// parameters, so the other order could deadlock the streams.
	var works []*collective.Work
	for i, f := range answer {
		works = append(works, s.client.pull.For("parameters").Send(f, peer, tagParameters+i))
	}
	works = append(works, s.client.pull.For("the clocks").Send(core.FromSlice(clocks), peer, tagReply))
	for _, w := range works {
		if err := w.Arrived(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// apply makes one optimiser step with the gradients of a rank.
func (s *paramServer) apply(rank int, header []int64, flats []*core.Tensor) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	err := s.inContext(func() error {
		at := 0
		for i, sh := range s.client.shards[s.client.reducer.group.Rank()] {
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
		s.clocks[rank]++
	}
	s.changed.Broadcast()
	return err
}

// reply waits until a rank is within the staleness bound, and returns the clocks and the current parameters.
func (s *paramServer) reply(rank int) (clocks []int64, flats []*core.Tensor, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && s.client.mode.Kind == BoundedStaleness && s.clocks[rank]-s.slowest() > s.client.mode.Max {
		s.changed.Wait()
	}
	if s.err != nil {
		return nil, nil, s.err
	}
	for i, c := range s.clocks {
		clocks = append(clocks, encodeClock(c, s.left[i]))
	}
	at := 0
	core.WithContext(s.ctx, func() {
		core.NoGrad(func() {
			for _, sh := range s.client.shards[s.client.reducer.group.Rank()] {
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

// slowest returns the smallest clock of the ranks that have not left.
func (s *paramServer) slowest() int {
	least := -1
	for i, c := range s.clocks {
		if !s.left[i] && (least < 0 || c < least) {
			least = c
		}
	}
	if least < 0 {
		return slices.Max(s.clocks)
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

// fail fails all later requests with err.
func (s *paramServer) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.changed.Broadcast()
}

// stop waits until the goroutines have ended: every other rank has left, or a request has failed. It returns the server's error.
func (s *paramServer) stop() error {
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// copyToReplica copies the masters to the rank's own parameters.
func (s *paramServer) copyToReplica() error {
	for k, i := range s.params {
		if err := op.CopyInPlace(s.client.reducer.params[i].Tensor, s.masters[k]).Err(); err != nil {
			return err
		}
	}
	return nil
}

func (s *paramServer) release() {
	for _, m := range s.masters {
		m.Release()
	}
	if s.opt != nil {
		s.opt.Release()
	}
	s.masters, s.opt = nil, nil
	s.ctx.Free()
}
