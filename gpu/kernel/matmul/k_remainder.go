package matmul

import (
	"github.com/plait-ml/plait/core"
)

// splits reports whether the remainder of K beyond whole tiles is worth a product of its own; p is that of the whole ones.
func (p *Product) splits() bool {
	c, least := p.estimate(), p.gpu.RemainderK
	return least == 0 || p.gpu.Tiles[c.number].Double && c.pieces == 1 && p.K >= least-least%16
}

// splitRemainder returns the product of as many depths as tiles divide, and that of the rest, which is added to the results of the first,
// where rows of a begin at multiples of four and there is a rest; else nil. The first one's last round stays whole: in pieces it would
// not pay to part the depth.
func (p *Product) splitRemainder() (whole, rest *Product) {
	const depth = 16 // of all tiles
	if p.K%depth == 0 || p.K < depth || p.Folded || p.Gather != nil {
		return nil, nil
	}
	first, last := *p, *p
	first.K, first.relu, first.uncut = p.K-p.K%depth, false, true
	if !first.deepFours() {
		return nil, nil
	}
	last.K, last.Beta, last.bias = p.K-first.K, 1, nil
	from := func(o *core.Operand, step int) *core.Operand {
		shifted := *o
		shifted.Offset += first.K * step
		return &shifted
	}
	last.A, last.B = from(p.A, p.ACol), from(p.B, p.BRow)
	return &first, &last
}
