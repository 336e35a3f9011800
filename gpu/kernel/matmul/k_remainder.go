package matmul

import (
	"github.com/plait-ml/plait/core"
)

// remainderPays reports whether the remainder of K is worth a product of its own. p is the product over whole tiles.
func (p *Product) remainderPays() bool {
	c, least := p.estimate(), p.gpu.RemainderK
	return least == 0 || p.gpu.Tiles[c.tile].Double && c.pieces == 1 && p.K >= least-least%16
}

// splitRemainder divides a product whose K is not a multiple of the tiles' into one over whole tiles, and one over the remainder that adds
// to the results of the first. It returns nil if there is no remainder, if rows of a cannot be read four elements at a time, or if the
// output would round the results of the first product. The first product does not split its last wave, which would cost more than a
// separate remainder gains.
func (p *Product) splitRemainder() (whole, rest *Product) {
	const tileK = 16 // the K of every tile
	if p.K%tileK == 0 || p.K < tileK || p.Folded || p.Gather != nil || p.Out.DType.IsHalf() {
		return nil, nil
	}
	first, last := *p, *p
	first.K, first.wholeLastWave = p.K-p.K%tileK, true
	if !first.vec4AlongK() {
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
