package gpu

import "github.com/plait-ml/plait/core"

// apart says whether what a depth has beyond whole tiles is worth a product of its own. On an H200 a program of the large tile that looks
// in each step whether the next is whole takes a third longer, and a product of a small depth a tenth of one with a depth of 1024.
var apart = func(c choice, depth int) bool {
	return tiles[c.number].double && c.pieces == 1 && depth >= 1024
}

// parted returns the product of as many depths as tiles divide, and that of the rest, which is added to the results of the first,
// where rows of a begin at multiples of four; else a depth of 0.
func (p *product) parted() (whole, rest product) {
	const depth = 16 // of all tiles
	whole, rest = *p, *p
	whole.k, whole.relu = p.k-p.k%depth, false
	if whole.k == p.k || p.lower || p.gather != nil || !whole.deepFours() {
		whole.k = 0
		return whole, rest
	}
	rest.k, rest.beta, rest.bias = p.k-whole.k, 1, nil
	from := func(o *core.Operand, step int) *core.Operand {
		shifted := *o
		shifted.Offset += whole.k * step
		return &shifted
	}
	rest.a, rest.b = from(p.a, p.ac), from(p.b, p.br)
	return whole, rest
}
