package collective

// Collectives whose inputs and outputs share memory: which inputs must be copied first, and which calls are errors.

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op"
)

// A span is where a piece lies: bytes from lo to hi, without it, of the host's memory or else of the storage.
type span struct {
	storage *core.Storage
	lo, hi  uintptr
}

// spanOf returns where n elements of a piece lie, from number from on; m is the memory of its storage.
func spanOf(p *Piece, m core.Memory, from, n int) span {
	size := p.Tensor.DType().Size()
	s := span{storage: p.storage, lo: uintptr((p.offset + p.From + from) * size)}
	if m.Ptr != nil {
		s.storage, s.lo = nil, s.lo+uintptr(m.Ptr)
	}
	s.hi = s.lo + uintptr(n*size)
	return s
}

// A place is a span that a step, or one rank's part in a collective, reads or writes.
type place struct {
	span
	source
	step int
}

// eachOverlap calls found with every two places that have bytes in common, until it returns false. It sorts the places.
func eachOverlap(places []place, found func(a, b *place) bool) {
	inOneStorage := slices.ContainsFunc(places, func(p place) bool { return p.storage != nil })
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.lo, b.lo) })
	for i := range places {
		a := &places[i]
		for j := i + 1; j < len(places) && places[j].lo < a.hi; j++ {
			b := &places[j]
			if inOneStorage && a.storage != b.storage || b.lo == b.hi {
				continue
			}
			if !found(a, b) {
				return
			}
		}
	}
}

// own reports whether the input with the number in may lie where the output with the number out does: nobody then reads the
// one after the other was written. Of a kind without a case none may.
func (o *Operation) own(rank, in, out, ins, outs int) bool {
	switch o.Kind {
	case KindAllReduce, KindBroadcast, KindReduce:
		return in == out
	case KindAllGather:
		return out == rank*ins+in
	case KindReduceScatter:
		return in == rank*outs+out
	case KindGather:
		return out == rank
	case KindScatter:
		return in == rank
	case KindAllToAll:
		return in == rank && out == rank
	}
	return false
}

// apart returns the numbers of those of a rank's ins that outputs would overwrite before they are read: the collective is to read
// copies of them. Two outputs in one place are an error.
func (o *Operation) apart(rank int, ins, outs []Piece) (copies []int, err error) {
	if len(outs) == 0 || o.Kind.alike() && len(outs) == 1 {
		return nil, nil
	}
	var few [24]place
	places := few[:0]
	for k, list := range [][]Piece{ins, outs} {
		for i := range list {
			p := &list[i]
			places = append(places, place{span: spanOf(p, p.storage.Memory(), 0, p.N), source: source{rank, i, k == 1}})
		}
	}
	eachOverlap(places, func(a, b *place) bool {
		switch {
		case a.out && b.out:
			err = o.shared(a.piece, b.piece, outs[a.piece].describe(), outs[b.piece].describe())
		case a.out != b.out:
			in, out := a, b
			if a.out {
				in, out = b, a
			}
			if in.span != out.span || !o.own(rank, in.piece, out.piece, len(ins), len(outs)) {
				copies = append(copies, in.piece)
			}
		}
		return err == nil
	})
	return copies, err
}

// shared returns the error of two outputs of a rank that share memory.
func (o *Operation) shared(a, b int, first, second string) error {
	what := "outputs"
	if o.Kind.alike() {
		what = "tensors"
	}
	if a > b {
		a, b, first, second = b, a, second, first
	}
	return core.Errorf(core.ValueError, o.name(), "%s %d and %d, %s and %s, share memory, so that one would overwrite the other",
		what, a, b, first, second)
}

// scattered returns an error if two elements of outs that are not contiguous share memory.
func (o *Operation) scattered(outs []Piece) error {
	for i := range outs {
		t := outs[i].Tensor
		if t.Contiguous() || i > 0 && outs[i-1].Tensor == t {
			continue
		}
		if op.Overlaps(t.Shape(), t.Strides()) {
			return core.Errorf(core.ValueError, o.name(), "elements of output %d, of shape %v with strides %v, share memory; clone it first",
				i, t.Shape(), t.Strides())
		}
		for j := range outs {
			u := outs[j].Tensor
			if t != u && (j > i || u.Contiguous()) && u.Storage() == t.Storage() && meet(t, u) {
				return o.shared(i, j, whole(t), whole(u))
			}
		}
	}
	return nil
}

func whole(t *core.Tensor) string { return fmt.Sprintf("%v%v", t.DType(), t.Shape()) }

// meet reports whether two tensors of one storage share the memory of an element.
func meet(t, u *core.Tensor) bool {
	from, to := reach(t)
	if lo, hi := reach(u); t.DType() != u.DType() || lo > to || from > hi {
		return false
	}
	elements := map[int]bool{}
	each(t, func(at int) { elements[at] = true })
	found := false
	each(u, func(at int) { found = found || elements[at] })
	return found
}

// reach returns where the first and the last element of t lie in its storage.
func reach(t *core.Tensor) (first, last int) {
	first, last = t.Offset(), t.Offset()
	for d, n := range t.Shape() {
		if by := (n - 1) * t.Strides()[d]; by > 0 {
			last += by
		} else {
			first += by
		}
	}
	return first, last
}

// each calls f with where each element of t lies in its storage.
func each(t *core.Tensor, f func(at int)) {
	var walk func(d, at int)
	walk = func(d, at int) {
		if d == t.Dim() {
			f(at)
			return
		}
		for i := range t.Shape()[d] {
			walk(d+1, at+i*t.Strides()[d])
		}
	}
	walk(0, t.Offset())
}

// clash returns an error if the memory of two ranks overlaps so that a step would change what another one reads or writes.
func clash(plan []step, posts []*post) (err error) {
	var places []place
	for i := range plan {
		s := &plan[i]
		for _, list := range [][]source{s.ins, s.outs} {
			for _, src := range list {
				p := posts[src.rank]
				pieces, loans := p.op.Ins, p.ins
				if src.out {
					pieces, loans = p.op.Outs, p.outs
				}
				piece := &pieces[src.piece]
				memory := loans[src.piece].Region(0, 0).Memory
				places = append(places, place{spanOf(piece, memory, s.from, s.n), src, i})
			}
		}
	}
	eachOverlap(places, func(a, b *place) bool {
		same := a.span == b.span
		switch {
		case !a.out && !b.out:
		case same && a.step == b.step: // each element is read before it is written
		case same && a.out && b.out && plan[a.step].op == contract.CombineCopy && plan[b.step].op == contract.CombineCopy &&
			plan[a.step].ins[0] == plan[b.step].ins[0]: // both write the same
		default:
			err = core.Errorf(core.DistributedError, posts[0].work.label, "%s and %s share memory, so that one would overwrite the other",
				posts[a.rank].op.describe(a.source), posts[b.rank].op.describe(b.source))
		}
		return err == nil
	})
	return err
}

// describe names a piece, such as "output 1 of rank 0, float32[4]".
func (o *Operation) describe(s source) string {
	what, p := "input", o.Ins
	if s.out {
		what, p = "output", o.Outs
	}
	return fmt.Sprintf("%s %d of rank %d, %s,", what, s.piece, s.rank, p[s.piece].describe())
}

// describe returns the dtype and the shape, such as "float32[4 3]".
func (p *Piece) describe() string {
	if shape := p.Tensor.Shape(); core.Numel(shape) == p.N {
		return whole(p.Tensor)
	}
	return fmt.Sprintf("%v[%d]", p.Tensor.DType(), p.N)
}
