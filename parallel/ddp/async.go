package ddp

import (
	"errors"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
)

// An asyncClient is a rank's side of asynchronous training ([Reducer.SetSyncMode]), in the manner of a parameter server. Each
// parameter has an owner, a rank that runs the optimiser for it. A rank sends gradients to the owners and receives parameters.
// Each rank owns some of the parameters.
type asyncClient struct {
	r            *Reducer
	mode         SyncMode
	push         *collective.Group // for gradients
	pull         *collective.Group // for parameters; a separate group, so that gradients and parameters do not wait for each other
	opt          *optim.Optimizer
	shards       [][]shard // by rank
	server       *paramServer
	clock        int
	clocks       []int
	left         []bool // ranks that make no more steps
	maxStaleness int
}

// A shard is the parameters of one dtype with one owner. They are sent as one tensor.
type shard struct {
	dtype  core.DType
	params []int
	sizes  []int
	numel  int
}

// The tags of messages between a rank and an owner. A request's header is an int64 tensor: its kind, and for each parameter of the owner
// whether it has a gradient. A reply's header has the number of steps of each rank.
const (
	tagHeader = 1000 + iota
	tagReply
	tagShare // and following: gradients
	tagParam = 2000
)

const (
	whatStep = iota
	whatLeave
)

// newAsyncClient assigns owners and starts the parameter server. Every rank calls it.
func newAsyncClient(r *Reducer, m SyncMode, o *optim.Optimizer) (*asyncClient, error) {
	all := make([]int, r.group.Size())
	for i := range all {
		all[i] = i
	}
	if err := r.agree(m, o); err != nil {
		return nil, err
	}
	x := &asyncClient{r: r, mode: m, opt: o, clocks: make([]int, len(all)), left: make([]bool, len(all))}
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
	// Nobody sends before every rank can answer.
	if err := r.groupFor("the start of a mode").Barrier(); err != nil {
		x.server.stop()
		return nil, err
	}
	return x, nil
}

// agree returns an error on every rank unless all ranks have the same mode and an optimiser over the reducer's parameters.
func (r *Reducer) agree(m SyncMode, o *optim.Optimizer) error {
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

// assignOwners balances the bytes of parameters over the ranks.
func (x *asyncClient) assignOwners() {
	n := x.r.group.Size()
	x.shards = make([][]shard, n)
	bytes := make([]int, n)
	for i, p := range x.r.params {
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

// step sends the gradients to the owners and receives the owners' parameters.
func (x *asyncClient) step() error {
	x.server.syncHyper()
	x.clock++
	var err error
	core.NoGrad(func() {
		core.WithCategory(core.Communication, func() {
			core.Tidy(func() { err = x.sendAndReceive() })
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

func (x *asyncClient) sendAndReceive() error {
	me := x.r.group.Rank()
	var works collective.Works
	var local []*core.Tensor
	var localHeader []int64
	for owner, shares := range x.shards {
		if len(shares) == 0 {
			continue
		}
		header := []int64{whatStep}
		var flats []*core.Tensor
		for _, s := range shares {
			flat, present := x.packGradients(s)
			if err := flat.Err(); err != nil {
				return err
			}
			flats, header = append(flats, flat), append(header, present...)
		}
		if owner == me {
			local, localHeader = flats, header
			continue
		}
		works = append(works, x.push.For("a step").Send(x.headerTensor(header), owner, tagHeader))
		for i, f := range flats {
			works = append(works, x.push.For("gradients").Send(f, owner, tagShare+i))
		}
	}
	if localHeader != nil {
		// The owner's stream reads them as any other stream does.
		if err := x.server.apply(me, localHeader, local); err != nil {
			return err
		}
	}
	x.clocks[me] = x.clock
	for owner, shares := range x.shards {
		if len(shares) == 0 {
			continue
		}
		var clocks []int64
		var flats []*core.Tensor
		var err error
		if owner == me {
			clocks, flats, err = x.server.reply(me)
		} else {
			clocks, flats, err = x.receive(owner, shares)
		}
		if err != nil {
			return err
		}
		for i, c := range clocks {
			if c < 0 {
				x.left[i], c = true, -1-c
			}
			x.clocks[i] = max(x.clocks[i], int(c))
		}
		for i, s := range shares {
			if err := x.unpackParameters(s, flats[i]); err != nil {
				return err
			}
		}
	}
	for _, w := range works {
		if err := w.Arrived(); err != nil {
			return err
		}
	}
	return nil
}

// headerTensor returns a header as an int64 tensor on the CPU.
func (x *asyncClient) headerTensor(v []int64) *core.Tensor { return core.FromSlice(v) }

// packGradients returns a shard's gradients, divided by the number of ranks, as one 1-D tensor, and which parameters have a
// gradient.
func (x *asyncClient) packGradients(s shard) (flat *core.Tensor, present []int64) {
	var list []*core.Tensor
	for _, i := range s.params {
		t := x.r.params[i].Tensor
		g := t.Grad()
		if g == nil {
			present = append(present, 0)
			g = op.ZerosLike(t, op.TensorOptions{})
		} else {
			present = append(present, 1)
		}
		list = append(list, op.Reshape(g.Detach(), g.Numel()))
	}
	return op.Div(op.Cat(list, 0), core.Num(float64(x.r.group.Size()))), present
}

// receive receives an owner's reply. The owner delays it while this rank is too far ahead.
func (x *asyncClient) receive(owner int, shares []shard) (clocks []int64, flats []*core.Tensor, err error) {
	var works collective.Works
	for i, s := range shares {
		d := s.dtype
		f := op.EmptyWith([]int{s.numel}, op.TensorOptions{DType: &d, Device: x.r.params[s.params[0]].Tensor.Device()})
		if err := f.Err(); err != nil {
			return nil, nil, err
		}
		flats, works = append(flats, f), append(works, x.pull.For("parameters").Recv(f, owner, tagParam+i))
	}
	header := x.headerTensor(make([]int64, x.r.group.Size()))
	w := append(works, x.pull.For("the clocks").Recv(header, owner, tagReply))
	if err := w.Wait(); err != nil {
		return nil, nil, err
	}
	clocks, err = core.Values[int64](header)
	return clocks, flats, err
}

// unpackParameters copies an owner's parameters to this rank's.
func (x *asyncClient) unpackParameters(s shard, flat *core.Tensor) error {
	at := 0
	for k, i := range s.params {
		t := x.r.params[i].Tensor
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
	me := x.r.group.Rank()
	var err error
	core.Tidy(func() {
		for owner, shares := range x.shards {
			if len(shares) > 0 && owner != me {
				header := make([]int64, 1+x.count(owner))
				header[0] = whatLeave
				err = errors.Join(err, x.push.For("a step").Send(x.headerTensor(header), owner, tagHeader).Arrived())
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
			if err = x.server.copyBack(); err != nil {
				return
			}
			for owner, shares := range x.shards {
				var list []*core.Tensor
				for _, s := range shares {
					for _, i := range s.params {
						list = append(list, x.r.params[i].Tensor)
					}
				}
				if len(list) > 0 && err == nil {
					err = x.r.groupFor("the values of a mode").BroadcastMany(list, owner).Wait()
				}
			}
		})
	})
	if err == nil {
		err = x.shareStates()
	}
	x.server.free()
	return errors.Join(err, x.push.Close(), x.pull.Close())
}

// count returns the number of parameters that a rank owns.
func (x *asyncClient) count(owner int) int {
	n := 0
	for _, s := range x.shards[owner] {
		n += len(s.params)
	}
	return n
}
