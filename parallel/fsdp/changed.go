package fsdp

import (
	"log"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// What a program changes of a module's tensors besides their values: the dtype or the device of the shards, as by Module.to, and the full
// parameters while they are gathered.

// computeDType returns the dtype of the full parameter whose shard has dtype d.
func (u *Unit) computeDType(d core.DType) core.DType {
	if o := u.options.Precision.Param; o != nil && d.IsFloat() {
		return *o
	}
	return d
}

// shardDevice returns the device of the shards.
func (u *Unit) shardDevice() core.Device {
	if o := u.options.Offload; o != nil {
		return o
	}
	return u.device
}

// followShards makes the full parameters fit the shards if their dtype or device has changed since the last all-gather. The full parameters
// are not gathered.
func (u *Unit) followShards() error {
	for _, p := range u.params {
		if dev := p.shard().Device(); dev != u.shardDevice() {
			if err := u.moveTo(p, dev); err != nil {
				return err
			}
		}
	}
	for _, p := range u.params {
		if d := u.computeDType(p.shard().DType()); d != p.full().DType() {
			if err := p.renewFull(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// moveTo makes the unit compute on dev, where the shard of p is. All other shards must be there too.
func (u *Unit) moveTo(p *parameter, dev core.Device) error {
	if u.options.Offload != nil {
		return core.Errorf(core.DeviceError, "fsdp", "parameter %s was moved to %v, but the unit %q keeps its shards on %v: move it back, or shard the module without offloading", p.name, dev, u.Name(), u.shardDevice())
	}
	for _, q := range u.params {
		if d := q.shard().Device(); d != dev {
			return core.Errorf(core.DeviceError, "fsdp", "want all parameters of the unit %q on one device, got %s on %v and %s on %v", u.Name(), p.name, dev, q.name, d)
		}
	}
	u.device, u.stream, u.shardsReady = dev, core.CurrentContext().Stream(dev), nil
	for _, q := range u.params {
		if err := q.renewFull(u.computeDType(q.shard().DType())); err != nil {
			return err
		}
	}
	return nil
}

// fullTensor returns the full parameter, a distributed tensor if the parameter was one before it was sharded.
func (p *parameter) fullTensor() *core.Tensor {
	if p.unit.usesFull {
		return p.tensor
	}
	return p.other
}

// renewFull gives the full parameter a storage without memory, of dtype d on the unit's stream.
func (p *parameter) renewFull(d core.DType) error {
	made := core.NewEmptied(core.CurrentMode(), p.unit.stream, d, p.shape, core.Communication).Keep()
	full := p.fullTensor()
	if q := full.Parts(); q != nil {
		made = q.With(made).Keep()
	}
	defer made.Release()
	return full.Adopt(made)
}

// changed reports whether the program has written to the full parameter since the all-gather, or has given it other memory.
func (p *parameter) changed() bool { return versionOf(p.full()) != p.written }

// writeBack writes what the program has changed of the full parameters, since [Unit.Unshard] has shown them, to the shards.
func (u *Unit) writeBack() error {
	if !u.manualUnshard || !u.usesFull || u.summoned || u.replicated() {
		return nil
	}
	for _, p := range u.params {
		if on := p.full().RequiresGrad(); on != p.shard().RequiresGrad() {
			p.shard().SetRequiresGrad(on)
		}
		if !u.alone && p.changed() {
			if err := p.writeBack(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *parameter) writeBack() (err error) {
	full, shard := p.full(), p.shard()
	if want := p.unit.computeDType(shard.DType()); !slices.Equal(full.Shape(), p.shape) || full.DType() != want {
		return core.Errorf(core.ShapeError, "reshard", "parameter %s was given other data while it was gathered, %v%v in place of %v%v: this cannot be sharded; change a parameter's dtype while it is sharded",
			p.name, full.DType(), full.Shape(), want, p.shape)
	}
	core.NoGrad(func() {
		core.Tidy(func() {
			now, own := p.localView(full.Detach()), shard.Detach()
			if full.DType() != own.DType() {
				// Elements that have not changed keep the precision of the shard.
				was := p.unit.cast(own, full.DType())
				now = op.Where(op.Ne(now, was), op.To(now, own.DType()), p.unit.cast(own, own.DType()))
			}
			err = op.CopyInPlace(own, now).Err()
		})
	})
	p.written = versionOf(full)
	return err
}

// disownFull runs when the full parameter is the module's tensor no more. It says once that a change in a pass is lost.
func (p *parameter) disownFull() {
	switch {
	case !p.unit.gathered:
		return
	case p.unit.alone:
		if err := p.shareMemory(p.tensor, p.other); err != nil {
			log.Printf("plait: %v", err)
		}
		return
	}
	if p.changed() && !p.warned {
		p.warned = true
		log.Printf("plait: parameter %s of the fully sharded unit %q was changed in place in a pass: that changes gathered memory, which is freed after the pass, and not the shards; change it between passes", p.name, p.unit.Name())
	}
	p.reclaimFull()
}

// reclaimFull leaves memory that the program has put in place of the full parameter's to the program.
func (p *parameter) reclaimFull() {
	if now := versionOf(p.full()); now.storage == p.gatheredTo.storage && now.life == p.gatheredTo.life {
		return
	}
	if err := p.renewFull(p.unit.computeDType(p.shard().DType())); err != nil {
		log.Printf("plait: parameter %s: %v", p.name, err)
	}
}

// ShardGradient returns the averaged gradient of t, one of the module's tensors, while [Unit.Unshard] shows its full parameter: a distributed
// tensor, like the shard. It is nil if there is none, or if t is the shard itself.
func (u *Unit) ShardGradient(t *core.Tensor) *core.Tensor {
	if !u.showsShardGradients() {
		return nil
	}
	for _, p := range u.params {
		if p.tensor == t {
			return p.other.Grad()
		}
	}
	return nil
}

// showsShardGradients reports whether [Unit.Unshard] shows the full parameters: their gradients are those of the shards.
func (u *Unit) showsShardGradients() bool {
	return u.usesFull && u.manualUnshard && !u.summoned && u.activeForwards == 0 && !u.inBackward
}

// showShards is [Unit.allGather] on the only rank of a group: the full parameters are the shards' memory.
func (u *Unit) showShards() error {
	u.gathered = true
	for _, p := range u.params {
		if err := p.shard().Usable("fsdp"); err != nil {
			return core.Errorf(core.StateError, "fsdp", "parameter %s: %w", p.name, err)
		}
		if err := core.RefuseTangent("fsdp", p.shard()); err != nil {
			return err
		}
		if err := p.shareMemory(p.fullTensor(), p.sharded()); err != nil {
			return err
		}
		p.gatheredFrom = versionOf(p.shard())
		if on := p.shard().RequiresGrad(); on != p.full().RequiresGrad() {
			p.full().SetRequiresGrad(on)
		}
	}
	return nil
}

// shareMemory gives to the memory of from, if the program has given that other memory. One is the shard, the other the full parameter.
func (p *parameter) shareMemory(to, from *core.Tensor) error {
	now, old := part(from), part(to)
	if now.Storage() == old.Storage() && now.DType() == old.DType() {
		return nil
	}
	if !slices.Equal(now.Shape(), p.shape) {
		return core.Errorf(core.ShapeError, "fsdp", "parameter %s of shape %v was given data of shape %v", p.name, p.shape, now.Shape())
	}
	p.unit.device, p.unit.stream = now.Device(), now.Storage().Stream()
	if q := to.Parts(); q != nil {
		with := q.With(now.Detach()).Keep()
		defer with.Release()
		return to.Adopt(with)
	}
	return to.Adopt(now)
}
