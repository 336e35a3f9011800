package fsdp

import (
	"errors"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
)

// SummonOptions configure [Unit.Summon], which is PyTorch's summon_full_params.
type SummonOptions struct {
	// ReadOnly turns writing back off. Otherwise in-place changes of full parameters, which must be the same on every rank, are written to
	// the shards.
	ReadOnly bool
	// Alone summons the unit only, without the other units of its tree.
	Alone bool
	// Gradients also shows full gradients. Changes of them are written back too.
	Gradients bool
	// First shows full parameters on the first rank only. The other ranks keep their shards. It requires ReadOnly.
	First bool
	// Device is the device of the shown tensors. Units are moved there one at a time. Nil means the device of computation.
	Device core.Device
}

// Summon unshards all units of u's tree and runs fn, in which the module's tensors are the full parameters. They have the dtype
// of the shards, also with mixed precision. Every rank calls it, outside of passes. Until fn returns, other threads that use the
// tree get an error.
func (u *Unit) Summon(o SummonOptions, fn func() error) error {
	g, err := u.enterGuard() // fn stays on this thread
	if err != nil {
		return err
	}
	defer g.Leave()
	if err := u.SummonBegin(o); err != nil {
		return err
	}
	return errors.Join(fn(), u.SummonEnd(o))
}

// SummonBegin is the first half of [Unit.Summon]. [Unit.SummonEnd] must follow on the same thread.
func (u *Unit) SummonBegin(o SummonOptions) error {
	g, err := u.enterGuard()
	if err != nil {
		return err
	}
	defer g.Leave()
	if o.First && !o.ReadOnly {
		return core.Errorf(core.ValueError, "summon_full_params", "full parameters that one rank alone has cannot be written back")
	}
	for _, x := range u.unitsToSummon(o) {
		if x.activeForwards > 0 || x.inBackward {
			return core.Errorf(core.StateError, "summon_full_params", "the unit %q is in the middle of a pass", x.Name())
		}
		if o.Gradients && !x.replicated() && x.hasUnreducedGradients() {
			return core.Errorf(core.StateError, "summon_full_params", "the unit %q has gradients that are this rank's alone, of passes without synchronisation; want a pass with it before they are shown", x.Name())
		}
	}
	// Other threads must neither compute with the shown tensors nor delay SummonEnd.
	g.Begin()
	u.activeSummons++
	for _, x := range u.unitsToSummon(o) {
		if err := x.summon(o); err != nil {
			o.ReadOnly = true
			return errors.Join(err, u.SummonEnd(o))
		}
	}
	return nil
}

// summon is SummonBegin for one unit.
func (u *Unit) summon(o SummonOptions) error {
	if err := u.writeBack(); err != nil {
		return err
	}
	u.summoned = true
	err := u.Unshard()
	first := !o.First || u.rank() == 0 && (u.options.Replicas == nil || u.options.Replicas.Rank() == 0)
	for _, p := range u.params {
		if g := p.shard().Grad(); err == nil && o.Gradients && g != nil && !u.replicated() {
			var full *core.Tensor
			if full, err = p.gatherShards(g); err == nil {
				p.full().SetGrad(full)
			}
		}
	}
	uncast := make([]*core.Tensor, len(u.params)) // with mixed precision, full parameters in the dtype of the shards
	defer func() {
		for _, t := range uncast {
			t.Release()
		}
	}()
	for i, p := range u.params {
		if err == nil && p.full().DType() != p.shard().DType() {
			core.WithCategory(core.Communication, func() { uncast[i], err = p.gatherShards(p.shard()) })
		}
	}
	if err != nil {
		return err
	}
	if !first {
		u.unsummon(SummonOptions{ReadOnly: true})
		return nil
	}
	for i, p := range u.params {
		if uncast[i] != nil || o.Device != nil && o.Device != u.device {
			if err := p.showCopy(o.Device, uncast[i]); err != nil {
				return err
			}
		}
		p.shownVersion = versionOf(part(p.tensor))
		if g := part(p.tensor).Grad(); g != nil {
			p.shownGradVersion = g.Storage().Version()
		}
	}
	return nil
}

// showCopy replaces the module's tensor, the full parameter, by a copy of uncast on device dev. A nil uncast means the full
// parameter, and a nil dev the unit's device.
func (p *parameter) showCopy(dev core.Device, uncast *core.Tensor) (err error) {
	if dev == nil {
		dev = p.unit.device
	}
	if uncast == nil {
		uncast = part(p.tensor).Detach()
		defer uncast.Release()
	}
	core.NoGrad(func() {
		core.WithCategory(core.Communication, func() {
			shown := uncast.Detach()
			if dev != uncast.Device() {
				shown = op.ToDevice(uncast, dev)
			}
			shown.Keep()
			if err = shown.Err(); err != nil {
				return
			}
			shown.SetRequiresGrad(p.tensor.RequiresGrad())
			if g := part(p.tensor).Grad(); g != nil {
				moved := op.ToDevice(g.Detach(), dev).Keep()
				if err = moved.Err(); err != nil {
					shown.Release()
					return
				}
				shown.SetGrad(moved)
			}
			if q := p.tensor.Parts(); q != nil {
				shown = q.With(shown).Keep()
			}
			if err = p.tensor.Exchange(shown); err != nil {
				shown.Release()
				return
			}
			p.hiddenFull = shown // after the exchange this is the full parameter
			if p.unit.group != nil {
				part(p.hiddenFull).Storage().Empty()
			}
		})
	})
	return err
}

// showsCopies reports whether the module's tensors are copies made by showCopy.
func (u *Unit) showsCopies() bool {
	return slices.ContainsFunc(u.params, func(p *parameter) bool { return p.hiddenFull != nil })
}

// checkNoCopiesShown returns an error if the module's tensors are copies made by showCopy, because the unit does not compute with
// those.
func (u *Unit) checkNoCopiesShown() error {
	if !u.showsCopies() {
		return nil
	}
	return core.Errorf(core.StateError, "summon_full_params", "the full parameters of the unit %q are shown in another dtype, or on another device, than it computes with: run forward and backward passes outside of it", u.Name())
}

// SummonEnd writes changed full parameters back to the shards, and reshards.
func (u *Unit) SummonEnd(o SummonOptions) error {
	g, err := u.enterGuard()
	if err != nil {
		return err
	}
	defer g.Leave()
	if u.activeSummons > 0 {
		u.activeSummons--
		defer g.End()
	}
	for _, x := range u.unitsToSummon(o) {
		err = errors.Join(err, x.unsummon(o))
	}
	return err
}

// unsummon is SummonEnd for one unit.
func (u *Unit) unsummon(o SummonOptions) (err error) {
	core.NoGrad(func() {
		core.Tidy(func() {
			for _, p := range u.params {
				now := part(p.tensor)
				shown, grad := now.Detach(), now.Grad()
				version := versionOf(now)
				if p.hiddenFull != nil {
					err = errors.Join(err, p.tensor.Exchange(p.hiddenFull))
				}
				if !o.ReadOnly && (u.usesFull && !u.alone || p.hiddenFull != nil) && version != p.shownVersion {
					err = errors.Join(err, op.CopyInPlace(p.shard().Detach(), p.localView(shown)).Err())
				}
				if own := p.shard().Grad(); !o.ReadOnly && o.Gradients && grad != nil && own != nil && own != grad && grad.Storage().Version() != p.shownGradVersion {
					err = errors.Join(err, op.CopyInPlace(own, p.localView(grad)).Err())
				}
				if o.Gradients && !u.replicated() {
					p.full().SetGrad(nil)
				}
				if p.hiddenFull != nil {
					p.hiddenFull.Release()
					p.hiddenFull = nil
				}
				if u.usesFull && !u.alone {
					p.reclaimFull()
					p.gatheredTo = versionOf(p.full())
					p.written = p.gatheredTo
				}
			}
		})
	})
	u.summoned, u.manualUnshard = false, false // what was changed is written already
	return errors.Join(err, u.Reshard())
}

// unitsToSummon returns the units that Summon unshards.
func (u *Unit) unitsToSummon(o SummonOptions) []*Unit {
	if o.Alone || u.tree == nil {
		return []*Unit{u}
	}
	return u.tree.Units()
}

// Summon runs fn while the module's tensors are the full parameters: see [Unit.Summon].
func (f *FullyShardedDataParallel) Summon(o SummonOptions, fn func() error) error {
	return f.tree.root().Summon(o, fn)
}

// FullStateDict returns the module's state dict with full parameters. It gathers one parameter at a time and moves it to device
// to, unless that is nil. Every rank calls it. With rank0 only the first rank gets the state dict, and the others an empty one.
func (f *FullyShardedDataParallel) FullStateDict(to core.Device, rank0 bool) (map[string]*core.Tensor, error) {
	state := map[string]*core.Tensor{}
	owner := map[*core.Tensor]*parameter{}
	first := true
	for _, u := range f.units {
		for _, p := range u.params {
			owner[p.tensor] = p
		}
		first = first && u.rank() == 0
	}
	for _, n := range nn.NamedTensors(f.Module) {
		if n.Kind == nn.Transient {
			continue
		}
		full := n.Tensor.Detach().Keep()
		if p := owner[n.Tensor]; p != nil {
			full.Release()
			var err error
			if full, err = p.whole(); err != nil {
				return nil, err
			}
		}
		if rank0 && !first {
			full.Release()
			continue
		}
		if to != nil && full.Device() != to {
			moved := op.ToDevice(full, to).Keep()
			full.Release()
			if full = moved; full.Err() != nil {
				return nil, full.Err()
			}
		}
		state[n.Name] = full
	}
	return state, nil
}

// Load loads a state dict with full parameters, which every rank has, into the module: see [nn.LoadStateDict].
func (f *FullyShardedDataParallel) Load(state map[string]*core.Tensor, strict bool) (nn.Report, error) {
	var report nn.Report
	err := f.Summon(SummonOptions{}, func() (err error) {
		report, err = nn.LoadStateDict(f.Module, state, strict)
		return err
	})
	return report, err
}
