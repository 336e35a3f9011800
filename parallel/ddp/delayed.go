package ddp

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// prepareDelayed checks [Options.Delayed] and marks its parameters.
func (r *Reducer) prepareDelayed() error {
	o := r.options
	switch {
	case (len(o.Delayed) == 0) != (o.Until == nil):
		return core.Errorf(core.ValueError, "ddp", "parameters whose reduction is delayed, and the one that they wait for, want one another; got %d and %v", len(o.Delayed), o.Until)
	case o.Until == nil:
		return nil
	}
	if err := o.Until.Usable("ddp"); err != nil {
		return err
	}
	if !o.Until.IsLeaf() || !o.Until.RequiresGrad() {
		return core.Errorf(core.ValueError, "ddp", "what delayed parameters wait for must be a parameter that requires a gradient, got %v", o.Until)
	}
	for i, t := range o.Delayed {
		at := slices.IndexFunc(r.params, func(p *parameter) bool { return p.Tensor == t })
		if at < 0 {
			return core.Errorf(core.ValueError, "ddp", "delayed parameter %d is not one of the module", i)
		}
		r.params[at].delayed = true
	}
	return nil
}

// untilReady is the post-accumulate-grad hook of [Options.Until]. It reduces the delayed parameters.
func (r *Reducer) untilReady() error {
	if err := r.guard.Enter("ddp"); err != nil {
		return err
	}
	defer r.guard.Leave()
	if !r.syncBackward || r.mode.isAsync() {
		return nil
	}
	if err := r.beginBackward(); err != nil {
		return err
	}
	for _, b := range r.buckets {
		if b.delayed && b.pending == 0 {
			return core.Errorf(core.StateError, "ddp", "the parameter that the delayed ones wait for got its gradient twice in one step on rank %d", r.group.Rank())
		}
	}
	return r.markDelayed()
}

// markDelayed marks the delayed buckets as ready and reduces them when all others before them are.
func (r *Reducer) markDelayed() error {
	for _, b := range r.buckets {
		if b.delayed && b.pending > 0 {
			b.pending = 0
			r.pass.remaining--
		}
	}
	if r.delaysReduction() {
		return nil
	}
	return r.reduceReadyBuckets()
}
