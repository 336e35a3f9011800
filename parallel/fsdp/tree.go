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
	streams      map[core.Device]core.Stream   // side streams, on which gradients are cast and added beside computation
	sideContexts map[core.Device]*core.Context // contexts on those streams, for communication hooks of another language
	buffers      []*core.Tensor                // see SetBuffers

	forwardDepth       int     // nesting depth of the units' forward passes that are running
	preForwardOrder    []*Unit // units in the order in which the last forward pass reached them
	preForwardIndex    int     // index in preForwardOrder that this forward pass has reached
	newPreForwardOrder []*Unit // units that this forward pass has reached: the next preForwardOrder
	postForwardOrder   []*Unit // units in the order in which forward left them; backward goes through them from the end
	postForwardIndex   int     // index in postForwardOrder that backward has reached

	inputGradHooks     map[*core.AutogradMeta][]func() error // functions to run once the gradients of units' inputs are known
	deferredPrefetches []*Unit                               // prefetches that wait for a free slot
	backwardRuns       []*autograd.Run                       // backward passes in progress
	pausedRuns         []*autograd.Run                       // two-part backward passes between their parts
	onDemand           []onDemandGather                      // units gathered for nodes of second parts, the oldest first
	heldGradients      []*core.Tensor                        // full gradients that are being reduced

	pendingWorks [2][]pendingWork   // collectives of this pass and of the previous one
	groups       []*passGroup       // channels for the collectives of passes
	lateEnds     []*collective.Work // exchanges at the end of backward passes that this rank has not waited for
	openRuns     []*autograd.Run    // backward passes that some rank has not ended
	completedRun *autograd.Run      // the step's last backward pass that all ranks have ended
	forwardErr   error              // first error of the running forward pass
	stepErr      error              // error of the failed step, until the next step begins
	inStep       bool               // passes belong to one step: see [Tree.InStep]
	stepPasses   int                // number of forward passes of the model in it
}

// NewTree makes a tree of units; units[0] is the root. Units of other trees move to the new one, which is allowed between passes only.
func NewTree(units []*Unit) (*Tree, error) {
	if len(units) == 0 {
		return nil, core.Errorf(core.ValueError, "fsdp", "got no units")
	}
	t := &Tree{guard: &core.Guard{}, streams: map[core.Device]core.Stream{}, sideContexts: map[core.Device]*core.Context{}, inputGradHooks: map[*core.AutogradMeta][]func() error{}}
	if err := t.guard.Enter("fsdp"); err != nil {
		return nil, err
	}
	defer t.guard.Leave()
	for _, u := range units {
		if g, err := u.enterGuard(); err != nil {
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
			t.inStep = t.inStep || old.inStep
			if err := old.removeUnit(u); err != nil {
				return nil, err
			}
		}
		u.tree = t
		for _, g := range []*collective.Group{u.group, u.options.Replicas, u.postForwardGroup} {
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

// unlink removes a unit from the tree's lists.
func (t *Tree) unlink(u *Unit) {
	t.units = slices.DeleteFunc(t.units, func(o *Unit) bool { return o == u })
	t.preForwardOrder, t.postForwardOrder, t.newPreForwardOrder, t.deferredPrefetches = nil, nil, nil, nil
	u.tree = nil
}

// removeUnit removes a unit. After the last unit it waits for collectives, and frees streams and contexts.
func (t *Tree) removeUnit(u *Unit) error {
	t.unlink(u)
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

// enterGuard enters the guard that the unit shares with its tree, and returns it. The caller must leave it. Another thread that
// uses the tree meanwhile gets an error.
func (u *Unit) enterGuard() (*core.Guard, error) {
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
	g, err := u.enterGuard()
	if err != nil {
		return err
	}
	defer g.Leave()
	fn()
	return nil
}

func (t *Tree) root() *Unit { return t.units[0] }
