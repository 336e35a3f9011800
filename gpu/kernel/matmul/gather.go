package matmul

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// A Gather makes a product an implicit GEMM: one factor is the im2col matrix of images, whose elements are read from the images. Two tables
// say where: one has an entry for each element of a patch, the other for each place of a patch in all images. An entry is two words. The first
// is its part of the position in memory, and the sum of both is the position. The second is a mask with a bit for each dimension and tap:
// which taps the element needs, and which taps of the place lie inside the image. An element whose taps are not all inside is zero.
type Gather struct {
	Tables           *core.Operand // the elements', then the places'
	Elements, Places int           // how many there are
	Rows             bool          // the factor is a, and K runs over the places; else it is b, and columns do
	Channels, Step   int           // how many channels each tap has, and the stride between them in an image
}

// A gatherText writes the text of a gather for a tile.
type gatherText struct {
	side           *side
	loads          int
	across, alongK gatherAxis
	rows           bool
	step           string
}

// A gatherAxis is a table of a gather along a dimension of the product.
type gatherAxis struct {
	first   string // position of the first entry
	last    string // the last entry's number, to which reads are clamped; empty if they need not be
	numbers string // prefix of the variables with the places of loads in the tile
	entries int    // entries that an invocation needs: one for each load, or one for all
	blocks  bool   // the tile's entries are channels of one tap
}

// name returns the name of the product's programs.
func (p *Product) name() string {
	if p.Gather != nil {
		return "conv"
	}
	return "matmul"
}

// bind adds the tables to the program and has the factor's side loaded by them.
func (g *Gather) bind(s *shader.Builder, a, b *side, t tile) {
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
	x.gather = &gatherText{side: x, loads: loads, across: places, alongK: elements, rows: g.Rows, step: s.Uint(g.Step)}
	if g.Rows {
		x.gather.across, x.gather.alongK = elements, places
	}
	x.gather.across.numbers, x.gather.alongK.numbers, x.gather.alongK.last = x.name+"_x", x.name+"_d", ""
}

// entry returns an expression for the entry of a load in the tile that begins at origin.
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

// of returns the number of a load's entry.
func (a *gatherAxis) of(load int) int { return min(load, a.entries-1) }

// ahead reports whether the entry for the next tile along K is read one tile ahead: it is, if all loads share it.
func (g *gatherText) ahead() bool { return g.alongK.entries == 1 }

// checks returns how many mask comparisons the loads of an invocation need.
func (g *gatherText) checks() int { return max(g.across.entries, g.alongK.entries) }

// prepare is [side.prepare]: the entries across are read here, and positions hold what does not change along K.
func (g *gatherText) prepare(w *shader.Text, t tile, origin string) {
	x := g.side.name
	for l := range g.loads {
		across, k := g.side.place(t, l)
		w.Add("  let %s_x%d = %s;", x, l, across)
		w.Add(`  let %s_d%d = %s;
  var %s_v%d: real;`, x, l, k, x, l)
	}
	for i := range g.across.entries {
		w.Add("  let %s_e%d = %s;", x, i, g.across.entry(origin, i))
	}
	for l := range g.loads {
		position := fmt.Sprintf("%s + %s_e%d.x", g.side.first, x, g.across.of(l))
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
	if g.ahead() {
		w.Add("  var %s_n = %s;", x, g.alongK.entry("begin", 0))
	}
}

// load is [side.load] without the zeros outside of images: put writes those, so that no load is waited for here.
func (g *gatherText) load(w *shader.Text, t tile, at string, ends bool) {
	x := g.side.name
	if g.ahead() {
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

// put is [side.put].
func (g *gatherText) put(w *shader.Text, half string) {
	x := g.side.name
	for l := range g.loads {
		w.Add("    sh_%s%s[%s_d%d][%s_x%d >> 2u][%s_x%d & 3u] = select(0.0, %s_v%d, %s_i%d);", x, half, x, l, x, l, x, l, x, l, x, min(l, g.checks()-1))
	}
}
