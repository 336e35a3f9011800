package tensor

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// relay returns the calling rank's part for other placements. The steps in which the ranks divide a dimension are undone from the last to the
// first, as far as the other placements do not begin with them too, and done from the first to the last. Before, steps that both have change
// places, so that fewer are undone.
func relay(x *core.Tensor, from layout, to []core.Placement) *core.Tensor {
	if slices.Equal(from.placements, to) {
		return x
	}
	return tidy(func() *core.Tensor { return relayed(x, from, to) })
}

// tidy returns what fn does, and releases the other tensors that it makes.
func tidy(fn func() *core.Tensor) *core.Tensor {
	return core.RunScope(func() []*core.Tensor { return []*core.Tensor{fn()} })[0]
}

// relayed is [relay] that leaves the tensors that it makes on the way.
func relayed(x *core.Tensor, from layout, to []core.Placement) *core.Tensor {
	then := from.with(to)
	if y := shifted(x, from, then); y != nil {
		return y
	}
	now, goal := make([][]split, len(from.shape)), make([][]split, len(from.shape))
	for d := range now {
		now[d], goal[d] = from.splits(d), then.splits(d)
	}
	begun := func(d int) bool { return len(now[d]) <= len(goal[d]) && slices.Equal(now[d], goal[d][:len(now[d])]) }
	next := func(p core.Placement, axis int) bool {
		return p.Kind == core.Sharded && begun(p.Dim) && len(now[p.Dim]) < len(goal[p.Dim]) && goal[p.Dim][len(now[p.Dim])].axis == axis
	}
	coming := func(d int) division { return from.division(d, now[d], goal[d][len(now[d])]) }
	for d := range now {
		if order := reordered(now[d], goal[d]); order != nil {
			x = from.rearrange(x, d, now[d], order)
			now[d] = order
		}
		for !begun(d) {
			last := len(now[d]) - 1
			s := now[d][last]
			now[d] = now[d][:last]
			g, v := from.mesh.Exchange(s.axis), from.division(d, now[d], s)
			if q := to[s.axis]; q.Dim != d && next(q, s.axis) {
				x = exchanged(g, x, d, q.Dim, v, coming(q.Dim))
				now[q.Dim] = goal[q.Dim][:len(now[q.Dim])+1]
				continue
			}
			x = gathered(g, x, d, v)
		}
	}
	var left []int
	for i, q := range to {
		p := from.placements[i]
		if q.Kind == core.Sharded && !slices.ContainsFunc(now[q.Dim], func(s split) bool { return s.axis == i }) ||
			q.Kind != core.Sharded && p != q && (p.Kind != core.Sharded || q.Kind != core.Replicated) {
			left = append(left, i)
		}
	}
	for len(left) > 0 {
		left = slices.DeleteFunc(left, func(i int) bool {
			p, q, g := from.placements[i], to[i], from.mesh.Exchange(i)
			switch {
			case q.Kind == core.Sharded && !next(q, i):
				return false
			case p.Kind == core.Pending && q.Kind == core.Sharded:
				x = scattered(g, x, p.Combine, q.Dim, coming(q.Dim))
			case p == core.Partial(core.Means) && q == core.Partial(core.Sums):
				x = shares(g, x)
			case p.Kind == core.Pending:
				x = combined(g, x, p.Combine)
				if q.Kind == core.Pending {
					x = pending(g, x, q.Combine)
				}
			case q.Kind == core.Sharded:
				x = kept(g, x, q.Dim, coming(q.Dim))
			default:
				x = pending(g, x, q.Combine)
			}
			if q.Kind == core.Sharded {
				now[q.Dim] = goal[q.Dim][:len(now[q.Dim])+1]
			}
			return true
		})
	}
	return x
}

// reordered returns the steps in the order that begins with as many of those of goal as there are, or nil if no other order helps.
func reordered(now, goal []split) []split {
	alike, first := 0, 0
	for alike < min(len(now), len(goal)) && now[alike] == goal[alike] {
		alike++
	}
	along := func(list []split, axis int) bool {
		return slices.ContainsFunc(list, func(s split) bool { return s.axis == axis })
	}
	for first < len(goal) && along(now, goal[first].axis) {
		first++
	}
	if first <= alike {
		return nil
	}
	order := slices.Clone(goal[:first])
	for _, s := range now {
		if !along(goal[:first], s.axis) {
			order = append(order, s)
		}
	}
	return order
}

// rearrange divides dimension d by the same steps in another order. Along one dimension of the mesh after the other, elements go to the rank with
// the coordinate that they will have there.
func (l layout) rearrange(x *core.Tensor, d int, before, after []split) *core.Tensor {
	places := l.mesh.Shape()
	var rows func(steps, free []split, at []int) []run // of the ranks with these coordinates, but for those along the free steps' dimensions
	rows = func(steps, free []split, at []int) []run {
		if len(free) == 0 {
			return l.rows(d, steps, at)
		}
		at = slices.Clone(at)
		var lists [][]run
		for at[free[0].axis] = range places[free[0].axis] {
			lists = append(lists, rows(steps, free[1:], at))
		}
		return union(lists)
	}
	at := slices.Clone(l.mesh.Coordinate())
	for i, s := range before {
		k := places[s.axis]
		have, want := make([][]run, k), make([][]run, k)
		for r := range k {
			at[s.axis] = r
			have[r], _ = meet(rows(before, before[:i], at), rows(after, before[i:], at))
			want[r], _ = meet(rows(before, before[:i+1], at), rows(after, before[i+1:], at))
		}
		at[s.axis] = l.mesh.Coordinate()[s.axis]
		x = rearranged(l.mesh.Exchange(s.axis), x, d, have, want)
	}
	return x
}

// shifted moves a tensor between placements, some of them interleaved, of which one is replicated along the only dimension of the mesh along
// which they differ, if the ranks along it have the same elements of the tensor before and after. Other steps need not be undone then. For other
// placements it returns nil.
func shifted(x *core.Tensor, from, to layout) *core.Tensor {
	axis, interleaved := -1, false
	for i, p := range from.placements {
		q := to.placements[i]
		interleaved = interleaved || p.Factor != 0 || q.Factor != 0
		if p != q {
			if axis >= 0 {
				return nil
			}
			axis = i
		}
	}
	p, q := from.placements[axis], to.placements[axis]
	if !interleaved || p.Kind == core.Pending || q.Kind == core.Pending || p.Kind == q.Kind {
		return nil
	}
	d := max(p.Dim, q.Dim) // that of a replicated one is 0
	before, after := from.splits(d), to.splits(d)
	places := from.mesh.Shape()
	along := func(at []int, l layout, steps []split) [][]run {
		at = slices.Clone(at)
		list := make([][]run, places[axis])
		for r := range list {
			at[axis] = r
			list[r] = l.rows(d, steps, at)
		}
		return list
	}
	for n := range from.mesh.Size() { // all ranks decide alike
		at := make([]int, len(places))
		for i, size := range slices.Backward(places) {
			at[i], n = n%size, n/size
		}
		if at[axis] == 0 && !slices.Equal(union(along(at, from, before)), union(along(at, to, after))) {
			return nil
		}
	}
	here := from.mesh.Coordinate()
	have, want := along(here, from, before), along(here, to, after)
	g := from.mesh.Exchange(axis)
	of := func(whole []run, parts [][]run) division {
		v := division{n: count(whole), parts: make([][]run, len(parts))}
		for r, part := range parts {
			_, v.parts[r] = meet(whole, part)
		}
		return v
	}
	if q.Kind == core.Replicated {
		return gathered(g, x, d, of(want[0], have))
	}
	return kept(g, x, d, of(have[0], want))
}
