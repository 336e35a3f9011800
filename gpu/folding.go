package gpu

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

const (
	// longLoop is how many elements an invocation takes at most; lavapipe ends loops after 65535 rounds.
	longLoop = 4096
	// busy is how many invocations fill a GPU.
	busy = 1 << 17
)

// Measured on an H200: where workgroups share columns is faster by 1 to 2 us of 7 to 11 up to this many elements, and by none from three times
// as many on.
const sharedColumns = 1 << 23

// mostSide is how many fours of columns a workgroup shares at most, leastShares how many such workgroups there are at least.
var mostSide, leastShares = 4, 64

// A folding is how a reduction is divided over invocations: each result by a workgroup where its elements are neighbours, or
// by one invocation where results are neighbours. Where there are too few results for that, workgroups share a few neighbours
// each, or pieces are reduced to states first and these then joined.
type folding struct {
	kept, reduced layout
	width         int  // invocations for each result
	side          int  // results, or fours of them, that a workgroup of more has side by side
	four          bool // elements are read by fours: of one result, or of four
	pieces, chunk int  // of the elements of a result, in such fours if they are of one
}

func (f *fold) divide(in *core.Operand, outs []*core.Operand, dims []int64) *folding {
	p := &folding{width: 1, side: 1}
	p.kept, p.reduced = split(in, outs, dims)
	n := p.reduced.count
	rows := n > 16 && len(p.reduced.sizes) > 0
	if rows && len(p.kept.sizes) > 0 {
		inner, across := p.kept.strides[0][len(p.kept.sizes)-1], p.reduced.strides[0][len(p.reduced.sizes)-1]
		rows = across <= inner || p.kept.count < 64
	}
	if rows {
		if p.width = 64; n > 512 {
			p.width = 256
		}
	}
	p.four = f.kind == expr.Number && p.fours(in)
	results := p.kept.count
	switch {
	case p.four && rows:
		n /= 4
	case p.four:
		results /= 4
	}
	p.pieces = 1
	if each := n / p.width; each > 64 && results > 0 && results*p.width < busy {
		p.pieces = min(max(busy/(results*p.width), 1), each/16, 1024)
	}
	if side := p.columns(results, n); p.pieces > 1 && side > 0 {
		p.pieces, p.side, p.width = 1, side, threads/side
	}
	p.pieces = max(p.pieces, ceil(n, longLoop*p.width))
	p.chunk = ceil(n, p.pieces)
	return p
}

// columns returns how many fours of neighbouring results a workgroup has if it goes through all of their n elements, so that one
// dispatch does; 0 where two are faster: there are few workgroups, or there is much to read.
func (p *folding) columns(results, n int) int {
	if p.width > 1 || !p.four || 4*results*n > sharedColumns {
		return 0
	}
	side := 0
	for s := 2; s <= mostSide && results%s == 0 && results/s >= leastShares && n*s >= 16*threads; s *= 2 {
		side = s
	}
	return side
}

// fours reports whether elements can be read by fours: of a result where its elements are neighbours, or of as many results.
func (p *folding) fours(in *core.Operand) bool {
	if in.DType != core.Float32 || base(in)%4 != 0 {
		return false
	}
	inner, other := &p.reduced, &p.kept
	if p.width == 1 {
		inner, other = other, inner
	}
	last := len(inner.sizes) - 1
	if last < 0 || inner.strides[0][last] != 1 || inner.sizes[last]%4 != 0 {
		return false
	}
	divides := func(n int) bool { return n%4 == 0 }
	return all(inner.strides[0][:last], divides) && all(other.strides[0], divides)
}

func all(list []int, ok func(int) bool) bool {
	return !slices.ContainsFunc(list, func(n int) bool { return !ok(n) })
}

// quarter returns a loop over fours of the innermost dimension.
func (l *layout) quarter() layout {
	q := layout{sizes: slices.Clone(l.sizes), count: l.count / 4}
	last := len(q.sizes) - 1
	q.sizes[last] /= 4
	for _, s := range l.strides {
		s = slices.Clone(s)
		s[last] *= 4
		q.strides = append(q.strides, s)
	}
	return q
}

// split returns the loops over the kept and the reduced dimensions of in. The strides of outs, which have the reduced
// dimensions left out or of size 1, follow those of in among the kept.
func split(in *core.Operand, outs []*core.Operand, dims []int64) (kept, reduced layout) {
	kept.strides, reduced.strides = make([][]int, 1+len(outs)), make([][]int, 1)
	kept.count, reduced.count = 1, 1
	steps := make([]int, 1+len(outs))
	at := 0
	for d, n := range in.Shape {
		if slices.Contains(dims, int64(d)) {
			reduced.count *= n
			reduced.push(n, in.Strides[d])
			if len(outs[0].Shape) == len(in.Shape) {
				at++
			}
			continue
		}
		steps[0] = in.Strides[d]
		for i, o := range outs {
			steps[1+i] = o.Strides[at]
		}
		at++
		kept.count *= n
		kept.push(n, steps...)
	}
	return kept, reduced
}
