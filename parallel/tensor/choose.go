package tensor

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// choose returns the strategy along one dimension of the mesh that moves the fewest bytes. It depends on nothing in which ranks differ.
func choose(ways []op.Strategy, list []*parts, axis int, inPlace, grad bool) (best op.Strategy, ok bool) {
	least := 0.0
	for _, way := range ways {
		if inPlace && (list[0] == nil || way.In[0] != list[0].placements[axis] || way.Out[0] != way.In[0]) {
			continue
		}
		if grad && len(way.Out) > 0 && way.Out[0].Kind == core.Pending && way.Out[0].Combine > core.Means {
			continue
		}
		cost := 0.0
		for i, q := range list {
			if q == nil {
				continue
			}
			bytes := float64(core.Numel(q.shape) * q.here.DType().Size())
			cost += moving(q.placements[axis], way.In[i], q.mesh.Shape()[axis]) * bytes
			if grad && q.here.RequiresGrad() && way.In[i].Kind == core.Replicated && !alike(way) && q.placements[axis].Kind != core.Replicated {
				cost += bytes // its gradient is summed
			}
		}
		if !ok || cost < least {
			best, least, ok = way, cost, true
		}
	}
	return best, ok
}

// withInterleaved adds to the strategies of a rule those for inputs that are interleaved along one dimension of the mesh: the op works on rows
// alike wherever they lie, unless the strategy has a function for where that is. Of interleaved shards more may be empty, which have no maximum.
func withInterleaved(ways []op.Strategy, list []*parts, axis, ranks int) []op.Strategy {
	var factors []int
	for _, q := range list {
		if q == nil {
			continue
		}
		if f := q.placements[axis].Factor; f != 0 && !slices.Contains(factors, f) {
			factors = append(factors, f)
		}
	}
	all := slices.Clip(ways)
	for _, f := range factors {
		for _, way := range ways {
			even := func(n int) bool { return n%ranks == 0 && n/ranks%f == 0 }
			empty := slices.ContainsFunc(way.Out, func(p core.Placement) bool { return p.Kind == core.Pending && p.Combine != core.Sums })
			if way.Local != nil || empty || way.OutSize != 0 && way.OutSize != way.Size && !(even(way.Size) && even(way.OutSize)) {
				continue
			}
			cut := func(places []core.Placement) []core.Placement {
				places = slices.Clone(places)
				for i, p := range places {
					if p.Kind == core.Sharded {
						places[i] = core.InterleavedShard(p.Dim, f)
					}
				}
				return places
			}
			way.In, way.Out = cut(way.In), cut(way.Out)
			all = append(all, way)
		}
	}
	return all
}

// divisible reports whether the ranks' parts of inputs that are interleaved shards, and those of results, are equally long in each step in which
// they divide a dimension, if an op gives this dimension another size: only then do the parts of results follow from those of the inputs.
func (p *parts) divisible(list []*parts, chosen []op.Strategy) bool {
	resized, out := false, layout{mesh: p.mesh}
	for _, way := range chosen {
		if len(way.Out) == 0 {
			return true
		}
		q := way.Out[0]
		out.placements = append(out.placements, q)
		if q.Kind == core.Sharded {
			out.shape = append(out.shape, make([]int, max(q.Dim+1-len(out.shape), 0))...)
			out.shape[q.Dim] = way.ResultSize()
		}
		resized = resized || way.OutSize != 0 && way.OutSize != way.Size
	}
	if !resized {
		return true
	}
	for i, q := range list {
		if q == nil {
			continue
		}
		in := q.with(nil)
		for _, way := range chosen {
			in.placements = append(in.placements, way.In[i])
		}
		if !in.even() {
			return false
		}
	}
	return out.even()
}

// even reports whether the ranks' parts of dimensions with interleaved shards are equally long in each step in which they divide them.
func (l layout) even() bool {
	for d, n := range l.shape {
		if !slices.ContainsFunc(l.placements, func(p core.Placement) bool { return p.Shards(d) && p.Factor != 0 }) {
			continue
		}
		for _, s := range l.splits(d) {
			k := l.mesh.Shape()[s.axis]
			if n%k != 0 || n/k%s.factor != 0 {
				return false
			}
			n /= k
		}
	}
	return true
}

// moving returns how many times its bytes a tensor moves between two placements on k ranks. What moves nothing costs a little all the same.
func moving(from, to core.Placement, k int) float64 {
	share := float64(k-1) / float64(k)
	switch {
	case from == to:
		return 0
	case from.Kind == core.Sharded && to.Kind == core.Sharded:
		return max(share/float64(k), 0.001)
	case from.Kind == core.Sharded:
		return max(share, 0.01)
	case from.Kind == core.Pending && to.Kind == core.Sharded:
		return share
	case from == core.Partial(core.Means) && to == core.Partial(core.Sums):
		return 0.02
	case from.Kind == core.Pending:
		return 2 * share
	case to.Kind == core.Sharded:
		return 0.01
	}
	return 0.02 // from replicated to pending
}
