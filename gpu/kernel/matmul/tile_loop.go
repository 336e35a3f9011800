package matmul

import (
	"fmt"

	"github.com/plait-ml/plait/gpu/shader"
)

// A loopKind is a form of the loop along K. Drivers' compilers optimise the forms differently; they were measured on an H200.
type loopKind int

const (
	// plainLoop has one buffer for each factor in workgroup memory. It loads the next tile to registers while it multiplies.
	plainLoop loopKind = iota
	// doubleLoop has two buffers for each factor: the next tile is written to one while the other is read, so that one barrier a tile is
	// enough. It is for factors of which neither is contiguous along K.
	doubleLoop
	// countedLoop is plainLoop that counts tiles instead of elements of K. It is for an a that is contiguous along K.
	countedLoop
)

// chooseLoop chooses the loop and the handling of the end of K. ragged says that the last tile may be partial.
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

// alongK writes the loop along K.
func (x *tiledText) alongK() {
	x.loadTiles("begin")
	switch x.loop {
	case doubleLoop:
		x.store("")
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
		x.store("")
		x.Barrier()
		x.step("", "", "k0")
		x.Add("  }")
	}
}

// step multiplies the tiles in one buffer, at position at of K, and loads the next tiles. With double buffering, the next tiles are also
// written to the other buffer.
func (x *tiledText) step(here, there, at string) {
	x.Add("    let next = %s + %du;", at, x.K)
	x.loadTiles("next")
	x.multiply(here)
	if there != here {
		x.store(there)
	}
	x.Barrier()
}

// counted writes [countedLoop]. It counts down, which is 0.7 % faster. The position of the next tile's loads relative to the barrier was
// measured: with split K, loads behind a branch or a barrier cost a fourth of a step; without it, loads before the barrier cost 2 %.
func (x *tiledText) counted() {
	end := "end"
	if x.split {
		end = "max(begin, end)" // a piece may begin past the end of K
	}
	x.Add("  var k0 = begin;\n  for (var left = (%s - begin) / %du; left > 0u; left--) {", end, x.K)
	x.store("")
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

// Lanes defines tx and ty, an invocation's position in a grid of invocations. wide is its width, a multiple of 8. A warp of 32 covers 8 x 4
// of it, in an order in which lanes 2i and 2i+1 are vertical neighbours, and lanes i and i+2 horizontal ones: NVIDIA GPUs read a vec4 from
// workgroup memory in half the time if all pairs of one of these kinds read the same address.
func Lanes(w *shader.Text, wide int) {
	w.Add("  let tx = li / 32u %% %du * 8u + ((li >> 1u) & 1u) + ((li >> 3u) & 3u) * 2u;", wide/8)
	w.Add("  let ty = li / %du * 4u + (li & 1u) + ((li >> 2u) & 1u) * 2u;", 4*wide)
}

// accumulators declares the accumulators of an invocation: c_G_I_H is row I of row group G, in column group H. The groups of an invocation
// are interleaved with those of the others, so that neighbouring invocations read neighbouring addresses.
func (x *tiledText) accumulators() {
	Lanes(x.Text, x.Cols/x.ThreadCols)
	for g := range x.ThreadRows / 4 {
		for i := range 4 {
			for h := range x.ThreadCols / 4 {
				x.Add("  var c_%d_%d_%d = real4();", g, i, h)
			}
		}
	}
}

// multiply adds the product of the tiles in one buffer to the accumulators. If it is unrolled, rows of the tiles have constant indices:
// then only the indices within a row need bounds checks, and those are the same in every row.
func (x *tiledText) multiply(buffer string) {
	step := func(k string) {
		for g := range x.ThreadRows / 4 {
			x.Add("      let a%d = sh_a%s[%s][%du + ty];", g, buffer, k, g*x.Rows/x.ThreadRows)
		}
		for h := range x.ThreadCols / 4 {
			x.Add("      let b%d = sh_b%s[%s][%du + tx];", h, buffer, k, h*x.Cols/x.ThreadCols)
		}
		for g := range x.ThreadRows / 4 {
			for i := range 4 {
				for h := range x.ThreadCols / 4 {
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
