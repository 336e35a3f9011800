package fsdp

import (
	"errors"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
)

// SummonOptions say how full parameters are shown.
type SummonOptions struct {
	// ReadOnly leaves the shards as they are; otherwise changes of full parameters in place, which must be the same on every
	// rank, go back to the shards.
	ReadOnly bool
	// Alone shows the unit itself, and not the others of its tree.
	Alone bool
	// Gradients shows the full gradients too, where shards have some; changes go back as those of parameters do.
	Gradients bool
	// First shows them on the first rank alone; it needs ReadOnly. The others have their shards.
	First bool
	// Device is where the full tensors are shown, one unit at a time moved there; nil means where they are gathered.
	Device core.Device
}

// Summon gathers the parameters of all units of u's tree and runs fn, in which the module's tensors are the full ones, in the
// dtype of the shards, whatever a policy of mixed precision says. Every rank calls it, outside of passes. Until fn has returned, other
// threads that use the tree get an error.
func (u *Unit) Summon(o SummonOptions, fn func() error) error {
	g, err := u.use() // fn stays on this thread
	if err != nil {
		return err
	}
	defer g.Leave()
	if err := u.SummonBegin(o); err != nil {
		return err
	}
	return errors.Join(fn(), u.SummonEnd(o))
}

// SummonBegin begins what [Unit.SummonEnd] ends, on the same thread: see [Unit.Summon].
func (u *Unit) SummonBegin(o SummonOptions) error {
	g, err := u.use()
	if err != nil {
		return err
	}
	defer g.Leave()
	if o.First && !o.ReadOnly {
		return core.Errorf(core.ValueError, "summon_full_params", "full parameters that one rank alone has cannot be written back")
	}
	for _, x := range u.summoned(o) {
		if x.using > 0 || x.back {
			return core.Errorf(core.StateError, "summon_full_params", "the unit %q is in the middle of a pass", x.Name())
		}
		if o.Gradients && !x.replicated() && x.pending() {
			return core.Errorf(core.StateError, "summon_full_params", "the unit %q has gradients that are this rank's alone, of passes without synchronisation; want a pass with it before they are shown", x.Name())
		}
	}
	// Otherwise another thread would compute with what is shown, and might keep SummonEnd from ending it.
	g.Begin()
	u.summons++
	for _, x := range u.summoned(o) {
		if err := x.reveal(o); err != nil {
			o.ReadOnly = true
			return errors.Join(err, u.SummonEnd(o))
		}
	}
	return nil
}

// reveal is SummonBegin of one unit.
func (u *Unit) reveal(o SummonOptions) error {
	err := u.Unshard()
	first := !o.First || u.rank() == 0 && (u.options.Replicas == nil || u.options.Replicas.Rank() == 0)
	for _, p := range u.params {
		if g := p.shard().Grad(); err == nil && o.Gradients && g != nil && !u.replicated() {
			var full *core.Tensor
			if full, err = p.assemble(g); err == nil {
				p.full().SetGrad(full)
			}
		}
	}
	precise := make([]*core.Tensor, len(u.params)) // where the unit computes in another dtype than that of its shards
	defer func() {
		for _, t := range precise {
			t.Release()
		}
	}()
	for i, p := range u.params {
		if err == nil && p.full().DType() != p.shard().DType() {
			core.WithCategory(core.Communication, func() { precise[i], err = p.assemble(p.shard()) })
		}
	}
	if err != nil {
		return err
	}
	if !first {
		u.conceal(SummonOptions{ReadOnly: true})
		return nil
	}
	for i, p := range u.params {
		if precise[i] != nil || o.Device != nil && o.Device != u.device {
			if err := p.borrow(o.Device, precise[i]); err != nil {
				return err
			}
		}
		p.shown = p.tensor.Storage().Version()
		if g := p.tensor.Grad(); g != nil {
			p.shownGrad = g.Storage().Version()
		}
	}
	return nil
}

// borrow puts a copy of the full parameter, or of precise if that is not nil, in the module's place of it, on a device unless that is
// nil.
func (p *parameter) borrow(dev core.Device, precise *core.Tensor) (err error) {
	if dev == nil {
		dev = p.unit.device
	}
	if precise == nil {
		precise = p.tensor.Detach()
		defer precise.Release()
	}
	core.NoGrad(func() {
		core.WithCategory(core.Communication, func() {
			copied := precise.Detach()
			if dev != precise.Device() {
				copied = op.ToDevice(precise, dev)
			}
			copied.Keep()
			if err = copied.Err(); err != nil {
				return
			}
			copied.SetRequiresGrad(p.tensor.RequiresGrad())
			if g := p.tensor.Grad(); g != nil {
				moved := op.ToDevice(g.Detach(), dev).Keep()
				if err = moved.Err(); err != nil {
					copied.Release()
					return
				}
				copied.SetGrad(moved)
			}
			if err = p.tensor.Exchange(copied); err != nil {
				copied.Release()
				return
			}
			p.lent = copied // by now the full parameter
			if !p.unit.replicated() {
				p.lent.Storage().Empty()
			}
		})
	})
	return err
}

// lends reports whether copies of the full parameters are shown.
func (u *Unit) lends() bool {
	return slices.ContainsFunc(u.params, func(p *parameter) bool { return p.lent != nil })
}

// computes returns an error if passes cannot go through the unit, since what is shown is not what it computes with.
func (u *Unit) computes() error {
	if !u.lends() {
		return nil
	}
	return core.Errorf(core.StateError, "summon_full_params", "the full parameters of the unit %q are shown in another dtype, or on another device, than it computes with: run forward and backward passes outside of it", u.Name())
}

// SummonEnd writes changed full parameters back, and frees them.
func (u *Unit) SummonEnd(o SummonOptions) error {
	g, err := u.use()
	if err != nil {
		return err
	}
	defer g.Leave()
	if u.summons > 0 {
		u.summons--
		defer g.End()
	}
	for _, x := range u.summoned(o) {
		err = errors.Join(err, x.conceal(o))
	}
	return err
}

// conceal is SummonEnd of one unit.
func (u *Unit) conceal(o SummonOptions) (err error) {
	core.NoGrad(func() {
		core.Tidy(func() {
			for _, p := range u.params {
				shown, grad := p.tensor.Detach(), p.tensor.Grad()
				version := p.tensor.Storage().Version()
				if p.lent != nil {
					err = errors.Join(err, p.tensor.Exchange(p.lent))
				}
				if !o.ReadOnly && (u.open || p.lent != nil) && version != p.shown {
					err = errors.Join(err, op.CopyInPlace(p.shard().Detach(), p.mine(shown)).Err())
				}
				if own := p.shard().Grad(); !o.ReadOnly && o.Gradients && grad != nil && own != nil && own != grad && grad.Storage().Version() != p.shownGrad {
					err = errors.Join(err, op.CopyInPlace(own, p.mine(grad)).Err())
				}
				if o.Gradients && !u.replicated() {
					p.full().SetGrad(nil)
				}
				if p.lent != nil {
					p.lent.Release()
					p.lent = nil
				}
			}
		})
	})
	u.Reshard()
	return err
}

func (u *Unit) summoned(o SummonOptions) []*Unit {
	if o.Alone || u.tree == nil {
		return []*Unit{u}
	}
	return u.tree.Units()
}

// Summon runs fn with the module's parameters in full: see [Unit.Summon].
func (f *FullyShardedDataParallel) Summon(o SummonOptions, fn func() error) error {
	return f.tree.root().Summon(o, fn)
}

// FullStateDict returns the module's state with full parameters, one at a time gathered and moved to the device to, or left
// where they are if it is nil. Every rank calls it; with rank0 only the first gets the state, and the others an empty one.
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
			if full, err = p.assemble(p.shard()); err != nil {
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

// Load copies a state dict with full parameters, which every rank has, into the module: see [nn.LoadStateDict].
func (f *FullyShardedDataParallel) Load(state map[string]*core.Tensor, strict bool) (nn.Report, error) {
	var report nn.Report
	err := f.Summon(SummonOptions{}, func() (err error) {
		report, err = nn.LoadStateDict(f.Module, state, strict)
		return err
	})
	return report, err
}
