package matmul

import (
	"fmt"

	"github.com/plait-ml/plait/gpu/shader"
)

// A loopKind is a way of going along K. What the compilers of drivers make of these loops differs; they were measured on an H200.
type loopKind int

const (
	// plainLoop has one tile of each factor in workgroup memory, and loads the next tile while it multiplies.
	plainLoop loopKind = iota
	// doubleLoop has two tiles of each factor in workgroup memory: the next is written while one is read, so that one barrier a tile is
	// enough. It is for factors of which neither is consecutive along K.
	doubleLoop
	// countedLoop is plainLoop with a counter of tiles instead of a position. It is for an a that is consecutive along K.
	countedLoop
)

// chooseLoop chooses how the program goes along K. ragged says that the last tile may be partial.
func (x *tiledText) chooseLoop(ragged bool) {
	x.loop, x.end = plainLoop, testedEnd
	switch {
	case x.Double && !x.a.alongK && !x.b.alongK:
		x.loop = doubleLoop
	case x.Double && x.a.alongK && !x.b.alongK && !ragged:
		x.loop = countedLoop
	}
	switch {
	case ragged:
		x.end = raggedEnd
	case x.b.alongK:
		x.end = clampedEnd
	}
}

// alongK writes the loop.
func (x *tiledText) alongK() {
	x.loadTiles("begin")
	switch x.loop {
	case doubleLoop:
		x.put("")
		x.Barrier()
		x.Add("  for (var k0 = begin; k0 < end; k0 += %du) {\n    {", 2*x.K)
		x.step("", "2", "k0")
		x.Add("    }\n    if (k0 + %du < end) {", x.K)
		x.step("2", "", fmt.Sprintf("k0 + %du", x.K))
		x.Add("    }\n  }")
	case countedLoop:
		x.counted()
	default:
		x.Add("  for (var k0 = begin; k0 < end; k0 += %du) {", x.K)
		x.put("")
		x.Barrier()
		x.step("", "", "k0")
		x.Add("  }")
	}
}

// step multiplies the tiles in one half of workgroup memory, at position at of K, and loads the next; where there is another half they go
// there at once.
func (x *tiledText) step(here, there, at string) {
	x.Add("    let next = %s + %du;", at, x.K)
	x.loadTiles("next")
	x.multiply(here)
	if there != here {
		x.put(there)
	}
	x.Barrier()
}

// counted writes [countedLoop], which counts down where that is faster (0.7 %). Where the loads of the next tile stand relative to the
// barrier was measured: in programs with pieces, loads behind a branch or a barrier cost a fourth of a step; in others loads before it cost
// 2 %.
func (x *tiledText) counted() {
	end := "end"
	if x.split {
		end = "max(begin, end)" // a piece may begin past the end of K
	}
	x.Add("  var k0 = begin;\n  for (var left = (%s - begin) / %du; left > 0u; left--) {", end, x.K)
	x.put("")
	if x.split {
		x.Add("    k0 += %du;\n    let near = select(begin, k0, left > 1u);", x.K)
		x.load("near", false)
		x.Barrier()
	} else {
		x.Barrier()
		x.Add("    k0 += %du;\n    if (left > 1u) {", x.K)
		x.load("k0", false)
		x.Add("    }")
	}
	x.multiply("")
	x.Barrier()
	x.Add("  }")
}

// Lanes defines an invocation's place, tx and ty, in a grid that is wide invocations wide, a multiple of 8. A warp of 32 covers 8 x 4 of it, in
// an order in which lanes 2i and 2i+1 lie one below the other, and lanes i and i+2 side by side: NVIDIA serves a vec4 read of
// workgroup memory in half the time if all pairs of the one or the other kind read the same address.
func Lanes(w *shader.Text, wide int) {
	w.Add("  let tx = li / 32u %% %du * 8u + ((li >> 1u) & 1u) + ((li >> 3u) & 3u) * 2u;", wide/8)
	w.Add("  let ty = li / %du * 4u + (li & 1u) + ((li >> 2u) & 1u) * 2u;", 4*wide)
}

// accumulators defines the registers of an invocation's results: c_G_I_H for row I of row group G and columns group H. The
// groups of an invocation lie apart by those of the others, so that neighbours read neighbours.
func (x *tiledText) accumulators() {
	Lanes(x.Text, x.Cols/x.Wide)
	for g := range x.High / 4 {
		for i := range 4 {
			for h := range x.Wide / 4 {
				x.Add("  var c_%d_%d_%d = real4();", g, i, h)
			}
		}
	}
}

// multiply adds the product of the tiles in a half of workgroup memory. Rows of the tiles have constant indices where it is unrolled: only
// the places in them are checked, and those are the same in every row.
func (x *tiledText) multiply(half string) {
	step := func(k string) {
		for g := range x.High / 4 {
			x.Add("      let a%d = sh_a%s[%s][%du + ty];", g, half, k, g*x.Rows/x.High)
		}
		for h := range x.Wide / 4 {
			x.Add("      let b%d = sh_b%s[%s][%du + tx];", h, half, k, h*x.Cols/x.Wide)
		}
		for g := range x.High / 4 {
			for i := range 4 {
				for h := range x.Wide / 4 {
					x.Add("      c_%d_%d_%d = fma(real4(a%d.%s), b%d, c_%d_%d_%d);", g, i, h, g, shader.Component(i), h, g, i, h)
				}
			}
		}
	}
	if x.unroll {
		for k := range x.K {
			x.Add("    {")
			step(fmt.Sprintf("%du", k))
			x.Add("    }")
		}
		return
	}
	x.Add("    for (var k = 0u; k < %s; k++) {", shader.NoUnroll(x.K))
	step("k")
	x.Add("    }")
}
