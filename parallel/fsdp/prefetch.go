package fsdp

import (
	"slices"
)

// slots returns how many units may be unsharded at a time, besides the root.
func (t *Tree) slots() int {
	if n := t.root().options.Slots; n > 0 {
		return n
	}
	return DefaultSlots
}

// slotsInUse returns how many slots are in use: units besides the root that are unsharded and that the pass will reshard.
func (t *Tree) slotsInUse() int {
	n := 0
	for _, u := range t.units[1:] {
		if u.filled && !u.replicated() && (!u.options.KeepAfterForward || u.using > 0 || u.back) {
			n++
		}
	}
	return n
}

// prefetch starts the all-gathers of the units, in order, while slots are free. It defers the other units until [Tree.prefetchDeferred].
func (t *Tree) prefetch(units []*Unit) error {
	t.deferred = t.deferred[:0]
	for i, u := range units {
		if u.filled || u.replicated() || u.tree != t || len(u.params) == 0 {
			continue
		}
		if t.slotsInUse() >= t.slots() {
			t.deferred = append(t.deferred, units[i:]...)
			return nil
		}
		u.stats.Prefetches++
		if err := u.gather(); err != nil {
			return err
		}
	}
	return nil
}

// prefetchDeferred prefetches deferred units. It is called when a unit was resharded.
func (t *Tree) prefetchDeferred() error {
	if len(t.deferred) == 0 {
		return nil
	}
	return t.prefetch(slices.Clone(t.deferred))
}

// nextInForward records that forward has reached u, and returns the units to prefetch: those of [Unit.SetPrefetch], or else those that
// followed u in the last pass.
func (t *Tree) nextInForward(u *Unit) []*Unit {
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

// left records that a forward pass that records gradients has left u.
func (t *Tree) left(u *Unit) { t.ended = append(t.ended, u) }

// nextInBackward returns the units to prefetch when backward reaches u: those of [Unit.SetPrefetch], or else those that forward left before
// u, the last first.
func (t *Tree) nextInBackward(u *Unit) []*Unit {
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
