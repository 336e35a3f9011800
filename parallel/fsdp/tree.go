package fsdp

import (
	"errors"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/parallel/collective"
)

// A Tree is the units of one model, which gather and free in turn. The first is the root: the unit whose forward pass has
// those of all others in it.
type Tree struct {
	guard   *core.Guard
	units   []*Unit
	streams map[core.Device]core.Stream   // for casts and sums that computation must not wait for
	asides  map[core.Device]*core.Context // on those streams, for hooks of another language

	depth  int     // forward passes that are in a unit
	order  []*Unit // of the last pass: in which forward came to them
	at     int     // of this pass, in order
	coming []*Unit // what will be order
	ended  []*Unit // in which forward left them, in the last pass with gradients
	done   int     // backward has come so far down in ended

	arriving map[*core.AutogradMeta][]func() error // what waits for the gradients of units' inputs, in the last pass
	wished   []*Unit                               // to be gathered when a slot is free
	runs     []*autograd.Run                       // that go through the model
	resting  []*autograd.Run                       // that have ended their first part and will come back
	fetched  []fetched
	held     []*core.Tensor // full gradients that are being reduced
	works    [2][]awaited
	groups   []*passGroup
	late     []*collective.Work // ends of backward passes that this rank has not waited for
	open     []*autograd.Run    // that have come to the model, and not all ranks to their end
	counted  *autograd.Run      // the last of the step that all ranks have ended
	fault    error              // of the forward pass
	failure  error              // of the step, until the next begins
	buffers  []*core.Tensor     // see SetBuffers
}

// NewTree makes the units those of one model; units[0] is the root. It may take units of other trees, outside of passes.
func NewTree(units []*Unit) (*Tree, error) {
	if len(units) == 0 {
		return nil, core.Errorf(core.ValueError, "fsdp", "got no units")
	}
	t := &Tree{guard: &core.Guard{}, streams: map[core.Device]core.Stream{}, asides: map[core.Device]*core.Context{}, arriving: map[*core.AutogradMeta][]func() error{}}
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
				t.passGroup(g) // in one order on all ranks
			}
		}
		u.guard.Store(t.guard)
		t.units = append(t.units, u)
	}
	return t, nil
}

// Units returns the units, the root first.
func (t *Tree) Units() []*Unit { return slices.Clone(t.units) }

// forget takes a unit out.
func (t *Tree) forget(u *Unit) {
	t.units = slices.DeleteFunc(t.units, func(o *Unit) bool { return o == u })
	t.order, t.ended, t.coming, t.wished = nil, nil, nil, nil
	u.tree = nil
}

// leave takes a unit out. The last one ends the tree.
func (t *Tree) leave(u *Unit) error {
	t.forget(u)
	if len(t.units) > 0 {
		return nil
	}
	err := t.Wait()
	t.releaseHeld()
	t.dropBuffers()
	for _, c := range t.asides {
		c.Free()
	}
	for _, s := range t.streams {
		if e := s.Close(); !collective.IsRevoked(e) { // which backward has told
			err = errors.Join(err, e)
		}
	}
	t.streams, t.asides = nil, nil
	return err
}

// off runs fn beside the computation on dev, and releases what operations in it made and did not keep.
func (t *Tree) off(dev core.Device, fn func() error) (err error) {
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

// beside returns a context in which the streams are those of [Tree.off].
func (t *Tree) beside(dev core.Device) *core.Context {
	if t.asides[dev] == nil {
		_ = t.off(dev, func() error {
			here := core.CurrentContext()
			t.asides[dev] = here.OnStreamsOf(here)
			return nil
		})
	}
	return t.asides[dev]
}

// awaited is a collective whose error is to be reported.
type awaited struct {
	*collective.Work
	verify func() error // what is wrong with what other ranks sent; may be nil
}

func (w awaited) Err() error {
	if err := w.Work.Err(); err != nil || w.verify == nil {
		return err
	}
	return w.verify()
}

// use keeps other threads away from the unit and those it belongs with, until the guard is left.
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
		g.Leave() // another thread has put it into another tree meanwhile
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

// keep remembers a collective whose error is to be reported. That another rank has failed is told at the end of the pass, so that an
// error of this rank's own comes first.
func (t *Tree) keep(w *collective.Work) error {
	t.works[0] = append(t.works[0], awaited{Work: w})
	if !w.Done() || collective.IsRevoked(w.Err()) {
		return nil
	}
	return w.Err()
}

// check returns the error of a collective of this pass, as far as it is known, and of the one before it.
func (t *Tree) check() error {
	last, before := t.works[0], t.works[1]
	t.works[1], t.works[0] = last, nil
	for _, w := range before {
		core.WaitOn(w.Event(), -1)
		if err := w.Err(); err != nil {
			return err
		}
	}
	for _, w := range last {
		if w.Done() {
			if err := w.Err(); err != nil {
				t.works[1] = nil
				return err
			}
		}
	}
	return nil
}

// Wait waits until the gradients of the last pass are known and returns the error that prevented it.
func (t *Tree) Wait() error {
	if err := t.guard.Enter("fsdp"); err != nil {
		return err
	}
	defer t.guard.Leave()
	for _, works := range t.works {
		for _, w := range works {
			core.WaitOn(w.Event(), -1) // and not the work, whose own wait makes failed tensors usable
			if err := w.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Tree) root() *Unit { return t.units[0] }

// slots returns how many units may be gathered before they are needed.
func (t *Tree) slots() int {
	if n := t.root().options.Slots; n > 0 {
		return n
	}
	return DefaultSlots
}

// taken returns how many units besides the root hold gathered parameters that the pass frees.
func (t *Tree) taken() int {
	n := 0
	for _, u := range t.units[1:] {
		if u.filled && !u.whole() && (!u.options.KeepAfterForward || u.using > 0 || u.back) {
			n++
		}
	}
	return n
}

// prefetch gathers the units, in order, as far as there are slots for them; the others are put off.
func (t *Tree) prefetch(units []*Unit) error {
	t.wished = t.wished[:0]
	for i, u := range units {
		if u.filled || u.whole() || u.tree != t || len(u.params) == 0 {
			continue
		}
		if t.taken() >= t.slots() {
			t.wished = append(t.wished, units[i:]...)
			return nil
		}
		u.stats.Prefetches++
		if err := u.fill(); err != nil {
			return err
		}
	}
	return nil
}

// freed is told that a slot is free.
func (t *Tree) freed() error {
	if len(t.wished) == 0 {
		return nil
	}
	return t.prefetch(slices.Clone(t.wished))
}

// entered records that forward has come to u and returns what comes next.
func (t *Tree) entered(u *Unit) []*Unit {
	t.coming = append(t.coming, u)
	if u.next != nil {
		return u.next
	}
	if t.root().options.NoForwardPrefetch {
		return nil
	}
	if t.at < len(t.order) && t.order[t.at] == u {
		t.at++
	} else if i := slices.Index(t.order, u); i >= 0 {
		t.at = i + 1
	} else {
		return nil
	}
	return firsts(t.order[t.at:], t.slots()-1)
}

// left records that forward, with gradients, has left u.
func (t *Tree) left(u *Unit) { t.ended = append(t.ended, u) }

// behind returns what backward comes to after u.
func (t *Tree) behind(u *Unit) []*Unit {
	if u.before != nil {
		return u.before
	}
	if t.root().options.BackwardPrefetch == PrefetchNever {
		return nil
	}
	for i := min(t.done, len(t.ended)) - 1; i >= 0; i-- {
		if t.ended[i] == u {
			t.done = i
			rest := slices.Clone(t.ended[:i])
			slices.Reverse(rest)
			return firsts(rest, t.slots()-1)
		}
	}
	return nil
}

// firsts returns the first n units of a list.
func firsts(list []*Unit, n int) []*Unit { return list[:min(max(n, 1), len(list))] }

// begin begins a forward pass of the model, or of a unit alone.
func (t *Tree) begin(u *Unit) error {
	defer func() { t.failure = nil }()
	grad := core.CurrentMode().GradEnabled()
	if u != t.root() {
		return nil
	}
	if err := t.revoked(); err != nil && len(t.ended) > 0 && t.counted == nil {
		t.giveUp(err) // of which the last forward pass's results told
	}
	if err := t.meetLate(); err != nil {
		return err
	}
	if err := t.check(); err != nil {
		return err
	}
	t.order, t.coming, t.at = t.coming, nil, 0
	for _, u := range t.units {
		u.note()
	}
	if grad {
		t.counted, t.ended = nil, nil
		clear(t.arriving)
	}
	return nil
}

// finish ends a forward pass of the model: what was prefetched for units that did not come is freed.
func (t *Tree) finish() {
	t.wished = t.wished[:0]
	for _, u := range t.units {
		if u.filled && u.idle() && !u.holds {
			u.empty()
		}
	}
	t.done = len(t.ended)
}

// again reports whether forward runs in the midst of a backward pass, to compute again what was not kept.
func (t *Tree) again() bool { return len(t.runs) > 0 }

// abandon gives up a backward pass that an error has ended: everything gathered is freed, and gradients that were not reduced,
// but those that add up without synchronisation, are dropped.
func (t *Tree) abandon() {
	halves := len(t.resting) > 0
	t.runs, t.resting, t.wished, t.fetched = nil, nil, nil, nil
	for _, u := range t.units {
		if (u.back || halves) && u.sync {
			for _, p := range u.params {
				if !u.whole() {
					p.full().SetGrad(nil)
				} else if p.before != nil {
					p.tensor.SetGrad(p.before)
					p.before, p.local = nil, false
				}
			}
		}
		u.back, u.run, u.uses, u.expecting = false, nil, nil, 0
		if u.using == 0 && !u.manual {
			u.shut()
			u.empty()
		}
	}
	t.releaseHeld()
}

// holdGradients takes the full gradients, which are being reduced, from the parameters. The memory of those before them may be used
// from now on, by what waits for their reduction; where nothing is to run beside reductions, that of these too.
func (t *Tree) holdGradients(params []*parameter) {
	var held []*core.Tensor
	for _, p := range params {
		if g := p.full().Grad(); g != nil {
			held = append(held, g.Detach().Keep())
			p.full().SetGrad(nil)
		}
	}
	t.releaseHeld()
	t.held = held
	if t.root().options.BackwardPrefetch == PrefetchNever {
		t.releaseHeld()
	}
}

func (t *Tree) releaseHeld() {
	for _, g := range t.held {
		g.Release()
	}
	t.held = nil
}
