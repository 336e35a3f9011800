package optim

import (
	"slices"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
)

// A launched is the part of a step on one device, from its launch until it is known whether it ran. One that did not, since a gradient
// turned out to have failed, or the kernel failed, has changed no parameter and no state. The next step, and who asks for the states, then
// take it back: it does not count, and states that were made for it are dropped.
type launched struct {
	end     core.Event
	skipped atomic.Bool
	before  []before
}

// A before is what a launched step has found of a parameter.
type before struct {
	slot           *slot
	count, carried float64
	made           []string // states that were made for the step
	storage        *core.Storage
	recovery       *core.Event // of the storage
}

// add notes what the step is about to change of it's parameter.
func (l *launched) add(it *item) {
	s, storage := it.slot, it.slot.param.Storage()
	l.before = append(l.before, before{s, s.count, s.carried, it.made, storage, storage.Recovery()})
}

// onSkip is the [core.Call.OnSkip] of the step's launch.
func (l *launched) onSkip(error) { l.skipped.Store(true) }

// recovered reports whether a parameter was made valid again since the launch, as by who gives a failed pass up.
func (l *launched) recovered() bool {
	return slices.ContainsFunc(l.before, func(b before) bool { return b.storage.Recovery() != b.recovery })
}

// undo takes a step back that was skipped. A state that it should have changed is as it was, and valid again.
func (l *launched) undo() {
	for _, b := range l.before {
		if b.slot.count != b.count+1 {
			continue // loaded, or released, since
		}
		b.slot.count, b.slot.carried = b.count, b.carried
		for _, name := range b.made {
			b.slot.states[name].Release()
			delete(b.slot.states, name)
		}
		for _, t := range b.slot.states {
			part(t).Recover()
		}
	}
}

// settle takes back the steps that did not run, as far as is known. It waits for that only after a parameter was recovered: until then the
// failed parameter itself keeps the next step from being made.
func (o *Optimizer) settle() {
	ran := func(l *launched) bool { return l.end.Done() && !l.skipped.Load() }
	o.launches = slices.DeleteFunc(o.launches, ran)
	if slices.ContainsFunc(o.launches, (*launched).recovered) {
		core.WithoutForeignLock(func() {
			for _, l := range o.launches {
				core.WaitOn(l.end, -1)
			}
		})
	}
	for n := len(o.launches) - 1; n >= 0 && o.launches[n].end.Done(); n-- { // the last first: each knows what it found
		if o.launches[n].skipped.Load() {
			o.launches[n].undo()
		}
		o.launches = o.launches[:n]
	}
}
