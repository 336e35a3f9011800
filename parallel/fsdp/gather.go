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

// contents are those of a storage as long as nothing writes to it.
type contents struct {
	storage       *core.Storage
	life, version uint32
}

// note finds out whether the shards have changed, in which case all that was launched so far may have changed them: a gather need not
// wait for what is launched from now on. It returns nil for shards that do not belong to the unit's stream.
func (u *Unit) note() core.Event {
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

// fill starts to gather the full parameters, unless they are there. What is launched on them later waits.
func (u *Unit) fill() error {
	if u.whole() || u.filled && !u.stale() {
		return nil
	}
	u.empty() // so that calls on their way, which read what is stale, do not fail if this gather does
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
		if err := p.sound(); err != nil {
			return err
		}
		full := p.full()
		if err := full.Storage().Refill(); err != nil {
			u.filled = true // what there is of it
			u.empty()
			return core.Errorf(core.MemoryError, "fsdp", "unit %q: %w", u.Name(), err)
		}
		outs[i], ins[i], sizes[i] = full, p.shard(), p.sizes
		if spread {
			ins[i] = p.second
			_, sizes[i] = p.spread(u.nearby.Size())
		}
	}
	u.filled = true
	made := u.note()
	if spread {
		made = nil // the neighbours' parts were
	}
	err := u.tree.off(u.device, func() error {
		for i, t := range ins {
			c := u.cast(t.Detach(), outs[i].DType())
			if err := c.Err(); err != nil {
				return err
			}
			if c.Storage() != ins[i].Storage() {
				made = nil // of this moment
			}
			ins[i] = c
			// Peers look at what they are given until all have come, and the unit's tensors may change places before.
			aliases[i] = outs[i].Detach()
		}
		return u.tree.keep(u.tree.channel(group).For(u.purpose).AllGatherMade(aliases, ins, sizes, made))
	})
	u.stats.Gathers++
	for i, p := range u.params {
		p.gathered = p.shard().Storage().Version()
		// Saved values are those of the same shard, and may be used again.
		outs[i].Storage().SetVersion(p.gathered)
		outs[i].SetRequiresGrad(p.shard().RequiresGrad())
		if p.second != nil {
			p.second.Release()
			p.second = nil
		}
	}
	if err != nil {
		u.empty()
	}
	return err
}

// sound returns an error unless the shard is as it was made, as far as its form goes.
func (p *parameter) sound() error {
	t := p.shard()
	if err := t.Usable("fsdp"); err != nil {
		return core.Errorf(core.StateError, "fsdp", "parameter %s: %w", p.name, err)
	}
	if n := p.sizes[p.unit.rank()]; t.Numel() != n || !t.Contiguous() {
		return core.Errorf(core.ShapeError, "fsdp", "parameter %s of shape %v: this rank's part has %d elements, got a tensor of shape %v in its place", p.name, p.shape, n, t.Shape())
	}
	return nil
}

// show makes the module's tensors the full parameters.
func (u *Unit) show() error {
	if u.open || u.whole() {
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

// shut makes the module's tensors the shards.
func (u *Unit) shut() {
	if !u.open {
		return
	}
	for _, p := range u.params {
		p.tensor.Exchange(p.other)
	}
	u.open = false
}

// empty frees the full parameters.
func (u *Unit) empty() {
	if !u.filled || u.whole() {
		return
	}
	u.filled, u.holds = false, false
	for _, p := range u.params {
		if f := p.full(); f != nil && f.Storage() != nil {
			f.Storage().Empty()
		}
	}
}

// spread returns how n neighbouring ranks share the full parameter after forward.
func (p *parameter) spread(n int) (rows, sizes []int) {
	height, width := 1, 1
	if len(p.shape) > 0 {
		height, width = p.shape[0], core.Numel(p.shape[1:])
	}
	rows = rowsOf(height, n)
	return rows, sizesOf(rows, width)
}

// scatter keeps this rank's part among its neighbours of the full parameters, which can then be freed.
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

// Unshard gathers the unit's parameters and makes the module's tensors the full ones, until [Unit.Reshard]. It returns at
// once; what is launched on them later waits.
func (u *Unit) Unshard() error {
	g, err := u.use()
	if err != nil {
		return err
	}
	defer g.Leave()
	if err := u.StartUnshard(); err != nil {
		return err
	}
	return u.show()
}

// StartUnshard begins what [Unit.Unshard] ends.
func (u *Unit) StartUnshard() error {
	g, err := u.use()
	if err != nil {
		return err
	}
	defer g.Leave()
	if err := u.tree.revoked(); err != nil && u.tree.depth == 0 && !u.tree.again() {
		u.tree.giveUp(err)
		return err
	}
	u.manual = true
	if err := u.fill(); err != nil {
		u.tree.fail(err) // others may wait for this rank
		return err
	}
	return nil
}

// Reshard frees the full parameters, and the module's tensors are the shards again.
func (u *Unit) Reshard() {
	u.manual = false
	if u.using > 0 || u.back {
		return
	}
	u.shut()
	u.empty()
}

// Gather returns the full value of one of the unit's parameters, by its name, in the dtype of the shard. Every rank of the
// group calls it.
func (u *Unit) Gather(name string) (*core.Tensor, error) {
	return u.assemble(name, (*parameter).shard)
}

// Assemble returns the full tensor of which each rank has given the rows that its shard of the parameter has, such as its
// gradient or an optimiser's state. Every rank of the group calls it.
func (u *Unit) Assemble(name string, part *core.Tensor) (*core.Tensor, error) {
	return u.assemble(name, func(*parameter) *core.Tensor { return part })
}

// assemble returns the full tensor made of a part from each rank for the parameter of the given name.
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

func (p *parameter) assemble(part *core.Tensor) (full *core.Tensor, err error) {
	if err := part.Usable("fsdp"); err != nil {
		return nil, err
	}
	core.NoGrad(func() {
		if p.unit.whole() {
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
