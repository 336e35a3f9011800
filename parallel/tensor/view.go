package tensor

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A view gives a tensor another shape, and its elements keep their order. Shards along a dimension of the one shape are often shards of the other
// too, in pieces where the dimension comes to lie behind others that were joined with it: what ranks have of the columns of an a x b matrix is, of
// its a*b elements in a row, a part of each of a pieces.

// viewed returns the strategies of a view to a shape, along each dimension of the mesh, that move the fewest bytes: none where the result has a
// placement for what the ranks have, and otherwise the cheapest exchange after which it has one. It returns nil if the shapes do not fit.
func (p *parts) viewed(to []int, grad bool) []op.Strategy {
	if core.Numel(to) != core.Numel(p.shape) {
		return nil
	}
	axes := p.mesh.Shape()
	tried := make([]core.Placement, len(axes))
	var best []core.Placement
	var laid layout
	least := 0.0
	var try func(axis int, cost float64)
	try = func(axis int, cost float64) {
		if best != nil && cost >= least {
			return
		}
		if axis == len(axes) {
			if out, ok := p.with(tried).reshaped(to); ok {
				best, laid, least = slices.Clone(tried), out, cost
			}
			return
		}
		now := p.placements[axis]
		options := []core.Placement{now}
		if now.Kind == core.Pending && now.Combine > core.Means && grad {
			options = nil
		}
		if now.Kind != core.Replicated {
			for d, n := range p.shape {
				if q := core.Shard(d); n > 1 && q != now {
					options = append(options, q)
				}
			}
			options = append(options, core.Replicate())
		}
		for _, q := range options {
			tried[axis] = q
			try(axis+1, cost+moving(now, q, axes[axis]))
		}
	}
	try(0, 0)
	ways := make([]op.Strategy, len(axes))
	for axis := range ways {
		q := laid.placements[axis]
		ways[axis] = op.Strategy{In: []core.Placement{best[axis]}, Out: []core.Placement{q}}
		if q.Kind == core.Sharded {
			ways[axis].Size = to[q.Dim]
		}
	}
	return ways
}

// reshaped returns how a tensor lies after a view to a shape of as many elements, without communication; ok is false if there is no placement for
// what the ranks have then.
func (l layout) reshaped(to []int) (out layout, ok bool) {
	out = layout{l.mesh, slices.Clone(to), slices.Clone(l.placements)}
	match := alikeDims(l.shape, to)
	from, into := newSides(l.shape, match), newSides(to, inverse(match, len(to)))
	axes, uneven := l.mesh.Shape(), false
	for axis, q := range l.placements {
		if q.Kind != core.Sharded {
			continue
		}
		if e := match[q.Dim]; e >= 0 {
			out.placements[axis].Dim = e
			continue
		}
		pieces := max(q.Factor, 1)
		if from.now[q.Dim]%pieces != 0 || l.mixed(q.Dim) {
			return out, false
		}
		even := from.even(q.Dim, pieces, axes[axis])
		if !even && uneven {
			return out, false
		}
		uneven = uneven || !even
		e, factor := into.place(from.before(q.Dim)*pieces, axes[axis], even, from.after(q.Dim), from.now[q.Dim]/pieces)
		if e < 0 {
			return out, false
		}
		from.divide(q.Dim, pieces, axes[axis])
		into.divide(e, factor, axes[axis])
		if factor == 1 {
			factor = 0
		}
		out.placements[axis] = core.InterleavedShard(e, factor)
	}
	for e := range to {
		if out.mixed(e) && !slices.Contains(match, e) {
			return out, false
		}
	}
	return out, true
}

// alikeDims returns for each dimension of a shape that of another shape with as many elements, of the same size, that lies in the same place; -1 if
// there is none, or, of several dimensions of one element, if another one has it.
func alikeDims(from, to []int) []int {
	match, taken := make([]int, len(from)), make([]bool, len(to))
	for d := range from {
		match[d] = -1
		for e := range to {
			if !taken[e] && from[d] == to[e] && core.Numel(from[:d]) == core.Numel(to[:e]) && core.Numel(from[d+1:]) == core.Numel(to[e+1:]) {
				match[d], taken[e] = e, true
				break
			}
		}
	}
	return match
}

// inverse returns for each of n dimensions that which matches it, or -1.
func inverse(match []int, n int) []int {
	out := slices.Repeat([]int{-1}, n)
	for d, e := range match {
		if e >= 0 {
			out[e] = d
		}
	}
	return out
}

// A side is one of the shapes of a view, without the dimensions that are alike in both: how many elements a rank has of each dimension so far.
// Of one that ranks divide unevenly, of which there is one at most, it has the number of pieces.
type side struct {
	now   []int
	alike []int
}

func newSides(shape, alike []int) *side { return &side{slices.Clone(shape), alike} }

// before returns how many elements lie in the dimensions before d.
func (s *side) before(d int) int { return s.count(0, d) }

// after returns how many lie in those behind d.
func (s *side) after(d int) int { return s.count(d+1, len(s.now)) }

func (s *side) count(from, to int) int {
	n := 1
	for d := from; d < to; d++ {
		if s.alike[d] < 0 {
			n *= s.now[d]
		}
	}
	return n
}

// even reports whether k ranks have equal parts of each of so many pieces of dimension d.
func (s *side) even(d, pieces, k int) bool { return s.now[d]%k == 0 && s.now[d]/k%pieces == 0 }

// place returns the dimension, and the number of its pieces, that k ranks divide if they divide each of so many pieces of all elements. Behind each
// element of the divided dimension lie after others, and a piece has length elements, which matter if the ranks' parts are not even.
func (s *side) place(pieces, k int, even bool, after, length int) (d, factor int) {
	for d := range slices.Backward(s.now) {
		before := s.before(d)
		if s.alike[d] >= 0 || s.now[d] == 1 || before == 0 || pieces == 0 || pieces%before != 0 {
			continue
		}
		factor := pieces / before
		switch {
		case s.now[d]%factor != 0:
		case even && s.even(d, factor, k), s.after(d) == after && s.now[d]/factor == length:
			return d, factor
		}
	}
	return -1, 0
}

// divide says that k ranks have divided each of so many pieces of dimension d.
func (s *side) divide(d, pieces, k int) {
	if s.even(d, pieces, k) {
		s.now[d] /= k
	} else {
		s.now[d] = pieces
	}
}
