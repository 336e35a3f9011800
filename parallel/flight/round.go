package flight

import (
	"cmp"
	"slices"
)

// A round is one collective: the calls of its ranks, or a single send or recv.
type round struct {
	group  Group
	seq    uint64
	calls  []*Operation // by rank
	absent []int        // ranks that have not called it
}

type roundKey struct {
	group string
	seq   uint64
}

// rounds lists the collectives, sends and receives, the newest first.
func (r *Record) rounds() []*round {
	groups := map[string]Group{}
	for _, g := range r.Groups {
		groups[g.ID] = g
	}
	type place struct {
		group string
		rank  int
	}
	byKey, newest := map[roundKey]*round{}, map[place]uint64{}
	var list []*round
	for i := range r.Operations {
		o := &r.Operations[i]
		key := roundKey{o.GroupID, o.Seq}
		found := byKey[key]
		if found == nil || o.Seq == 0 {
			g, ok := groups[o.GroupID]
			if !ok {
				g = Group{Name: o.Group, ID: o.GroupID}
			}
			found = &round{group: g, seq: o.Seq}
			byKey[key] = found
			list = append(list, found)
		}
		found.calls = append(found.calls, o)
		at := place{o.GroupID, o.Rank}
		newest[at] = max(newest[at], o.Seq)
	}
	for _, x := range list {
		slices.SortStableFunc(x.calls, func(a, b *Operation) int { return cmp.Compare(a.Rank, b.Rank) })
		if x.seq == 0 {
			continue
		}
		for _, rank := range x.group.Ranks {
			called := slices.ContainsFunc(x.calls, func(o *Operation) bool { return o.Rank == rank })
			if !called && newest[place{x.group.ID, rank}] < x.seq {
				x.absent = append(x.absent, rank)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *round) int { return cmp.Compare(b.called(), a.called()) })
	return list
}

// called is when the first rank has called it.
func (x *round) called() int64 {
	first := x.calls[0].Called
	for _, o := range x.calls {
		first = min(first, o.Called)
	}
	return first
}

// over reports whether the collective is done on all ranks.
func (x *round) over() bool {
	return !slices.ContainsFunc(x.calls, func(o *Operation) bool { return o.State != Done })
}

// disagree reports whether ranks have made calls that do not belong together.
func (x *round) disagree() bool {
	return slices.ContainsFunc(x.calls, func(o *Operation) bool { return !o.agrees(x.calls[0]) })
}

// agrees reports whether two calls can belong to one collective.
func (o *Operation) agrees(p *Operation) bool {
	if o.Name != p.Name || o.Detail != p.Detail || o.Purpose != p.Purpose {
		return false
	}
	return !o.Uniform || o.sameTensors(p)
}

func (o *Operation) sameTensors(p *Operation) bool {
	return o.Count == p.Count && slices.EqualFunc(o.Tensors, p.Tensors, func(a, b Tensor) bool {
		return a.DType == b.DType && slices.Equal(a.Shape, b.Shape)
	})
}
