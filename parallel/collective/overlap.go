package collective

// Collectives whose inputs and outputs share memory: which inputs must be copied first, and which overlaps are errors.

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op"
)

// A span is the memory of a piece: the bytes [lo, hi) of host memory or, on devices without host access, of the storage.
type span struct {
	storage *core.Storage
	lo, hi  uintptr
	rows    rows // in bytes, if the piece lies in rows
}

// spanOf returns the memory of elements from to from+n of a piece; m is its storage's memory.
func spanOf(p *Piece, m core.Memory, from, n int) span {
	size := p.dtype.Size()
	s := span{storage: p.storage, lo: uintptr((p.offset + p.at(from)) * size)}
	if m.Ptr != nil {
		s.storage, s.lo = nil, s.lo+uintptr(m.Ptr)
	}
	s.hi = s.lo + uintptr(n*size)
	if r := p.rows; r.n > 1 && n > r.length {
		s.rows = rows{r.n, r.length * size, r.stride * size}
		s.hi = s.lo + uintptr((r.n-1)*s.rows.stride+s.rows.length)
	}
	return s
}

// meets reports whether two spans that overlap have a byte in common: their rows may lie between each other.
func (s *span) meets(t *span) bool {
	of := func(s *span) rows {
		if s.rows.n > 1 {
			return s.rows
		}
		return rows{n: 1, length: int(s.hi - s.lo)}
	}
	return of(s).meets(of(t), int(t.lo-s.lo))
}

// An access is a span that a step, or one rank in a collective, reads or writes.
type access struct {
	span
	source
	step int
}

// eachOverlap calls found for every two accesses that overlap, until it returns false. It sorts the accesses.
func eachOverlap(accesses []access, found func(a, b *access) bool) {
	inOneStorage := slices.ContainsFunc(accesses, func(p access) bool { return p.storage != nil })
	slices.SortFunc(accesses, func(a, b access) int { return cmp.Compare(a.lo, b.lo) })
	for i := range accesses {
		a := &accesses[i]
		for j := i + 1; j < len(accesses) && accesses[j].lo < a.hi; j++ {
			b := &accesses[j]
			if inOneStorage && a.storage != b.storage || b.lo == b.hi || !a.meets(&b.span) {
				continue
			}
			if !found(a, b) {
				return
			}
		}
	}
}

// mayAlias reports whether an input may share the memory of an output: no rank then reads the input after the output was written. Kinds
// without a case allow no sharing.
func (o *Operation) mayAlias(rank, in, out, ins, outs int) bool {
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

// inputsToCopy returns the indices of inputs that outputs would overwrite before they are read. Two outputs in the same memory are an
// error.
func (o *Operation) inputsToCopy(rank int, ins, outs []Piece) (copies []int, err error) {
	if len(outs) == 0 || o.Kind.sameShapes() && len(outs) == 1 {
		return nil, nil
	}
	var few [24]access
	accesses := few[:0]
	for k, list := range [][]Piece{ins, outs} {
		for i := range list {
			p := &list[i]
			accesses = append(accesses, access{span: spanOf(p, p.storage.Memory(), 0, p.N), source: source{rank, i, k == 1}})
		}
	}
	eachOverlap(accesses, func(a, b *access) bool {
		switch {
		case a.out && b.out:
			err = o.shared(a.piece, b.piece, outs[a.piece].describe(), outs[b.piece].describe())
		case a.out != b.out:
			in, out := a, b
			if a.out {
				in, out = b, a
			}
			if in.span != out.span || !o.mayAlias(rank, in.piece, out.piece, len(ins), len(outs)) {
				copies = append(copies, in.piece)
			}
		}
		return err == nil
	})
	return copies, err
}

// shared returns the error of two outputs that share memory.
func (o *Operation) shared(a, b int, first, second string) error {
	what := "outputs"
	if o.Kind.sameShapes() {
		what = "tensors"
	}
	if a > b {
		a, b, first, second = b, a, second, first
	}
	return core.Errorf(core.ValueError, o.name(), "%s %d and %d, %s and %s, share memory, so that one would overwrite the other",
		what, a, b, first, second)
}

// checkStrided returns an error if two elements of non-contiguous outputs share memory.
func (o *Operation) checkStrided(outs []Piece) error {
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
			if t != u && (j > i || u.Contiguous()) && u.Storage() == t.Storage() && overlap(t, u) {
				return o.shared(i, j, whole(t.DType(), t.Shape()), whole(u.DType(), u.Shape()))
			}
		}
	}
	return nil
}

func whole(d core.DType, shape []int) string { return fmt.Sprintf("%v%v", d, shape) }

// overlap reports whether two tensors of one storage share an element.
func overlap(t, u *core.Tensor) bool {
	from, to := extent(t)
	if lo, hi := extent(u); t.DType() != u.DType() || lo > to || from > hi {
		return false
	}
	if r, ok := rowsOf(t); ok {
		if q, ok := rowsOf(u); ok {
			return r.meets(q, u.Offset()-t.Offset())
		}
	}
	elements := map[int]bool{}
	each(t, func(at int) { elements[at] = true })
	found := false
	each(u, func(at int) { found = found || elements[at] })
	return found
}

// extent returns the positions of the first and the last element of t in its storage.
func extent(t *core.Tensor) (first, last int) {
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

// each calls f with the position of every element of t in its storage.
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

// clash returns an error if the ranks' memory overlaps so that one step would change what another one reads or writes.
func clash(plan []step, calls []*rankCall) (err error) {
	var accesses []access
	for i := range plan {
		s := &plan[i]
		for _, list := range [][]source{s.ins, s.outs} {
			for _, src := range list {
				p := calls[src.rank]
				if !p.here() {
					continue
				}
				pieces, borrowed := p.op.Ins, p.ins
				if src.out {
					pieces, borrowed = p.op.Outs, p.outs
				}
				piece := &pieces[src.piece]
				memory := borrowed[src.piece].Region(0, 0).Memory
				accesses = append(accesses, access{spanOf(piece, memory, s.from, s.n), src, i})
			}
		}
	}
	eachOverlap(accesses, func(a, b *access) bool {
		same := a.span == b.span
		switch {
		case !a.out && !b.out:
		case same && a.step == b.step: // each element is read before it is written
		case same && a.out && b.out && plan[a.step].op == contract.CombineCopy && plan[b.step].op == contract.CombineCopy &&
			plan[a.step].ins[0] == plan[b.step].ins[0]: // both write the same values
		default:
			err = core.Errorf(core.DistributedError, calls[0].work.label, "%s and %s share memory, so that one would overwrite the other",
				calls[a.rank].op.describe(a.source), calls[b.rank].op.describe(b.source))
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

// describe returns dtype and shape, such as "float32[4 3]".
func (p *Piece) describe() string {
	if core.Numel(p.shape) == p.N {
		return whole(p.dtype, p.shape)
	}
	return fmt.Sprintf("%v[%d]", p.dtype, p.N)
}
