package tensor

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// relay returns the calling rank's part for other placements. The steps in which the ranks divide a dimension are undone from the last to the
// first, as far as the other placements do not begin with them too, and done from the first to the last.
func relay(x *core.Tensor, from layout, to []core.Placement) *core.Tensor {
	if slices.Equal(from.placements, to) {
		return x
	}
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

// shifted moves a tensor between placements, some of them interleaved, that differ along one dimension of the mesh, if the ranks along it have
// the same elements of the tensor's dimension before and after. Other steps need not be undone then. For other placements it returns nil.
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
	if !interleaved || p.Kind == core.Pending || q.Kind == core.Pending || p.Kind == q.Kind && p.Dim != q.Dim {
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
	switch {
	case q.Kind == core.Replicated:
		return gathered(g, x, d, of(want[0], have))
	case p.Kind == core.Replicated:
		return kept(g, x, d, of(have[0], want))
	}
	return rearranged(g, x, d, have, want)
}
