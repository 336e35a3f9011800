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
		if u.gathered && u.group != nil && (!u.options.KeepAfterForward || u.activeForwards > 0 || u.inBackward) {
			n++
		}
	}
	return n
}

// prefetch starts the all-gathers of the units, in order, while slots are free. It defers the other units until [Tree.prefetchDeferred].
func (t *Tree) prefetch(units []*Unit) error {
	t.deferredPrefetches = t.deferredPrefetches[:0]
	for i, u := range units {
		if u.gathered || u.group == nil || u.tree != t || len(u.params) == 0 {
			continue
		}
		if t.slotsInUse() >= t.slots() {
			t.deferredPrefetches = append(t.deferredPrefetches, units[i:]...)
			return nil
		}
		u.stats.Prefetches++
		if err := u.allGather(); err != nil {
			return err
		}
	}
	return nil
}

// prefetchDeferred prefetches deferred units. It is called when a unit was resharded.
func (t *Tree) prefetchDeferred() error {
	if len(t.deferredPrefetches) == 0 {
		return nil
	}
	return t.prefetch(slices.Clone(t.deferredPrefetches))
}

// nextInForward records that forward has reached u, and returns the units to prefetch: those of [Unit.SetPrefetch], or else those that
// followed u in the last pass.
func (t *Tree) nextInForward(u *Unit) []*Unit {
	t.newPreForwardOrder = append(t.newPreForwardOrder, u)
	if u.forwardPrefetch != nil {
		return u.forwardPrefetch
	}
	if t.root().options.NoForwardPrefetch {
		return nil
	}
	if t.preForwardIndex < len(t.preForwardOrder) && t.preForwardOrder[t.preForwardIndex] == u {
		t.preForwardIndex++
	} else if i := slices.Index(t.preForwardOrder, u); i >= 0 {
		t.preForwardIndex = i + 1
	} else {
		return nil
	}
	return firstUnits(t.preForwardOrder[t.preForwardIndex:], t.slots()-1)
}

// recordPostForward records that a forward pass with gradients has left u.
func (t *Tree) recordPostForward(u *Unit) { t.postForwardOrder = append(t.postForwardOrder, u) }

// nextInBackward returns the units to prefetch when backward reaches u: those of [Unit.SetPrefetch], or else those that forward left before
// u, the last first.
func (t *Tree) nextInBackward(u *Unit) []*Unit {
	if u.backwardPrefetch != nil {
		return u.backwardPrefetch
	}
	if t.root().options.BackwardPrefetch == PrefetchNever {
		return nil
	}
	for i := min(t.postForwardIndex, len(t.postForwardOrder)) - 1; i >= 0; i-- {
		if t.postForwardOrder[i] == u {
			t.postForwardIndex = i
			rest := slices.Clone(t.postForwardOrder[:i])
			slices.Reverse(rest)
			return firstUnits(rest, t.slots()-1)
		}
	}
	return nil
}

// firstUnits returns the first n units of a list, at least one if there is one.
func firstUnits(list []*Unit, n int) []*Unit { return list[:min(max(n, 1), len(list))] }
