package tensor

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// A run is a range of positions along a dimension of a tensor. Lists of runs are in ascending order.
type run struct{ start, length int }

func (r run) end() int { return r.start + r.length }

// with appends a run to a list, or joins it to the last one.
func with(list []run, r run) []run {
	switch n := len(list); {
	case r.length == 0:
	case n > 0 && list[n-1].end() == r.start:
		list[n-1].length += r.length
	default:
		list = append(list, r)
	}
	return list
}

// count returns how many positions a list has.
func count(list []run) (n int) {
	for _, r := range list {
		n += r.length
	}
	return n
}

// meet returns what two lists have in common, as runs and as their positions in the first list.
func meet(a, b []run) (both, at []run) {
	before := 0
	for _, r := range a {
		for len(b) > 0 && b[0].end() <= r.start {
			b = b[1:]
		}
		for _, q := range b {
			if q.start >= r.end() {
				break
			}
			start := max(r.start, q.start)
			if n := min(r.end(), q.end()) - start; n > 0 {
				both = with(both, run{start, n})
				at = with(at, run{before + start - r.start, n})
			}
		}
		before += r.length
	}
	return both, at
}

// regular returns the distance between the runs of a list of several that are equally long and equally far from each other.
func regular(list []run) (stride int, ok bool) {
	if len(list) < 2 {
		return 0, false
	}
	stride = list[1].start - list[0].start
	for i, r := range list {
		if r.length != list[0].length || r.start != list[0].start+i*stride {
			return 0, false
		}
	}
	return stride, true
}

// within returns the runs at the given positions of a list.
func within(list, at []run) (out []run) {
	before := 0
	for _, r := range list {
		for _, q := range at {
			start := max(before, q.start)
			if n := min(before+r.length, q.end()) - start; n > 0 {
				out = with(out, run{r.start + start - before, n})
			}
		}
		before += r.length
	}
	return out
}

// union returns the positions of several lists.
func union(lists [][]run) (out []run) {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b run) int { return a.start - b.start })
	for _, r := range all {
		if n := len(out); n > 0 && r.start < out[n-1].end() {
			r = run{out[n-1].end(), max(r.end()-out[n-1].end(), 0)}
		}
		out = with(out, r)
	}
	return out
}

// chunk returns which of n elements rank r of k has.
func chunk(n, k, r int) (start, length int) {
	size := (n + k - 1) / k
	start = min(size*r, n)
	return start, min(size, n-start)
}

// cut returns which of n elements rank r of k has, if each has a part of each of factor pieces.
func cut(n, k, factor, r int) []run {
	pieces := min(factor, n) // those that have elements
	list := make([]run, 0, pieces)
	for j := range pieces {
		from, size := chunk(n, pieces, j)
		start, length := chunk(size, k, r)
		list = with(list, run{from + start, length})
	}
	return list
}

// A division says how the ranks of a group divide n elements.
type division struct {
	n     int
	parts [][]run // by rank
}

func divide(n, k, factor int) division {
	v := division{n, make([][]run, k)}
	for r := range v.parts {
		v.parts[r] = cut(n, k, factor, r)
	}
	return v
}

// pieces returns the number of equal pieces of which each rank, in their order, has a part; 0 if the ranks divide the elements otherwise.
func (v division) pieces() int {
	end, pieces, length := 0, 0, 0
	for _, runs := range v.parts {
		if len(runs) == 0 {
			continue
		}
		stride, ok := regular(runs)
		if !ok || pieces != 0 && (len(runs) != pieces || stride != length) || runs[0].start != end {
			return 0
		}
		pieces, length, end = len(runs), stride, runs[0].end()
	}
	if end != length || pieces*length != v.n {
		return 0
	}
	return pieces
}

// A split is one of the steps in which the ranks of a mesh divide a dimension of a tensor. Those along axis, a dimension of the mesh, divide
// among them what all of them have, and each gets a part of each of factor pieces.
type split struct{ axis, factor int }

// splits returns the steps in which the ranks divide dimension d, the first one first. This and [layout.rows] say which elements a rank has.
//
// Dimensions of the mesh divide it in their order, but for interleaved shards. The factor of one is how many ranks have divided the dimension
// before, along later dimensions of the mesh. If there are no such dimensions, it is only a number of pieces.
func (l layout) splits(d int) []split {
	var list []split
	interleaved := false
	for i, p := range l.placements {
		if p.Shards(d) {
			list = append(list, split{i, max(p.Factor, 1)})
			interleaved = interleaved || p.Factor > 1
		}
	}
	if !interleaved {
		return list
	}
	axes := l.mesh.Shape()
	order := make([]split, 0, len(list))
	for _, s := range slices.Backward(list) {
		at, ranks := 0, 1
		for at < len(order) && ranks < s.factor {
			ranks *= axes[order[at].axis]
			at++
		}
		if ranks == s.factor {
			s.factor = 1
		} else {
			at = 0
		}
		order = slices.Insert(order, at, s)
	}
	return order
}

// mixed reports whether a dimension of the mesh divides dimension d after a later one that divides pieces which are no ranks'.
func (l layout) mixed(d int) bool {
	pieces := -1 // the last dimension of the mesh that divides such pieces
	for _, s := range l.splits(d) {
		if s.axis < pieces {
			return true
		}
		if s.factor > 1 {
			pieces = s.axis
		}
	}
	return false
}

// rows returns which elements of dimension d the rank at a place of the mesh has after the given steps.
func (l layout) rows(d int, steps []split, at []int) []run {
	axes := l.mesh.Shape()
	list := with(nil, run{0, l.shape[d]})
	for _, s := range steps {
		list = within(list, cut(count(list), axes[s.axis], s.factor, at[s.axis]))
	}
	return list
}

// span returns where the elements of dimension d that the calling rank has after the given steps begin, and how many there are.
func (l layout) span(d int, steps []split) (start, length int) {
	length = l.shape[d]
	if len(steps) == 0 {
		return 0, length
	}
	axes, at := l.mesh.Shape(), l.mesh.Coordinate()
	for _, s := range steps {
		if s.factor > 1 {
			list := l.rows(d, steps, at)
			if len(list) == 0 {
				return l.shape[d], 0
			}
			return list[0].start, count(list)
		}
		var more int
		more, length = chunk(length, axes[s.axis], at[s.axis])
		start += more
	}
	return start, length
}

// division returns how the ranks divide in the step s what they have of dimension d after the steps before it.
func (l layout) division(d int, before []split, s split) division {
	_, n := l.span(d, before)
	return divide(n, l.mesh.Group(s.axis).Size(), s.factor)
}

// local returns the shape of the calling rank's part.
func (l layout) local() []int {
	out := make([]int, len(l.shape))
	for d := range out {
		out[d] = l.length(d)
	}
	return out
}

// length returns how many elements of dimension d the calling rank has.
func (l layout) length(d int) int {
	n, steps, axes := l.shape[d], l.splits(d), l.mesh.Shape()
	for _, s := range steps {
		if k := axes[s.axis]; n%k != 0 || n/k%s.factor != 0 { // which elements tells how many
			_, n = l.span(d, steps)
			return n
		}
		n /= axes[s.axis]
	}
	return n
}

// starts returns where the calling rank's part begins in the whole: at the end of a dimension of which it has nothing.
func (l layout) starts() []int {
	out := make([]int, len(l.shape))
	for d := range out {
		var length int
		if out[d], length = l.span(d, l.splits(d)); length == 0 {
			out[d] = l.shape[d]
		}
	}
	return out
}

// sharded reports whether dimension d is sharded.
func (l layout) sharded(d int) bool {
	return slices.ContainsFunc(l.placements, func(p core.Placement) bool { return p.Shards(d) })
}
