package ddp

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/optim"
)

// A SyncKind is a way in which ranks wait for each other.
type SyncKind uint8

// The ways in which ranks wait for each other.
const (
	// Synchronous averages all ranks' gradients in every step.
	Synchronous SyncKind = iota
	// BoundedStaleness lets a rank be ahead of the slowest by a number of steps (Ho et al. 2013, "More Effective Distributed
	// ML via a Stale Synchronous Parallel Parameter Server").
	BoundedStaleness
	// Asynchronous lets it be ahead by any number.
	Asynchronous
)

var syncKinds = [...]string{"synchronous", "bounded_staleness", "asynchronous"}

func (k SyncKind) String() string { return syncKinds[k] }

// A SyncMode says how ranks wait for each other.
type SyncMode struct {
	Kind SyncKind
	Max  int // of [BoundedStaleness]: the steps that a rank may be ahead of the slowest
}

func (m SyncMode) String() string {
	if m.Kind == BoundedStaleness {
		return fmt.Sprintf("%v(%d)", m.Kind, m.Max)
	}
	return m.Kind.String()
}

// stale reports whether ranks take steps apart. With a bound of 0 none is ever ahead, and they step together.
func (m SyncMode) isAsync() bool {
	return m.Kind == Asynchronous || m.Kind == BoundedStaleness && m.Max > 0
}

// SetSyncMode sets how ranks wait for each other from now on. Every rank calls it, with the same mode, and makes steps with
// [Reducer.Step] thereafter.
//
// Where ranks may be ahead of others, each parameter and its optimiser state have an owner, the rank that keeps them.
// A step sends the rank's gradients, divided by the number of ranks, to the owners, which make one step of the optimiser
// with them, each exactly once and in the order in which they come; it ends with the owners' parameters as they are then.
// The gradients of the rank's batch are those of parameters that lack the latest steps of the others. A rank that has made
// c steps waits in its last one while c - min(steps of any rank) is above the bound. A bound of 0 is the synchronous mode,
// bit for bit.
//
// Setting the synchronous mode, or closing the reducer, waits for all ranks to do so, and gives all of them the owners'
// parameters and optimiser states. o is the rank's optimiser, with the same groups of the reducer's parameters and
// hyperparameters on every rank; an owner takes the hyperparameters that its own rank has at its last step.
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
	if r.async != nil {
		x := r.async
		r.async = nil
		r.mode = SyncMode{}
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

// SyncMode returns how ranks wait for each other.
func (r *Reducer) SyncMode() SyncMode { return r.mode }

// Step makes a step of the optimiser that was given to [Reducer.SetSyncMode].
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

// Clocks returns how many steps each rank has made since the mode was set, as far as this rank knows.
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

// Staleness returns by how many steps, at most, this rank was ahead of the slowest after a step.
func (r *Reducer) Staleness() int {
	if r.async != nil {
		return r.async.maxStaleness
	}
	return 0
}
