package fsdp

import (
	"errors"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/parallel/collective"
)

// A Tree holds the units of one model and orders their all-gathers and reduce-scatters. The first unit is the root: its forward pass
// contains the forward passes of all others.
type Tree struct {
	guard        *core.Guard
	units        []*Unit
	streams      map[core.Device]core.Stream   // for casts and sums of communication, which computation need not wait for
	sideContexts map[core.Device]*core.Context // contexts on those streams, for communication hooks in another language

	depth  int     // nesting depth of the units' forward passes that are running
	order  []*Unit // units in the order in which the last forward pass reached them
	at     int     // index in order that this forward pass has reached
	coming []*Unit // units that this forward pass has reached: the next order
	ended  []*Unit // units in the order in which forward left them; backward goes through them from the end
	done   int     // index in ended that backward has reached

	arriving map[*core.AutogradMeta][]func() error // functions to run once the gradients of units' inputs are known
	deferred []*Unit                               // deferred prefetches, which need a free slot
	runs     []*autograd.Run                       // backward passes in progress
	resting  []*autograd.Run                       // backward passes that pause after their first part
	fetched  []fetched
	held     []*core.Tensor // full gradients that are being reduced
	works    [2][]awaited
	groups   []*passGroup
	late     []*collective.Work // exchanges at the end of backward passes that this rank has not waited for
	open     []*autograd.Run    // backward passes that some rank has not ended
	counted  *autograd.Run      // the step's last backward pass that all ranks have ended
	fault    error              // of the forward pass in progress
	failure  error              // of the last step, until the next one begins
	buffers  []*core.Tensor     // see SetBuffers
}

// NewTree makes a tree of units; units[0] is the root. Units of other trees move to the new one, which is allowed between passes only.
func NewTree(units []*Unit) (*Tree, error) {
	if len(units) == 0 {
		return nil, core.Errorf(core.ValueError, "fsdp", "got no units")
	}
	t := &Tree{guard: &core.Guard{}, streams: map[core.Device]core.Stream{}, sideContexts: map[core.Device]*core.Context{}, arriving: map[*core.AutogradMeta][]func() error{}}
	if err := t.guard.Enter("fsdp"); err != nil {
		return nil, err
	}
	defer t.guard.Leave()
	for _, u := range units {
		if g, err := u.use(); err != nil {
			return nil, err
		} else if g != nil {
			defer g.Leave()
		}
		if u.closed {
			return nil, core.Errorf(core.StateError, "fsdp", "the unit %q was closed", u.Name())
		}
		if slices.Contains(t.units, u) {
			continue
		}
		if old := u.tree; old != nil {
			if err := old.leave(u); err != nil {
				return nil, err
			}
		}
		u.tree = t
		for _, g := range []*collective.Group{u.group, u.options.Replicas, u.nearby} {
			if g != nil {
				t.passGroup(g) // every rank creates the channels in the same order
			}
		}
		u.guard.Store(t.guard)
		t.units = append(t.units, u)
	}
	return t, nil
}

// Units returns the units, the root first.
func (t *Tree) Units() []*Unit { return slices.Clone(t.units) }

// forget removes a unit.
func (t *Tree) forget(u *Unit) {
	t.units = slices.DeleteFunc(t.units, func(o *Unit) bool { return o == u })
	t.order, t.ended, t.coming, t.deferred = nil, nil, nil, nil
	u.tree = nil
}

// leave removes a unit. Without units the tree ends: it waits for collectives, and frees streams and contexts.
func (t *Tree) leave(u *Unit) error {
	t.forget(u)
	if len(t.units) > 0 {
		return nil
	}
	err := t.Wait()
	t.releaseHeld()
	t.dropBuffers()
	for _, c := range t.sideContexts {
		c.Free()
	}
	for _, s := range t.streams {
		if e := s.Close(); !collective.IsRevoked(e) { // backward has reported a revocation
			err = errors.Join(err, e)
		}
	}
	t.streams, t.sideContexts = nil, nil
	return err
}

// onSideStream runs fn on the tree's own stream of a device, so that computation does not wait for it. It releases tensors that fn has made and not
// kept.
func (t *Tree) onSideStream(dev core.Device, fn func() error) (err error) {
	s := t.streams[dev]
	if s == nil {
		s = dev.NewStream(core.CurrentContext().Rank())
		t.streams[dev] = s
	}
	core.NoGrad(func() {
		core.WithStream(s, func() {
			core.WithCategory(core.Communication, func() {
				core.Tidy(func() { err = fn() })
			})
		})
	})
	return err
}

// sideContext returns a context whose current streams are those of [Tree.onSideStream].
func (t *Tree) sideContext(dev core.Device) *core.Context {
	if t.sideContexts[dev] == nil {
		_ = t.onSideStream(dev, func() error {
			here := core.CurrentContext()
			t.sideContexts[dev] = here.OnStreamsOf(here)
			return nil
		})
	}
	return t.sideContexts[dev]
}

// use enters the guard that the unit shares with its tree, and returns it. The caller must leave it. Another thread that uses the tree
// meanwhile gets an error.
func (u *Unit) use() (*core.Guard, error) {
	for {
		g := u.guard.Load()
		if g == nil {
			return nil, nil // not in a tree yet
		}
		if err := g.Enter("fsdp"); err != nil {
			return nil, err
		}
		if g == u.guard.Load() {
			return g, nil
		}
		g.Leave() // another thread has moved the unit to another tree
	}
}

// Use runs fn, which reads or changes the unit, while no other thread uses it.
func (u *Unit) Use(fn func()) error {
	g, err := u.use()
	if err != nil {
		return err
	}
	defer g.Leave()
	fn()
	return nil
}

func (t *Tree) root() *Unit { return t.units[0] }
