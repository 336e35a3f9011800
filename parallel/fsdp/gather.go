package fsdp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/tensor"
)

// idle reports whether nothing computes with the unit's full parameters.
func (u *Unit) idle() bool { return u.activeForwards == 0 && !u.inBackward && !u.manualUnshard }

// stale reports whether the shards have changed since the full parameters were gathered.
func (u *Unit) stale() bool {
	for _, p := range u.params {
		if versionOf(p.shard()) != p.gatheredFrom {
			return true
		}
	}
	return false
}

// A storageVersion identifies the contents of a storage. A write changes the version.
type storageVersion struct {
	storage       *core.Storage
	life, version uint32
}

// versionOf returns the version of a tensor's contents.
func versionOf(t *core.Tensor) storageVersion {
	s := t.Storage()
	if s == nil {
		return storageVersion{}
	}
	return storageVersion{s, s.Generation(), s.Version()}
}

// recordShards returns an event after which the shards do not change. An all-gather waits for it rather than for all calls launched so far.
// If the shards have changed since the last call, it records a new event. It returns nil if the shards belong to another stream.
func (u *Unit) recordShards() core.Event {
	changed := u.shardsReady == nil
	for _, p := range u.params {
		now := versionOf(p.shard())
		if now.storage == nil || now.storage.Stream() != u.stream {
			return nil
		}
		if now != p.recorded {
			p.recorded, changed = now, true
		}
	}
	if changed {
		u.shardsReady = u.stream.Record()
	}
	return u.shardsReady
}

// allGather starts the all-gather of the full parameters, unless they are up to date. Later calls on the full parameters wait for
// it.
func (u *Unit) allGather() error {
	if u.replicated() || u.gathered && !u.stale() {
		return nil
	}
	if u.alone {
		return u.showShards()
	}
	u.freeFull() // earlier calls that still read the stale parameters then do not fail if this all-gather does
	if len(u.params) == 0 {
		u.gathered = true
		return nil
	}
	group, ins := u.group, make([]*core.Tensor, len(u.params))
	outs, aliases, sizes := make([]*core.Tensor, len(u.params)), make([]*core.Tensor, len(u.params)), make([][]int, len(u.params))
	if err := u.followShards(); err != nil {
		return err
	}
	fromPostForward := u.params[0].postForwardShard != nil && !u.stale()
	if fromPostForward {
		group = u.postForwardGroup
	}
	for i, p := range u.params {
		if err := p.checkShard(); err != nil {
			return err
		}
		full := p.full()
		if err := full.Storage().Refill(); err != nil {
			u.gathered = true // so that freeFull frees the storages allocated so far
			u.freeFull()
			return core.Errorf(core.MemoryError, "fsdp", "unit %q: %w", u.Name(), err)
		}
		outs[i], ins[i], sizes[i] = full, p.shard(), p.sizes
		if fromPostForward {
			ins[i] = p.postForwardShard
			_, sizes[i] = p.postForwardLayout(u.postForwardGroup.Size())
		}
	}
	u.gathered = true
	ready := u.recordShards()
	if fromPostForward {
		ready = nil // the event is of the shards, not of the post-forward shards
	}
	err := u.tree.onSideStream(u.device, func() error {
		for i, t := range ins {
			t = t.Detach()
			if !fromPostForward {
				t = u.params[i].offered(t)
			}
			c := u.cast(t, outs[i].DType())
			if err := c.Err(); err != nil {
				return err
			}
			if c.Storage() != ins[i].Storage() {
				ready = nil // the cast is launched only now
			}
			ins[i] = c
			// Other ranks read the tensor's description until all ranks have arrived. The tensors may be exchanged before that.
			aliases[i] = outs[i].Detach()
			if !fromPostForward && u.params[i].strided() {
				aliases[i] = u.params[i].emptyFlat(outs[i])
				if err := aliases[i].Err(); err != nil {
					return err
				}
			}
		}
		if err := u.tree.track(u.tree.channel(group).For(u.purpose).AllGatherMade(aliases, ins, sizes, ready)); err != nil {
			return err
		}
		for i, p := range u.params {
			if !fromPostForward && p.strided() {
				if err := p.unpack(outs[i].Detach(), aliases[i]); err != nil {
					return err
				}
			}
		}
		return nil
	})
	u.stats.Gathers++
	for i, p := range u.params {
		p.gatheredFrom = versionOf(p.shard())
		// The version is that of the shard, so that values saved for backward stay valid if the shard is unchanged.
		outs[i].Storage().SetVersion(p.gatheredFrom.version)
		p.gatheredTo = versionOf(outs[i])
		p.written = p.gatheredTo
		outs[i].SetRequiresGrad(p.shard().RequiresGrad())
		if p.postForwardShard != nil {
			p.postForwardShard.Release()
			p.postForwardShard = nil
		}
	}
	if err != nil {
		u.freeFull()
	}
	return err
}

// checkShard returns an error if the shard's tensor is unusable, has another size than it was created with, is not contiguous, or has a tangent.
func (p *parameter) checkShard() error {
	t := p.shard()
	if err := t.Usable("fsdp"); err != nil {
		return core.Errorf(core.StateError, "fsdp", "parameter %s: %w", p.name, err)
	}
	if err := core.RefuseTangent("fsdp", t); err != nil {
		return err
	}
	if n := p.numel(p.unit.rank()); t.Numel() != n || !t.Contiguous() {
		return core.Errorf(core.ShapeError, "fsdp", "parameter %s of shape %v: this rank's part has %d elements, got a tensor of shape %v in its place", p.name, p.shape, n, t.Shape())
	}
	return nil
}

// useFull makes the module's tensors the full parameters.
func (u *Unit) useFull() error {
	if u.usesFull || u.replicated() {
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
	u.usesFull = true
	return nil
}

// useShards makes the module's tensors the shards.
func (u *Unit) useShards() {
	if !u.usesFull {
		return
	}
	for _, p := range u.params {
		p.tensor.Exchange(p.other)
	}
	u.usesFull = false
	for _, p := range u.params {
		p.disownFull()
	}
}

// freeFull frees the memory of the full parameters.
func (u *Unit) freeFull() {
	if !u.gathered || u.replicated() {
		return
	}
	u.gathered, u.reshardSkipped = false, false
	for _, p := range u.params {
		if u.alone {
			break // it is the shards' memory
		}
		if f := p.full(); f != nil && f.Storage() != nil {
			f.Storage().Empty()
		}
	}
}

// postForwardLayout returns how n ranks divide the full parameter between forward and backward: see [Options.Partial].
func (p *parameter) postForwardLayout(n int) (rows, sizes []int) {
	height, width := 1, 1
	if len(p.shape) > 0 {
		height, width = p.shape[0], core.Numel(p.shape[1:])
	}
	rows = chunkRows(height, n)
	return rows, chunkSizes(rows, width)
}

// savePostForwardShards copies this rank's part of each full parameter for the all-gather in backward: see [Options.Partial]. The
// full parameters can then be freed.
func (u *Unit) savePostForwardShards() error {
	var err error
	core.NoGrad(func() {
		core.WithCategory(core.Communication, func() {
			core.Tidy(func() {
				for _, p := range u.params {
					rows, _ := p.postForwardLayout(u.postForwardGroup.Size())
					r := u.postForwardGroup.Rank()
					p.postForwardShard = op.Clone(p.narrowRows(p.full().Detach(), rows[r], rows[r+1])).Keep()
					if err = p.postForwardShard.Err(); err != nil {
						p.postForwardShard = nil
						return
					}
				}
			})
		})
	})
	return err
}

// Unshard all-gathers the unit's parameters and makes the module's tensors the full parameters, until [Unit.Reshard] or until the unit's next
// pass reshards them. It does not wait for the all-gather; later calls on the parameters do.
func (u *Unit) Unshard() error {
	g, err := u.enterGuard()
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
	g, err := u.enterGuard()
	if err != nil {
		return err
	}
	defer g.Leave()
	if err := u.tree.revoked(); err != nil && u.tree.forwardDepth == 0 && !u.tree.recomputing() {
		u.tree.failStep(err)
		return err
	}
	u.manualUnshard = true
	if err := u.allGather(); err != nil {
		u.tree.fail(err) // others may wait for this rank
		return err
	}
	return nil
}

// Reshard frees the full parameters and makes the module's tensors the shards again. During a pass of the unit, the end of the pass does so,
// and while [Unit.Summon] shows them, its end. What the program has changed of the full parameters since [Unit.Unshard], alike on every rank,
// is written to the shards. Reshard returns an error if it cannot be.
func (u *Unit) Reshard() error {
	if u.summoned {
		return nil
	}
	err := u.writeBack()
	u.manualUnshard = false
	if u.activeForwards > 0 || u.inBackward {
		return err
	}
	u.useShards()
	u.freeFull()
	return err
}

// gatherShards all-gathers the ranks' tensors like the shard, such as its gradients. Every rank of the unit calls it.
func (p *parameter) gatherShards(shard *core.Tensor) (full *core.Tensor, err error) {
	core.NoGrad(func() {
		if p.unit.group == nil {
			full = op.Clone(shard.Detach()).Keep()
			err = full.Err()
			return
		}
		d := shard.DType()
		full = op.EmptyWith(p.shape, op.TensorOptions{DType: &d, Device: p.unit.device}).Keep()
		if err = full.Err(); err != nil {
			return
		}
		local, out := p.offered(op.Contiguous(p.unit.cast(shard.Detach(), d))), full
		if p.strided() {
			if out = p.emptyFlat(full); out.Err() != nil {
				err = out.Err()
				return
			}
			defer out.Release()
		}
		err = p.unit.group.For(p.unit.purpose+", "+p.name).AllGatherParts([]*core.Tensor{out}, []*core.Tensor{local}, [][]int{p.sizes}).Arrived()
		if err == nil && out != full {
			core.Tidy(func() { err = p.unpack(full, out) })
		}
	})
	return full, err
}

// whole returns the parameter in full, over all ranks of its mesh, which all call it.
func (p *parameter) whole() (full *core.Tensor, err error) {
	core.NoGrad(func() {
		if t := p.sharded(); t.Parts() != nil {
			full = tensor.Full(t).Keep()
		} else {
			full = op.Clone(t.Detach()).Keep()
		}
	})
	return full, full.Err()
}
