package fsdp

import (
	"errors"

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
}

// Summon gathers the parameters of all units of u's tree and runs fn, in which the module's tensors are the full ones, in the
// dtype of the shards unless a policy of mixed precision says another. Every rank calls it, outside of passes.
func (u *Unit) Summon(o SummonOptions, fn func() error) error {
	if err := u.SummonBegin(o); err != nil {
		return err
	}
	return errors.Join(fn(), u.SummonEnd(o))
}

// SummonBegin begins what [Unit.SummonEnd] ends: see [Unit.Summon].
func (u *Unit) SummonBegin(o SummonOptions) error {
	for _, x := range u.summoned(o) {
		if x.using > 0 || x.back {
			return core.Errorf(core.StateError, "summon_full_params", "the unit %q is in the middle of a pass", x.Name())
		}
	}
	for _, x := range u.summoned(o) {
		if err := x.Unshard(); err != nil {
			return errors.Join(err, u.SummonEnd(SummonOptions{ReadOnly: true, Alone: o.Alone}))
		}
		if !o.ReadOnly {
			for _, p := range x.params {
				p.shown = p.full().Storage().Version()
			}
		}
	}
	return nil
}

// SummonEnd writes changed full parameters back, and frees them.
func (u *Unit) SummonEnd(o SummonOptions) error {
	var err error
	for _, x := range u.summoned(o) {
		if !o.ReadOnly && x.open {
			err = errors.Join(err, x.writeBack())
		}
		x.Reshard()
	}
	return err
}

func (u *Unit) summoned(o SummonOptions) []*Unit {
	if o.Alone || u.tree == nil {
		return []*Unit{u}
	}
	return u.tree.Units()
}

// writeBack copies the rank's rows of full parameters that were changed to the shards.
func (u *Unit) writeBack() (err error) {
	core.NoGrad(func() {
		core.Tidy(func() {
			for _, p := range u.params {
				if p.full().Storage().Version() == p.shown {
					continue
				}
				if err = op.CopyInPlace(p.shard().Detach(), p.mine(p.full().Detach())).Err(); err != nil {
					return
				}
			}
		})
	})
	return err
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
