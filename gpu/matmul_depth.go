package gpu

import "github.com/plait-ml/plait/core"

// apart says whether what a depth has beyond whole tiles is worth a product of its own. On an H200 a program of the large tile that looks
// in each step whether the next is whole takes a third longer, and a product of a small depth a tenth of one with a depth of 1024.
var apart = func(c choice, depth int) bool {
	return tiles[c.number].double && c.pieces == 1 && depth >= 1024
}

// parted returns the product of as many depths as tiles divide, and that of the rest, which is added to the results of the first,
// where rows of a begin at multiples of four and there is a rest; else nil. The first one's last round stays whole: in pieces it would
// not pay to part the depth.
func (p *product) parted() (whole, rest *product) {
	const depth = 16 // of all tiles
	if p.k%depth == 0 || p.k < depth || p.lower || p.gather != nil {
		return nil, nil
	}
	first, last := *p, *p
	first.k, first.relu, first.uncut = p.k-p.k%depth, false, true
	if !first.deepFours() {
		return nil, nil
	}
	last.k, last.beta, last.bias = p.k-first.k, 1, nil
	from := func(o *core.Operand, step int) *core.Operand {
		shifted := *o
		shifted.Offset += first.k * step
		return &shifted
	}
	last.a, last.b = from(p.a, p.ac), from(p.b, p.br)
	return &first, &last
}
