package ddp

import (
	"errors"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
)

// An asyncClient is a rank's client of the parameter servers in asynchronous training ([Reducer.SetSyncMode]). Every rank has a client and
// a server. Each parameter has an owner, the rank whose server runs the optimiser for it. In a step, a client pushes gradients to all owners
// and pulls their parameters.
type asyncClient struct {
	reducer      *Reducer
	mode         SyncMode
	push         *collective.Group // gradients to owners
	pull         *collective.Group // parameters from owners; a group of its own, so that pushes and pulls do not wait for each other
	opt          *optim.Optimizer
	shards       [][]shard // by owner
	server       *paramServer
	clock        int    // steps of this rank
	clocks       []int  // steps of each rank, as far as this rank knows
	left         []bool // ranks that make no more steps
	maxStaleness int    // steps that this rank was ahead of the slowest, at most
}

// A shard is the set of parameters of one dtype and one owner. They are sent as one flat tensor.
type shard struct {
	dtype  core.DType
	params []int // indices in the reducer
	sizes  []int // elements of each parameter
	numel  int
}

// Tags of messages between a client and a server.
const (
	tagRequest    = 1000 + iota // int64: the kind, and for each parameter of the owner 1 if it has a gradient
	tagReply                    // int64: the clock of each rank, see encodeClock
	tagGradients                // and following, one for each shard
	tagParameters = 2000        // and following
)

// The kinds of requests.
const (
	requestStep = iota
	requestLeave
)

// newAsyncClient assigns owners and starts the rank's parameter server. Every rank calls it.
func newAsyncClient(r *Reducer, m SyncMode, o *optim.Optimizer) (*asyncClient, error) {
	all := make([]int, r.group.Size())
	for i := range all {
		all[i] = i
	}
	if err := r.agreeOnMode(m, o); err != nil {
		return nil, err
	}
	x := &asyncClient{reducer: r, mode: m, opt: o, clocks: make([]int, len(all)), left: make([]bool, len(all))}
	var err error
	if x.push, err = r.group.New(all, collective.Options{Name: r.group.Name() + "/gradients"}); err != nil {
		return nil, err
	}
	if x.pull, err = r.group.New(all, collective.Options{Name: r.group.Name() + "/parameters"}); err != nil {
		return nil, err
	}
	x.assignOwners()
	if x.server, err = newParamServer(x); err != nil {
		return nil, err
	}
	// No client sends before all servers run.
	if err := r.groupFor("the start of a mode").Barrier(); err != nil {
		x.server.stop()
		return nil, err
	}
	return x, nil
}

// agreeOnMode returns an error on every rank unless all ranks have the same mode and optimiser, over the reducer's parameters.
func (r *Reducer) agreeOnMode(m SyncMode, o *optim.Optimizer) error {
	known := map[*core.Tensor]bool{}
	for _, p := range r.params {
		known[p.Tensor] = true
	}
	mine := m.String() + " with " + o.Algorithm()
	if o.Algorithm() == "lbfgs" {
		mine = "an optimiser that evaluates the loss itself"
	}
	for i, g := range o.Groups() {
		for k, t := range g.Params() {
			if !known[t] {
				mine = core.Errorf(core.ValueError, "set_sync_mode", "parameter %d of group %d of the optimiser is not one of the module", k, i).Error()
			}
		}
	}
	ranks, err := r.groupFor("a mode").Exchange([]byte(mine))
	if err != nil {
		return err
	}
	for i, other := range ranks {
		if string(other) != string(ranks[0]) {
			return core.Errorf(core.DistributedError, "set_sync_mode", "rank 0 wants %s, rank %d %s", ranks[0], i, other)
		}
	}
	if want := m.String() + " with " + o.Algorithm(); mine != want {
		return core.Errorf(core.ValueError, "set_sync_mode", "got %s", mine)
	}
	return nil
}

// assignOwners assigns each parameter to the rank with the fewest bytes so far.
func (x *asyncClient) assignOwners() {
	n := x.reducer.group.Size()
	x.shards = make([][]shard, n)
	bytes := make([]int, n)
	for i, p := range x.reducer.params {
		owner := 0
		for k := range bytes {
			if bytes[k] < bytes[owner] {
				owner = k
			}
		}
		d, size := p.Tensor.DType(), p.Tensor.Numel()
		bytes[owner] += max(size*d.Size(), 1)
		at := slices.IndexFunc(x.shards[owner], func(s shard) bool { return s.dtype == d })
		if at < 0 {
			at = len(x.shards[owner])
			x.shards[owner] = append(x.shards[owner], shard{dtype: d})
		}
		s := &x.shards[owner][at]
		s.params, s.sizes = append(s.params, i), append(s.sizes, size)
		s.numel += size
	}
}

// step pushes the gradients to the owners and pulls the parameters.
func (x *asyncClient) step() error {
	x.server.updateHyper()
	x.clock++
	var err error
	core.NoGrad(func() {
		core.WithCategory(core.Communication, func() {
			core.Tidy(func() { err = x.pushAndPull() })
		})
	})
	if err != nil {
		return err
	}
	for i, c := range x.clocks {
		if !x.left[i] {
			x.maxStaleness = max(x.maxStaleness, x.clock-c)
		}
	}
	return nil
}

// pushAndPull pushes the gradients, pulls the parameters, and then waits until the owners have received the gradients.
func (x *asyncClient) pushAndPull() error {
	works, err := x.pushGradients()
	if err != nil {
		return err
	}
	x.clocks[x.reducer.group.Rank()] = x.clock
	if err := x.pullParameters(); err != nil {
		return err
	}
	for _, w := range works {
		if err := w.Arrived(); err != nil {
			return err
		}
	}
	return nil
}

// pushGradients sends gradients to the other owners. This rank's server applies those of its own parameters directly.
func (x *asyncClient) pushGradients() (works collective.Works, err error) {
	me := x.reducer.group.Rank()
	var local []*core.Tensor
	var localHeader []int64
	for owner, shards := range x.shards {
		if len(shards) == 0 {
			continue
		}
		header := []int64{requestStep}
		var flats []*core.Tensor
		for _, s := range shards {
			flat, present := x.packGradients(s)
			if err := flat.Err(); err != nil {
				return nil, err
			}
			flats, header = append(flats, flat), append(header, present...)
		}
		if owner == me {
			local, localHeader = flats, header
			continue
		}
		works = append(works, x.push.For("a step").Send(core.FromSlice(header), owner, tagRequest))
		for i, f := range flats {
			works = append(works, x.push.For("gradients").Send(f, owner, tagGradients+i))
		}
	}
	if localHeader != nil {
		if err := x.server.apply(me, localHeader, local); err != nil {
			return nil, err
		}
	}
	return works, nil
}

// pullParameters receives clocks and parameters from all owners, which delay them while this rank is too far ahead.
func (x *asyncClient) pullParameters() error {
	for owner, shards := range x.shards {
		if len(shards) == 0 {
			continue
		}
		var clocks []int64
		var flats []*core.Tensor
		var err error
		if owner == x.reducer.group.Rank() {
			clocks, flats, err = x.server.reply(owner)
		} else {
			clocks, flats, err = x.receiveReply(owner, shards)
		}
		if err != nil {
			return err
		}
		for i, encoded := range clocks {
			clock, left := decodeClock(encoded)
			x.clocks[i], x.left[i] = max(x.clocks[i], clock), x.left[i] || left
		}
		for i, s := range shards {
			if err := x.unpackParameters(s, flats[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// encodeClock returns a rank's clock for a reply. It is negative if the rank has left.
func encodeClock(clock int, left bool) int64 {
	if left {
		return int64(-1 - clock)
	}
	return int64(clock)
}

func decodeClock(encoded int64) (clock int, left bool) {
	if encoded < 0 {
		return int(-1 - encoded), true
	}
	return int(encoded), false
}

// packGradients returns a shard's gradients as one flat tensor, divided by the number of ranks, and for each parameter 1 if it has a
// gradient.
func (x *asyncClient) packGradients(s shard) (flat *core.Tensor, present []int64) {
	var list []*core.Tensor
	for _, i := range s.params {
		t := x.reducer.params[i].Tensor
		g := t.Grad()
		if g == nil {
			present = append(present, 0)
			g = op.ZerosLike(t, op.TensorOptions{})
		} else {
			present = append(present, 1)
		}
		list = append(list, op.Reshape(g.Detach(), g.Numel()))
	}
	return op.Div(op.Cat(list, 0), core.Num(float64(x.reducer.group.Size()))), present
}

// receiveReply receives clocks and parameters from one owner.
func (x *asyncClient) receiveReply(owner int, shards []shard) (clocks []int64, flats []*core.Tensor, err error) {
	var works collective.Works
	for i, s := range shards {
		d := s.dtype
		f := op.EmptyWith([]int{s.numel}, op.TensorOptions{DType: &d, Device: x.reducer.params[s.params[0]].Tensor.Device()})
		if err := f.Err(); err != nil {
			return nil, nil, err
		}
		flats, works = append(flats, f), append(works, x.pull.For("parameters").Recv(f, owner, tagParameters+i))
	}
	header := core.FromSlice(make([]int64, x.reducer.group.Size()))
	w := append(works, x.pull.For("the clocks").Recv(header, owner, tagReply))
	if err := w.Wait(); err != nil {
		return nil, nil, err
	}
	clocks, err = core.Values[int64](header)
	return clocks, flats, err
}

// unpackParameters copies a shard's flat tensor to this rank's parameters.
func (x *asyncClient) unpackParameters(s shard, flat *core.Tensor) error {
	at := 0
	for k, i := range s.params {
		t := x.reducer.params[i].Tensor
		part := op.Reshape(op.Narrow(flat, 0, at, s.sizes[k]), t.Shape()...)
		if err := op.CopyInPlace(t, part).Err(); err != nil {
			return err
		}
		at += s.sizes[k]
	}
	return nil
}

// leave ends asynchronous training on all ranks and gives every rank the owners' parameters and optimiser states.
func (x *asyncClient) leave() error {
	me := x.reducer.group.Rank()
	var err error
	core.Tidy(func() {
		for owner, shards := range x.shards {
			if len(shards) > 0 && owner != me {
				header := make([]int64, 1+x.ownedCount(owner))
				header[0] = requestLeave
				err = errors.Join(err, x.push.For("a step").Send(core.FromSlice(header), owner, tagRequest).Arrived())
			}
		}
	})
	if err != nil {
		x.server.stop()
		return err
	}
	x.server.markLeft(me)
	if err := x.server.stop(); err != nil {
		return err
	}
	core.NoGrad(func() {
		core.Tidy(func() {
			if err = x.server.copyToReplica(); err != nil {
				return
			}
			for owner, shards := range x.shards {
				var list []*core.Tensor
				for _, s := range shards {
					for _, i := range s.params {
						list = append(list, x.reducer.params[i].Tensor)
					}
				}
				if len(list) > 0 && err == nil {
					err = x.reducer.groupFor("the values of a mode").BroadcastMany(list, owner).Wait()
				}
			}
		})
	})
	if err == nil {
		err = x.exchangeStates()
	}
	x.server.release()
	return errors.Join(err, x.push.Close(), x.pull.Close())
}

// ownedCount returns the number of parameters that a rank owns.
func (x *asyncClient) ownedCount(owner int) int {
	n := 0
	for _, s := range x.shards[owner] {
		n += len(s.params)
	}
	return n
}
