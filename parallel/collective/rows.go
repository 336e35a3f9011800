package collective

// Tensors that are not contiguous, but whose elements lie in rows: a part of a dimension of a larger tensor. Ranks that are threads read and
// write them in their places, without contiguous copies.

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// rows are n runs of length contiguous elements, of which each begins stride after the one before. Zero rows are one run.
type rows struct{ n, length, stride int }

// rowsOf returns the rows of a tensor with elements, or false if it has another layout.
func rowsOf(t *core.Tensor) (r rows, ok bool) {
	shape, strides := t.Shape(), t.Strides()
	r = rows{1, 1, 1}
	for d := len(shape) - 1; d >= 0; d-- {
		switch size, stride := shape[d], strides[d]; {
		case size == 1:
		case r.n == 1 && stride == r.length:
			r.length *= size
		case r.n == 1 && stride > r.length:
			r.n, r.stride = size, stride
		case r.n > 1 && stride == r.n*r.stride:
			r.n *= size
		default:
			return rows{}, false
		}
	}
	return r, true
}

// meets reports whether rows share an element with other rows, which begin by elements later.
func (r rows) meets(q rows, by int) bool {
	if r.n > q.n {
		return q.meets(r, -by)
	}
	for i := range max(r.n, 1) {
		// Of the rows of q, which start at by, by + q.stride and so on, only the last one before the end of this row can meet it.
		from := i*r.stride - by
		last := from + r.length - 1
		if last < 0 {
			continue
		}
		k := 0
		if q.n > 1 {
			k = min(last/q.stride, q.n-1)
		}
		if from < k*q.stride+q.length {
			return true
		}
	}
	return false
}

// minRow is the length from which rows are used in their places, in bytes: shorter ones are faster in a contiguous copy.
const minRow = 64

// InPlace reports whether the group's gathers, scatters and all-to-alls read and write a tensor that is not contiguous in its place: if its
// elements lie in rows, and the ranks are threads of one process that reach each other's memory. Otherwise they use a contiguous copy.
func (g *Group) InPlace(t *core.Tensor) bool {
	_, ok := g.rows(t)
	return ok
}

func (g *Group) rows(t *core.Tensor) (rows, bool) {
	if len(g.local.rendezvous.peers) > 0 || !t.Device().HostAccessible() || t.Numel() == 0 {
		return rows{}, false
	}
	r, ok := rowsOf(t)
	return r, ok && r.length*t.DType().Size() >= minRow
}

// at returns where element e of the piece lies, in elements after the tensor's first.
func (p *Piece) at(e int) int {
	if p.rows.n <= 1 {
		return p.From + e
	}
	return p.From + e/p.rows.length*p.rows.stride + e%p.rows.length
}

// stride returns where rows of a step begin in the piece, after each other.
func (p *Piece) stride(s *step) int {
	if p.rows.n <= 1 {
		return s.n / s.rows
	}
	return p.rows.stride
}

// byRow cuts the steps of pieces in rows at the ends of rows. With together, a step of pieces whose rows are equally long stays whole: one call
// of the kernel does it.
func (p *plan) byRow(together bool) {
	inRows := func(q Piece) bool { return q.rows.n > 1 }
	if !slices.ContainsFunc(p.ops, func(o *Operation) bool {
		return slices.ContainsFunc(o.Ins, inRows) || slices.ContainsFunc(o.Outs, inRows)
	}) {
		return
	}
	var list []step
	for _, s := range p.steps {
		var lengths []int // of rows
		for _, pieces := range [][]source{s.ins, s.outs} {
			for _, src := range pieces {
				if r := p.at(src).rows; r.n > 1 {
					lengths = append(lengths, r.length)
				}
			}
		}
		if len(lengths) > 0 && together && slices.Min(lengths) == slices.Max(lengths) {
			s.rows = s.n / lengths[0]
			list = append(list, s)
			continue
		}
		for end := s.from + s.n; s.from < end; s.from += s.n {
			s.n = end - s.from
			for _, length := range lengths {
				s.n = min(s.n, length-s.from%length)
			}
			list = append(list, s)
		}
	}
	p.steps = list
}
