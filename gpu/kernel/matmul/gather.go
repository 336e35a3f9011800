package matmul

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// A Gather makes a product an implicit GEMM: one factor is an im2col matrix that is not stored; its elements are read from the images. Two
// tables hold the index arithmetic. One has an entry for each element of a patch, the other for each position of a patch in all images. An
// entry has two words. The first words of both entries add up to an element's index in memory. The second word is a mask with a bit for
// each dimension and tap of the kernel: for an element of a patch, the taps that it needs; for a position, the taps that lie inside the
// image. An element is zero if a tap that it needs lies outside.
type Gather struct {
	Tables           *core.Operand // the table of elements, followed by that of positions
	Elements, Places int           // lengths of the tables
	Rows             bool          // the im2col matrix is a, and K runs over positions; otherwise it is b, whose columns are positions
	Channels, Step   int           // channels of each tap, and the stride between them in an image
}

// A gatherText writes the statements that load a tile of the im2col matrix.
type gatherText struct {
	factor         *factor
	loads          int
	across, alongK gatherAxis
	rows           bool
	step           string
}

// A gatherAxis is one of the tables, along one dimension of the matrix.
type gatherAxis struct {
	first   string // index of the first entry
	last    string // index of the last entry, to which reads are clamped; empty if no clamp is needed
	numbers string // prefix of the variables that hold the offsets of loads in the tile
	entries int    // entries that an invocation reads for a tile: one for each load, or one for all
	blocks  bool   // all entries of a tile are channels of one tap
}

// name returns the name of the product's programs.
func (p *Product) name() string {
	if p.Gather != nil {
		return "conv"
	}
	return "matmul"
}

// bind binds the tables and makes the factor load by them.
func (g *Gather) bind(s *shader.Builder, a, b *factor, t tile) {
	x := b
	if s.Flag(g.Rows) {
		x = a
	}
	loads := x.loads(t)
	elements := gatherAxis{entries: loads, first: s.In("t", g.Tables, expr.I64, expr.Number), last: s.Uint(g.Elements - 1)}
	places := gatherAxis{entries: 1, first: elements.first + " + " + s.Uint(g.Elements), last: s.Uint(g.Places - 1)}
	along, beside := t.K, x.across
	if g.Rows {
		along, beside = beside, along
	}
	if t.Threads()%beside != 0 {
		places.entries = loads
	}
	if elements.blocks = s.Flag(g.Channels%along == 0); elements.blocks {
		elements.entries = 1
	}
	x.gather = &gatherText{factor: x, loads: loads, across: places, alongK: elements, rows: g.Rows, step: s.Uint(g.Step)}
	if g.Rows {
		x.gather.across, x.gather.alongK = elements, places
	}
	x.gather.across.numbers, x.gather.alongK.numbers, x.gather.alongK.last = x.name+"_x", x.name+"_d", ""
}

// entry returns the expression for the entry of a load, in the tile that begins at origin.
func (a *gatherAxis) entry(origin string, load int) string {
	if a.blocks {
		return fmt.Sprintf("ld_t(%s + %s)", a.first, origin)
	}
	at := fmt.Sprintf("%s + %s%d", origin, a.numbers, load)
	if a.last != "" {
		at = "min(" + at + ", " + a.last + ")"
	}
	return fmt.Sprintf("ld_t(%s + %s)", a.first, at)
}

// of returns the index of a load's entry among those that the invocation read.
func (a *gatherAxis) of(load int) int { return min(load, a.entries-1) }

// prefetched reports whether the entry of the next tile along K is read one tile ahead, which is done if all loads share it.
func (g *gatherText) prefetched() bool { return g.alongK.entries == 1 }

// checks returns how many comparisons of masks an invocation makes for a tile.
func (g *gatherText) checks() int { return max(g.across.entries, g.alongK.entries) }

// prepare is [factor.prepare]. It reads the entries of the table across K, and computes the part of each index that is constant along K.
func (g *gatherText) prepare(w *shader.Text, t tile, origin string) {
	x := g.factor.name
	for l := range g.loads {
		across, k := g.factor.place(t, l)
		w.Add("  let %s_x%d = %s;", x, l, across)
		w.Add(`  let %s_d%d = %s;
  var %s_v%d: real;`, x, l, k, x, l)
	}
	for i := range g.across.entries {
		w.Add("  let %s_e%d = %s;", x, i, g.across.entry(origin, i))
	}
	for l := range g.loads {
		position := fmt.Sprintf("%s + %s_e%d.x", g.factor.first, x, g.across.of(l))
		if g.across.blocks {
			position += fmt.Sprintf(" + %s_x%d * %s", x, l, g.step)
		}
		if g.alongK.blocks {
			position += fmt.Sprintf(" + %s_d%d * %s", x, l, g.step)
		}
		w.Add("  let %s_p%d = %s;", x, l, position)
	}
	for i := range g.checks() {
		w.Add("  let %s_m%d = %s_e%d.y;", x, i, x, g.across.of(i))
		w.Add("  var %s_i%d: bool;", x, i)
	}
	if g.prefetched() {
		w.Add("  var %s_n = %s;", x, g.alongK.entry("begin", 0))
	}
}

// load is [factor.load]. It leaves the zeros outside of images to store, so that the result of no load is waited for here.
func (g *gatherText) load(w *shader.Text, t tile, at string, ends bool) {
	x := g.factor.name
	if g.prefetched() {
		w.Add(`    let %s_e0 = %s_n;
    %s_n = %s;`, x, x, x, g.alongK.entry(fmt.Sprintf("%s + %du", at, t.K), 0))
	} else {
		for i := range g.alongK.entries {
			w.Add("    let %s_e%d = %s;", x, i, g.alongK.entry(at, i))
		}
	}
	for l := range g.loads {
		w.Add("    %s_v%d = ld_%s(%s_p%d + %s_e%d.x);", x, l, x, x, l, x, g.alongK.of(l))
	}
	for i := range g.checks() {
		have, need := fmt.Sprintf("%s_m%d", x, i), fmt.Sprintf("%s_e%d.y", x, g.alongK.of(i))
		if g.rows {
			have, need = need, have
		}
		inside := fmt.Sprintf("(%s & %s) == %s", have, need, need)
		if ends {
			inside += fmt.Sprintf(" && %s + %s_d%d < end", at, x, i)
		}
		w.Add("    %s_i%d = %s;", x, i, inside)
	}
}

// store is [factor.store].
func (g *gatherText) store(w *shader.Text, buffer string) {
	x := g.factor.name
	for l := range g.loads {
		w.Add("    sh_%s%s[%s_d%d][%s_x%d >> 2u][%s_x%d & 3u] = select(0.0, %s_v%d, %s_i%d);", x, buffer, x, l, x, l, x, l, x, l, x, min(l, g.checks()-1))
	}
}
