package optim

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// replays makes replays of a recorded step's call on a stream steps of the optimiser: with its rates and its count at that time.
func (p *plan) replays(r *core.Recording, o *Optimizer, c *core.Call, stream core.Stream) {
	var items []item
	for i := range p.items {
		it := p.items[i]
		if it.param.Device() != stream.Device() {
			continue
		}
		if it.param != it.slot.param || len(it.made) > 0 {
			r.Refuse("%s makes states, or copies of parameters that are not contiguous", o.algorithm.name)
			return
		}
		it.states = slices.Clone(it.states)
		it.grad = nil
		items = append(items, it)
	}
	r.Check(func() error {
		o.lock()
		defer o.mu.Unlock()
		o.settle()
		for i := range items {
			if err := items[i].fits(o); err != nil {
				return err
			}
		}
		return nil
	})
	c.OnReplay = func(c *core.Call) error {
		o.lock()
		defer o.mu.Unlock()
		l := &launched{end: stream.Next()}
		c.Floats = c.Floats[:0]
		for i := range items {
			it := items[i]
			update, err := it.next(o)
			if err != nil {
				return err
			}
			it.made = nil
			l.add(&it)
			c.Float(update.numbers[:]...)
			it.slot.count++
			if o.algorithm.carries != "" {
				it.slot.carried = update.carried
			}
		}
		c.OnSkip = l.onSkip
		c.OnLaunch = func(done core.Event) { l.end = done }
		o.launches = append(o.launches, l)
		return nil
	}
}

// next returns the update of the item's next step.
func (it *item) next(o *Optimizer) (update, error) {
	g := it.of
	u := o.algorithm.update(g.values(), step{count: it.slot.count + 1, carried: it.slot.carried})
	if u.rule != it.update.rule {
		return u, core.Errorf(core.StateError, o.algorithm.name, "the step follows another rule than when it was recorded")
	}
	return u, nil
}

// fits returns nil if the item's next step changes the same tensors as the recorded one, by the same rule.
func (it *item) fits(o *Optimizer) error {
	changed := func(what string) error {
		return core.Errorf(core.StateError, o.algorithm.name, "parameter %s: %s since the step was recorded", it.slot.name, what)
	}
	g, s := it.of, it.slot
	if !slices.Contains(o.groups, g) || it.place >= len(g.slots) || g.slots[it.place] != s {
		return changed("a state was loaded")
	}
	if s.param.Storage() == nil || s.param.AutogradMeta() != s.history {
		return changed("it was moved or sharded")
	}
	if err := s.param.Storage().ErrRecovered(); err != nil {
		return err
	}
	h := g.values()
	names := o.algorithm.states(h)
	n := 0
	for _, name := range names {
		if _, has := o.algorithm.stateShape(name, s.whole.Shape()); !has {
			continue
		}
		if n >= len(it.states) || part(s.states[name]) != it.states[n] {
			return changed("other states are used")
		}
		n++
	}
	if n != len(it.states) || (h["master_weights"] != 0 && s.param.DType().IsHalf()) != (it.master != nil) || part(s.states[masterState]) != it.master {
		return changed("other states are used")
	}
	_, err := it.next(o)
	return err
}
