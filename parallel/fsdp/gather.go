package fsdp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// idle reports whether nothing computes with the unit's full parameters.
func (u *Unit) idle() bool { return u.using == 0 && !u.back && !u.manual }

// stale reports whether the shards have changed since the full parameters were gathered.
func (u *Unit) stale() bool {
	for _, p := range u.params {
		if p.shard().Storage().Version() != p.gathered {
			return true
		}
	}
	return false
}

// contents identifies the contents of a storage. A write changes the version.
type contents struct {
	storage       *core.Storage
	life, version uint32
}

// recordShards returns an event after which the shards do not change. An all-gather waits for it rather than for all calls launched so far.
// If the shards have changed since the last call, it records a new event. It returns nil if the shards belong to another stream.
func (u *Unit) recordShards() core.Event {
	changed := u.made == nil
	for _, p := range u.params {
		s := p.shard().Storage()
		if s == nil || s.Stream() != u.stream {
			return nil
		}
		if now := (contents{s, s.Generation(), s.Version()}); now != p.known {
			p.known, changed = now, true
		}
	}
	if changed {
		u.made = u.stream.Record()
	}
	return u.made
}

// gather starts the all-gather of the full parameters, unless they are up to date. Later calls on the full parameters wait for it.
func (u *Unit) gather() error {
	if u.replicated() || u.filled && !u.stale() {
		return nil
	}
	u.freeFull() // earlier calls that still read the stale parameters then do not fail if this all-gather does
	if len(u.params) == 0 {
		u.filled = true
		return nil
	}
	group, ins := u.group, make([]*core.Tensor, len(u.params))
	outs, aliases, sizes := make([]*core.Tensor, len(u.params)), make([]*core.Tensor, len(u.params)), make([][]int, len(u.params))
	spread := u.params[0].second != nil && !u.stale()
	if spread {
		group = u.nearby
	}
	for i, p := range u.params {
		if err := p.checkShard(); err != nil {
			return err
		}
		full := p.full()
		if err := full.Storage().Refill(); err != nil {
			u.filled = true // so that freeFull frees the storages allocated so far
			u.freeFull()
			return core.Errorf(core.MemoryError, "fsdp", "unit %q: %w", u.Name(), err)
		}
		outs[i], ins[i], sizes[i] = full, p.shard(), p.sizes
		if spread {
			ins[i] = p.second
			_, sizes[i] = p.spread(u.nearby.Size())
		}
	}
	u.filled = true
	made := u.recordShards()
	if spread {
		made = nil // the event is of the shards, not of the neighbours' parts
	}
	err := u.tree.onSideStream(u.device, func() error {
		for i, t := range ins {
			c := u.cast(t.Detach(), outs[i].DType())
			if err := c.Err(); err != nil {
				return err
			}
			if c.Storage() != ins[i].Storage() {
				made = nil // the cast is launched only now
			}
			ins[i] = c
			// Other ranks read the tensor's description until all ranks have arrived. The tensors may be exchanged before that.
			aliases[i] = outs[i].Detach()
		}
		return u.tree.keep(u.tree.channel(group).For(u.purpose).AllGatherMade(aliases, ins, sizes, made))
	})
	u.stats.Gathers++
	for i, p := range u.params {
		p.gathered = p.shard().Storage().Version()
		// The version is that of the shard, so that values saved for backward stay valid if the shard is unchanged.
		outs[i].Storage().SetVersion(p.gathered)
		outs[i].SetRequiresGrad(p.shard().RequiresGrad())
		if p.second != nil {
			p.second.Release()
			p.second = nil
		}
	}
	if err != nil {
		u.freeFull()
	}
	return err
}

// checkShard returns an error if the shard's tensor is unusable, has another size than it was created with, or is not contiguous.
func (p *parameter) checkShard() error {
	t := p.shard()
	if err := t.Usable("fsdp"); err != nil {
		return core.Errorf(core.StateError, "fsdp", "parameter %s: %w", p.name, err)
	}
	if n := p.sizes[p.unit.rank()]; t.Numel() != n || !t.Contiguous() {
		return core.Errorf(core.ShapeError, "fsdp", "parameter %s of shape %v: this rank's part has %d elements, got a tensor of shape %v in its place", p.name, p.shape, n, t.Shape())
	}
	return nil
}

// useFull makes the module's tensors the full parameters.
func (u *Unit) useFull() error {
	if u.open || u.replicated() {
		return nil
	}
	for i, p := range u.params {
		if err := p.tensor.Exchange(p.other); err != nil {
			for _, q := range u.params[:i] {
				q.tensor.Exchange(q.other)
			}
			return err
		}
	}
	u.open = true
	return nil
}

// useShards makes the module's tensors the shards.
func (u *Unit) useShards() {
	if !u.open {
		return
	}
	for _, p := range u.params {
		p.tensor.Exchange(p.other)
	}
	u.open = false
}

// freeFull frees the memory of the full parameters.
func (u *Unit) freeFull() {
	if !u.filled || u.replicated() {
		return
	}
	u.filled, u.holds = false, false
	for _, p := range u.params {
		if f := p.full(); f != nil && f.Storage() != nil {
			f.Storage().Empty()
		}
	}
}

// spread returns the rows and sizes of the parts that n neighbouring ranks keep of the full parameter after forward: see [Options.Partial].
func (p *parameter) spread(n int) (rows, sizes []int) {
	height, width := 1, 1
	if len(p.shape) > 0 {
		height, width = p.shape[0], core.Numel(p.shape[1:])
	}
	rows = rowsOf(height, n)
	return rows, sizesOf(rows, width)
}

// scatter copies the part of each full parameter that this rank keeps for its neighbours, so that the full parameters can be freed.
func (u *Unit) scatter() error {
	var err error
	core.NoGrad(func() {
		core.WithCategory(core.Communication, func() {
			core.Tidy(func() {
				for _, p := range u.params {
					rows, _ := p.spread(u.nearby.Size())
					r := u.nearby.Rank()
					p.second = op.Clone(p.part(p.full().Detach(), rows[r], rows[r+1])).Keep()
					if err = p.second.Err(); err != nil {
						p.second = nil
						return
					}
				}
			})
		})
	})
	return err
}

// Unshard all-gathers the unit's parameters and makes the module's tensors the full parameters until [Unit.Reshard]. It does not wait for the
// all-gather; later calls on the parameters do.
func (u *Unit) Unshard() error {
	g, err := u.use()
	if err != nil {
		return err
	}
	defer g.Leave()
	if err := u.StartUnshard(); err != nil {
		return err
	}
	return u.useFull()
}

// StartUnshard starts the all-gather of [Unit.Unshard], and leaves the module's tensors the shards.
func (u *Unit) StartUnshard() error {
	g, err := u.use()
	if err != nil {
		return err
	}
	defer g.Leave()
	if err := u.tree.revoked(); err != nil && u.tree.depth == 0 && !u.tree.recomputing() {
		u.tree.failStep(err)
		return err
	}
	u.manual = true
	if err := u.gather(); err != nil {
		u.tree.fail(err) // others may wait for this rank
		return err
	}
	return nil
}

// Reshard frees the full parameters and makes the module's tensors the shards again. During a pass of the unit, the end of the pass does so.
func (u *Unit) Reshard() {
	u.manual = false
	if u.using > 0 || u.back {
		return
	}
	u.useShards()
	u.freeFull()
}

// Gather returns the full value of the named parameter, in the dtype of the shard. Every rank of the group calls it.
func (u *Unit) Gather(name string) (*core.Tensor, error) {
	return u.assemble(name, (*parameter).shard)
}

// Assemble all-gathers a tensor that is sharded as the named parameter is, such as its gradient or an optimiser's state. Every rank of the
// group calls it with its part.
func (u *Unit) Assemble(name string, part *core.Tensor) (*core.Tensor, error) {
	return u.assemble(name, func(*parameter) *core.Tensor { return part })
}

// assemble all-gathers the parts of the named parameter, and part returns this rank's.
func (u *Unit) assemble(name string, part func(p *parameter) *core.Tensor) (*core.Tensor, error) {
	g, err := u.use()
	if err != nil {
		return nil, err
	}
	defer g.Leave()
	for _, p := range u.params {
		if p.name == name {
			return p.assemble(part(p))
		}
	}
	return nil, core.Errorf(core.ValueError, "fsdp", "unit %q has no parameter %q", u.Name(), name)
}

// assemble all-gathers a tensor that is sharded as the parameter is.
func (p *parameter) assemble(part *core.Tensor) (full *core.Tensor, err error) {
	if err := part.Usable("fsdp"); err != nil {
		return nil, err
	}
	core.NoGrad(func() {
		if p.unit.replicated() {
			full = op.Clone(part.Detach()).Keep()
			err = full.Err()
			return
		}
		if part.Numel() != p.sizes[p.unit.rank()] {
			err = core.Errorf(core.ShapeError, "fsdp", "parameter %s of shape %v: this rank's part has %d elements, got shape %v", p.name, p.shape, p.sizes[p.unit.rank()], part.Shape())
			return
		}
		d := part.DType()
		full = op.EmptyWith(p.shape, op.TensorOptions{DType: &d, Device: p.unit.device}).Keep()
		if err = full.Err(); err != nil {
			return
		}
		local := p.unit.cast(part.Detach(), d)
		err = p.unit.group.For(p.unit.purpose+", "+p.name).AllGatherParts([]*core.Tensor{full}, []*core.Tensor{op.Contiguous(local)}, [][]int{p.sizes}).Arrived()
	})
	return full, err
}
