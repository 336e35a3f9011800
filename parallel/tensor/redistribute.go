package tensor

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// relay returns the calling rank's part for other placements. Dimensions of the mesh that shard the same dimension of the tensor divide it
// one after another, so they are undone from the last to the first and done from the first to the last.
func relay(x *core.Tensor, from layout, to []core.Placement) *core.Tensor {
	now := from.with(slices.Clone(from.placements))
	changes := func(i int) bool { return now.placements[i] != to[i] }
	dirty := make([]bool, len(to))
	for j := range to {
		dirty[j] = changes(j)
		for i := range j {
			if p := from.placements[j]; p.Kind == core.Sharded && changes(i) && (from.placements[i] == p || to[i] == p) {
				dirty[j] = true
			}
		}
	}
	for i := len(to) - 1; i >= 0; i-- {
		p := now.placements[i]
		if !dirty[i] || p.Kind != core.Sharded {
			continue
		}
		g := from.mesh.Exchange(i)
		_, n := now.span(p.Dim, i)
		if q := to[i]; q.Kind == core.Sharded && q != p && alone(now.placements, to, i) {
			x = exchanged(g, x, p.Dim, q.Dim, n)
			now.placements[i] = q
			continue
		}
		x = gathered(g, x, p.Dim, n)
		now.placements[i] = core.Replicate()
	}
	for i, q := range to {
		p := now.placements[i]
		if p == q {
			continue
		}
		g := from.mesh.Exchange(i)
		switch {
		case p.Kind == core.Pending && q.Kind == core.Sharded:
			x = scattered(g, x, p.Combine, q.Dim)
		case p.Kind == core.Pending:
			x = combined(g, x, p.Combine)
			if q.Kind == core.Pending {
				x = pending(g, x, q.Combine)
			}
		case q.Kind == core.Sharded:
			x = kept(g, x, q.Dim)
		default:
			x = pending(g, x, q.Combine)
		}
		now.placements[i] = q
	}
	return x
}

// alone reports whether no other dimension of the mesh shards what dimension i shards, now or then.
func alone(now, then []core.Placement, i int) bool {
	for j := range now {
		if j != i && (now[j].Kind == core.Sharded && (now[j] == now[i] || now[j] == then[i]) ||
			then[j].Kind == core.Sharded && (then[j] == now[i] || then[j] == then[i])) {
			return false
		}
	}
	return true
}
