package matmul

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// A Gather is the factor of a product whose elements are those of images' patches, read from the images themselves. Two tables say
// where: one has an entry for each element of a patch, the other for each place of the patches in all images. An entry is two
// words, the first of which is its part of the position. The second says by bits, for each dimension and tap, of an element which
// taps it is of, and of a place which taps fall into its image; where one is missing the element is zero.
type Gather struct {
	Tables           *core.Operand // the elements', then the places'
	Elements, Places int           // how many there are
	Rows             bool          // it is a, and the places are its depth; else it is b, and they lie across
	Channels, Step   int           // how many elements of each tap follow one another, and how far apart they are in an image
}

// A gatherText is a gather as WGSL, for a tile.
type gatherText struct {
	side          *side
	loads         int
	across, depth gatherAxis
	rows          bool
	step          string
}

// A gatherAxis is a table of a gather along a dimension of the product.
type gatherAxis struct {
	first   string // entry
	last    string // number, beyond which nothing is read; empty for none
	numbers string // where in the tile loads are
	entries int    // how many an invocation needs for its loads: one for each, or one for all
	blocks  bool   // the tile's entries are channels of one tap
}

// name returns that of the product's programs.
func (p *Product) name() string {
	if p.Gather != nil {
		return "conv"
	}
	return "matmul"
}

// bind adds the gather to a shader and makes it the side's whose factor it is.
func (g *Gather) bind(s *shader.Builder, a, b *side, t tile) {
	x := b
	if s.Flag(g.Rows) {
		x = a
	}
	loads := x.loads(t)
	elements := gatherAxis{entries: loads, first: s.In("t", g.Tables, expr.I64, expr.Number), last: s.Uint(g.Elements - 1)}
	places := gatherAxis{entries: 1, first: elements.first + " + " + s.Uint(g.Elements), last: s.Uint(g.Places - 1)}
	along, beside := t.Depth, x.across
	if g.Rows {
		along, beside = beside, along
	}
	if t.Threads()%beside != 0 {
		places.entries = loads
	}
	if elements.blocks = s.Flag(g.Channels%along == 0); elements.blocks {
		elements.entries = 1
	}
	x.gather = &gatherText{side: x, loads: loads, across: places, depth: elements, rows: g.Rows, step: s.Uint(g.Step)}
	if g.Rows {
		x.gather.across, x.gather.depth = elements, places
	}
	x.gather.across.numbers, x.gather.depth.numbers, x.gather.depth.last = x.name+"_x", x.name+"_d", ""
}

// entry returns WGSL for the entry of a load in the tile that begins at origin.
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

// ahead reports whether the entry of the next tile's depth is read with the loads of a tile, as one that all loads share can be.
func (g *gatherText) ahead() bool { return g.depth.entries == 1 }

// checks is how many values say which loads are inside of images.
func (g *gatherText) checks() int { return max(g.across.entries, g.depth.entries) }

// prepare is [side.prepare]: the entries across are read here, and positions hold what does not change along the depth.
func (g *gatherText) prepare(w *strings.Builder, t tile, origin string) {
	x := g.side.name
	for l := range g.loads {
		across, deep := g.side.place(t, l)
		fmt.Fprintf(w, "  let %s_x%d = %s;\n  let %s_d%d = %s;\n  var %s_v%d: f32;\n", x, l, across, x, l, deep, x, l)
	}
	for i := range g.across.entries {
		fmt.Fprintf(w, "  let %s_e%d = %s;\n", x, i, g.across.entry(origin, i))
	}
	for l := range g.loads {
		position := fmt.Sprintf("%s + %s_e%d.x", g.side.first, x, g.across.of(l))
		if g.across.blocks {
			position += fmt.Sprintf(" + %s_x%d * %s", x, l, g.step)
		}
		if g.depth.blocks {
			position += fmt.Sprintf(" + %s_d%d * %s", x, l, g.step)
		}
		fmt.Fprintf(w, "  let %s_p%d = %s;\n", x, l, position)
	}
	for i := range g.checks() {
		fmt.Fprintf(w, "  let %s_m%d = %s_e%d.y;\n  var %s_i%d: bool;\n", x, i, x, g.across.of(i), x, i)
	}
	if g.ahead() {
		fmt.Fprintf(w, "  var %s_n = %s;\n", x, g.depth.entry("begin", 0))
	}
}

// load is [side.load], but for zeros, which put writes in the place of what is outside: so nothing waits for the loads before.
func (g *gatherText) load(w *strings.Builder, t tile, at string, ends bool) {
	x := g.side.name
	if g.ahead() {
		fmt.Fprintf(w, "    let %s_e0 = %s_n;\n    %s_n = %s;\n", x, x, x, g.depth.entry(fmt.Sprintf("%s + %du", at, t.Depth), 0))
	} else {
		for i := range g.depth.entries {
			fmt.Fprintf(w, "    let %s_e%d = %s;\n", x, i, g.depth.entry(at, i))
		}
	}
	for l := range g.loads {
		fmt.Fprintf(w, "    %s_v%d = ld_%s(%s_p%d + %s_e%d.x);\n", x, l, x, x, l, x, g.depth.of(l))
	}
	for i := range g.checks() {
		have, need := fmt.Sprintf("%s_m%d", x, i), fmt.Sprintf("%s_e%d.y", x, g.depth.of(i))
		if g.rows {
			have, need = need, have
		}
		fmt.Fprintf(w, "    %s_i%d = (%s & %s) == %s", x, i, have, need, need)
		if ends {
			fmt.Fprintf(w, " && %s + %s_d%d < end", at, x, i)
		}
		w.WriteString(";\n")
	}
}

// put is [side.put].
func (g *gatherText) put(w *strings.Builder, buffer string) {
	x := g.side.name
	for l := range g.loads {
		fmt.Fprintf(w, "    sh_%s%s[%s_d%d][%s_x%d >> 2u][%s_x%d & 3u] = select(0.0, %s_v%d, %s_i%d);\n",
			x, buffer, x, l, x, l, x, l, x, l, x, min(l, g.checks()-1))
	}
}
