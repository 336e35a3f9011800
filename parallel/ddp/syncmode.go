package ddp

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/optim"
)

// A SyncKind is a kind of synchronisation between ranks.
type SyncKind uint8

// The kinds of synchronisation.
const (
	// Synchronous averages the gradients of all ranks in every step.
	Synchronous SyncKind = iota
	// BoundedStaleness lets a rank be a limited number of steps ahead of the slowest (Ho et al. 2013, "More Effective Distributed ML via a
	// Stale Synchronous Parallel Parameter Server").
	BoundedStaleness
	// Asynchronous lets a rank be any number of steps ahead.
	Asynchronous
)

var syncKinds = [...]string{"synchronous", "bounded_staleness", "asynchronous"}

func (k SyncKind) String() string { return syncKinds[k] }

// A SyncMode says whether ranks make their steps together, and otherwise how far one may be ahead.
type SyncMode struct {
	Kind SyncKind
	Max  int // with BoundedStaleness, the steps that a rank may be ahead of the slowest
}

func (m SyncMode) String() string {
	if m.Kind == BoundedStaleness {
		return fmt.Sprintf("%v(%d)", m.Kind, m.Max)
	}
	return m.Kind.String()
}

// isAsync reports whether ranks make steps without waiting for all others. A bound of 0 is synchronous training.
func (m SyncMode) isAsync() bool {
	return m.Kind == Asynchronous || m.Kind == BoundedStaleness && m.Max > 0
}

// SetSyncMode sets the synchronisation mode. Every rank calls it with the same mode and then makes its steps with [Reducer.Step]. o is the
// rank's optimiser. On every rank it must have the same groups, of the reducer's parameters, and the same hyperparameters.
//
// The asynchronous modes use a parameter server on every rank. Each parameter has an owner, the rank that holds its master copy and its
// optimiser state. In a step, a rank pushes its gradients, divided by the number of ranks, to the owners. An owner makes one optimiser step
// with each rank's gradients, in the order of arrival, with the hyperparameters that its own rank had in its last step. The rank then pulls
// the current parameters. Its next gradients may therefore lack the latest steps of other ranks. With [BoundedStaleness], a rank's step waits
// while the rank is more than Max steps ahead of the slowest. A bound of 0 has the bits of the synchronous mode.
//
// Setting the synchronous mode, or closing the reducer, waits until all ranks do the same, and gives all ranks the owners' parameters and
// optimiser states.
func (r *Reducer) SetSyncMode(m SyncMode, o *optim.Optimizer) error {
	if err := r.guard.Enter("ddp"); err != nil {
		return err
	}
	defer r.guard.Leave()
	switch {
	case m.Kind > Asynchronous:
		return core.Errorf(core.ValueError, "set_sync_mode", "unknown mode %d", m.Kind)
	case m.Max < 0:
		return core.Errorf(core.ValueError, "set_sync_mode", "the bound on staleness must be 0 or more, got %d", m.Max)
	case r.join != nil:
		return core.Errorf(core.StateError, "set_sync_mode", "the rank is in a join")
	case m.isAsync() && (r.hook != nil || r.foreignHook != 0):
		return core.Errorf(core.StateError, "set_sync_mode", "communication hooks are for the synchronous mode")
	case m.isAsync() && o == nil:
		return core.Errorf(core.TypeError, "set_sync_mode", "got no optimiser")
	}
	if x := r.async; x != nil {
		r.async, r.mode = nil, SyncMode{}
		if err := x.leave(); err != nil {
			return err
		}
	}
	r.mode, r.optimizer, r.pass = m, o, nil
	if !m.isAsync() {
		return nil
	}
	x, err := newAsyncClient(r, m, o)
	if err != nil {
		r.mode = SyncMode{}
		return err
	}
	r.async = x
	return nil
}

// SyncMode returns the synchronisation mode.
func (r *Reducer) SyncMode() SyncMode { return r.mode }

// Step makes a step with the optimiser that was given to [Reducer.SetSyncMode].
func (r *Reducer) Step() error {
	if err := r.guard.Enter("ddp"); err != nil {
		return err
	}
	defer r.guard.Leave()
	if r.async != nil {
		return r.async.step()
	}
	if r.optimizer == nil {
		return core.Errorf(core.StateError, "ddp", "there is no optimiser: call SetSyncMode first, or its own Step")
	}
	if err := r.optimizer.Step(); err != nil {
		return err
	}
	r.steps++
	return nil
}

// Clocks returns the number of steps that each rank has made since the mode was set, as far as this rank knows.
func (r *Reducer) Clocks() []int {
	out := make([]int, r.group.Size())
	if r.async != nil {
		copy(out, r.async.clocks)
		return out
	}
	for i := range out {
		out[i] = r.steps
	}
	return out
}

// Staleness returns the largest number of steps that this rank was ahead of the slowest after a step.
func (r *Reducer) Staleness() int {
	if r.async != nil {
		return r.async.maxStaleness
	}
	return 0
}
