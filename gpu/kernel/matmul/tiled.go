package matmul

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// Lanes defines an invocation's place, tx and ty, in a grid that is wide invocations wide, a multiple of 8. A warp of 32 covers 8 x 4 of it, in
// an order in which lanes 2i and 2i+1 lie one below the other, and lanes i and i+2 side by side: NVIDIA serves a vec4 read of
// workgroup memory in half the time if all pairs of the one or the other kind read the same address.
func Lanes(wide int) string {
	return fmt.Sprintf("  let tx = li / 32u %% %du * 8u + ((li >> 1u) & 1u) + ((li >> 3u) & 3u) * 2u;\n", wide/8) +
		fmt.Sprintf("  let ty = li / %du * 4u + (li & 1u) + ((li >> 2u) & 1u) * 2u;\n", 4*wide)
}

// A tile writes the text of the program that computes by it.
type tile struct{ shader.Tile }

// A side is one factor of a product as a workgroup loads it: tiles of across x depth elements, depth along K.
type side struct {
	name        string      // of the operand; its tile in workgroup memory is sh_NAME
	across      int         // rows of a, or columns of b
	deep        bool        // consecutive in memory along K
	vec4        bool        // loaded as vec4
	first, step string      // WGSL: position of the first element, and the stride across
	stride      string      // along K
	folded      bool        // rows begin where the function folded says
	gather      *gatherText // nil, or what loads it
}

// Tiled computes the product by a tile. With parts, piece i of split K is stored there as product i, without the epilogue.
func (p *Product) Tiled(r *shader.Recorder, number, pieces int, parts *core.Memory) error {
	for first := 0; first < p.Batch.Count*pieces; {
		most := r.GPU.Workgroups / pieces * pieces
		layers := min(p.Batch.Count*pieces-first, most)
		if err := p.layers(r, number, pieces, 0, parts, first, layers); err != nil {
			return err
		}
		first += layers
	}
	return nil
}

// layers dispatches products first to first+layers of the stack, each piece counting as one. If whole is not 0, there is a single product, of
// which so many tiles are computed whole and the others in pieces, which go to parts.
func (p *Product) layers(r *shader.Recorder, number, pieces, whole int, parts *core.Memory, first, layers int) error {
	t := tile{r.GPU.Tiles[number]}
	s := shader.New(r, p.name())
	s.Specialize(number)
	steps := func(i int) []int { return p.Batch.Strides[i] }
	a := side{name: "a", across: t.Rows, deep: s.Flag(p.ACol == 1)}
	a.vec4 = s.Flag(p.deepFours() ||
		p.ACol != 1 && p.ARow == 1 && shader.Aligned(p.A, append([]int{p.ACol}, steps(1)...)...))
	b := side{name: "b", across: t.Cols, deep: s.Flag(p.BRow == 1 && p.BCol != 1)}
	b.vec4 = s.Flag(b.deep && p.K%4 == 0 && shader.Aligned(p.B, append([]int{p.BCol}, steps(2)...)...) ||
		!b.deep && p.BCol == 1 && shader.Aligned(p.B, append([]int{p.BRow}, steps(2)...)...))
	firstA, firstB := s.In("a", p.A, expr.F32, expr.Number), s.In("b", p.B, expr.F32, expr.Number)
	a.step, a.stride, b.step, b.stride = s.Uint(p.ARow), s.Uint(p.ACol), s.Uint(p.BCol), s.Uint(p.BRow)
	m, n, k := s.Uint(p.M), s.Uint(p.N), s.Uint(p.K)
	chunk := shader.Ceil(shader.Ceil(p.K, pieces), t.Depth) * t.Depth
	chunkWord, piecesWord, firstWord, stackWord := s.Uint(chunk), s.Uint(pieces), s.Uint(first), s.Uint(p.Batch.Count)
	for i := range s.Bindings {
		s.Bindings[i].Vec4 = []bool{a.vec4, b.vec4}[i]
	}
	var to, cr, cc string
	var finish finisher
	four := false
	last := s.Flag(whole > 0)
	finished := parts == nil || last
	if s.Flag(!finished) {
		to = s.FloatsOf("c", *parts)
		four = s.Flag(p.N%4 == 0)
		cr, cc = s.Uint(p.N), s.Uint(1)
	} else {
		to = s.Both("c", p.Out, expr.F32)
		four = s.Flag(p.CCol == 1 && p.N%4 == 0 && shader.Aligned(p.Out, append([]int{p.CRow}, steps(0)...)...))
		cr, cc = s.Uint(p.CRow), s.Uint(p.CCol)
		s.Bindings[len(s.Bindings)-1].Vec4 = four
		finish = p.finisher(s)
	}
	if !finished {
		s.Bindings[len(s.Bindings)-1].Vec4 = four
	}
	var l lastText
	if last {
		l = p.lastText(s, t, whole, *parts)
	}
	a.folded = s.Flag(p.Folded)
	ragged := s.Flag(p.K%t.Depth != 0)
	// Neighbours write neighbours where rows of the results cannot be written by fours.
	staged := s.Flag(!four && (!finished || p.CCol == 1) && t.Rows/t.High <= t.Depth)
	finish.early = finish.beta != "" && (four || staged)
	// What the compilers of drivers make of these loops differs; measured on an H200.
	double, clamped := t.Double && !a.deep && !b.deep, b.deep
	counted := t.Double && a.deep && !b.deep && !ragged
	s.Specialize(len(p.Batch.Sizes))
	at := s.Loop(&p.Batch)
	gap := ""
	if p.Gather != nil {
		p.Gather.bind(s, &a, &b, t)
		if finished {
			cr, gap = p.gaps(s, cr)
		}
	}
	unroll := s.Flag(!r.GPU.Software)
	x, y := shader.Ceil(p.N, t.Cols), shader.Ceil(p.M, t.Rows)
	if last {
		x, y = whole+(x*y-whole)*pieces, 1
	}
	return s.RunGrid(r, x, y, layers, func() string {
		var w strings.Builder
		if finished {
			w.WriteString(finish.text() + gap)
		}
		if p.Folded {
			w.WriteString(FoldedFunc)
		}
		for _, x := range []side{a, b} {
			fmt.Fprintf(&w, "var<workgroup> sh_%s: array<array<vec4<f32>, %d>, %d>;\n", x.name, x.across/4, t.Depth)
			if double {
				fmt.Fprintf(&w, "var<workgroup> sh_%s2: array<array<vec4<f32>, %d>, %d>;\n", x.name, x.across/4, t.Depth)
			}
		}
		fmt.Fprintf(&w, "@compute @workgroup_size(%d)\nfn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) li: u32) {\n", t.Threads())
		switch {
		case p.Folded:
			w.WriteString(longestFirst)
		case last:
			w.WriteString(l.number)
		default:
			w.WriteString("  let tile_number = wg.y * grid.x + wg.x;\n" + swizzle("grid.x", "grid.y") + "  let layer_number = wg.z;\n")
		}
		fmt.Fprintf(&w, "  let layer = layer_number + %s;\n  let row0 = tile_row * %du;\n  let col0 = tile_col * %du;\n", firstWord, t.Rows, t.Cols)
		fmt.Fprintf(&w, "  let piece = layer %% %s;\n", piecesWord)
		start := to
		if !finished {
			start = "0u"
		}
		w.WriteString(shader.WalkAs("at_", "layer / "+piecesWord, len(p.Batch.Sizes), 3, at, []string{start, firstA, firstB}))
		// Parameters even where K is whole tiles: with constants here NVIDIA's compiler makes the loop 30 % slower for a read along K.
		begin, end := "piece * "+chunkWord, fmt.Sprintf("min(piece * %s + %s, %s)", chunkWord, chunkWord, k)
		if last {
			end = fmt.Sprintf("select(%s, %s, late)", k, end)
		}
		if p.Folded {
			end = fmt.Sprintf("min(row0 + %du, %s)", t.Rows, k)
		}
		fmt.Fprintf(&w, "  let begin = %s;\n  let end = %s;\n", begin, end)
		a.first, b.first = "at_1", "at_2"
		a.prepare(&w, t, "row0")
		b.prepare(&w, t, "col0")
		t.accumulators(&w)
		loadTiles(&w, t, &a, &b, "begin", ragged, clamped)
		step := func(here, there, at string) {
			fmt.Fprintf(&w, "    let next = %s + %du;\n", at, t.Depth)
			loadTiles(&w, t, &a, &b, "next", ragged, clamped)
			t.multiply(&w, here, unroll)
			if there != here {
				a.put(&w, t, there)
				b.put(&w, t, there)
			}
			w.WriteString("    workgroupBarrier();\n")
		}
		switch {
		case double:
			a.put(&w, t, "")
			b.put(&w, t, "")
			w.WriteString("  workgroupBarrier();\n")
			fmt.Fprintf(&w, "  for (var k0 = begin; k0 < end; k0 += %du) {\n    {\n", 2*t.Depth)
			step("", "2", "k0")
			fmt.Fprintf(&w, "    }\n    if (k0 + %du < end) {\n", t.Depth)
			step("2", "", fmt.Sprintf("k0 + %du", t.Depth))
			w.WriteString("    }\n  }\n")
		case counted:
			t.countedSteps(&w, &a, &b, parts != nil, unroll)
		default:
			fmt.Fprintf(&w, "  for (var k0 = begin; k0 < end; k0 += %du) {\n", t.Depth)
			a.put(&w, t, "")
			b.put(&w, t, "")
			w.WriteString("    workgroupBarrier();\n")
			step("", "", "k0")
			w.WriteString("  }\n")
		}
		if !finished {
			// Pieces are the outermost.
			fmt.Fprintf(&w, "  let c0 = %s + (piece * %s + layer / %s) * %s * %s;\n", to, stackWord, piecesWord, m, n)
		} else {
			w.WriteString("  let c0 = at_0;\n")
		}
		if last {
			w.WriteString("  if (late) {\n")
			t.storePiece(&w, l.place, finish.alpha)
			w.WriteString("  } else {\n")
		}
		t.store(&w, m, n, cr, cc, four, finished, staged, finish)
		if last {
			w.WriteString("  }\n")
		}
		w.WriteString("}\n")
		return w.String()
	})
}

// countedSteps loops over K with one tile of each factor in workgroup memory, counting down where that is faster (0.7 %). Where the loads of
// the next tile stand relative to the barrier was measured: in programs with pieces, loads behind a branch or a barrier cost a fourth of a
// step; in others loads before it cost 2 %.
func (t tile) countedSteps(w *strings.Builder, a, b *side, pieces, unroll bool) {
	end := "end"
	if pieces {
		end = "max(begin, end)" // pieces may be past the depth
	}
	fmt.Fprintf(w, "  var k0 = begin;\n  for (var left = (%s - begin) / %du; left > 0u; left--) {\n", end, t.Depth)
	a.put(w, t, "")
	b.put(w, t, "")
	load := func(at string) {
		a.load(w, t, at, false)
		b.load(w, t, at, false)
	}
	if pieces {
		fmt.Fprintf(w, "    k0 += %du;\n    let near = select(begin, k0, left > 1u);\n", t.Depth)
		load("near")
		w.WriteString("    workgroupBarrier();\n")
	} else {
		fmt.Fprintf(w, "    workgroupBarrier();\n    k0 += %du;\n    if (left > 1u) {\n", t.Depth)
		load("k0")
		w.WriteString("    }\n")
	}
	t.multiply(w, "", unroll)
	w.WriteString("    workgroupBarrier();\n  }\n")
}

// loads returns how many values, or vec4, each invocation loads of the side's tile.
func (x *side) loads(t tile) int {
	if x.vec4 {
		return x.across * t.Depth / 4 / t.Threads()
	}
	return x.across * t.Depth / t.Threads()
}

// place returns WGSL for where, across and deep in the tile, load number l of an invocation goes; a vec4 starts there.
func (x *side) place(t tile, l int) (across, deep string) {
	e := fmt.Sprintf("(li + %du)", l*t.Threads())
	per, scale := t.Depth, ""
	if !x.deep {
		per = x.across
	}
	if x.vec4 {
		per, scale = per/4, " * 4u"
	}
	near, far := fmt.Sprintf("%s %% %du%s", e, per, scale), fmt.Sprintf("%s / %du", e, per)
	if x.deep {
		return far, near
	}
	return near, far
}

// prepare defines the registers of the loads.
func (x *side) prepare(w *strings.Builder, t tile, origin string) {
	if x.gather != nil {
		x.gather.prepare(w, t, origin)
		return
	}
	kind := "f32"
	if x.vec4 {
		kind = "vec4<f32>"
	}
	for l := range x.loads(t) {
		across, deep := x.place(t, l)
		fmt.Fprintf(w, "  let %s_x%d = %s;\n  let %s_d%d = %s;\n  var %s_v%d: %s;\n", x.name, l, across, x.name, l, deep, x.name, l, kind)
		fmt.Fprintf(w, "  let %s_p%d = %s + (%s + %s_x%d) * %s + %s_d%d * %s;\n", x.name, l, x.first, origin, x.name, l, x.step, x.name, l, x.stride)
	}
}

// load fills the registers from memory. Where K ends inside the tile, zeros follow. Beyond the edges across, anything may be loaded: its
// results are not stored, and WebGPU makes reads past a buffer harmless.
func (x *side) load(w *strings.Builder, t tile, at string, ends bool) {
	if x.gather != nil {
		x.gather.load(w, t, at, ends)
		return
	}
	depth := at + " * " + x.stride
	if x.folded {
		depth = "folded(" + at + ", " + x.stride + ")"
	}
	for l := range x.loads(t) {
		position := fmt.Sprintf("%s_p%d + %s", x.name, l, depth)
		value, zero := fmt.Sprintf("ld_%s(%s)", x.name, position), "0.0"
		if x.vec4 {
			value, zero = fmt.Sprintf("%s[(%s) >> 2u]", x.name, position), "vec4<f32>()"
		}
		if ends {
			fmt.Fprintf(w, "    %s_v%d = %s;\n    if (%s + %s_d%d < end) { %s_v%d = %s; }\n", x.name, l, zero, at, x.name, l, x.name, l, value)
		} else {
			fmt.Fprintf(w, "    %s_v%d = %s;\n", x.name, l, value)
		}
	}
}

// loadTiles fills the registers of both sides with the tile at position at of K, if that is before the end. ragged says that the last tile
// may be partial.
func loadTiles(w *strings.Builder, t tile, a, b *side, at string, ragged, clamped bool) {
	whole := func(at string) {
		a.load(w, t, at, false)
		b.load(w, t, at, false)
	}
	switch {
	case ragged:
		fmt.Fprintf(w, "    if (%s + %du <= end) {\n", at, t.Depth)
		whole(at)
		fmt.Fprintf(w, "    } else if (%s < end) {\n", at)
		a.load(w, t, at, true)
		b.load(w, t, at, true)
		w.WriteString("    }\n")
	case clamped:
		fmt.Fprintf(w, "    {\n    let near = min(%s, max(end, %du) - %du);\n", at, t.Depth, t.Depth)
		whole("near")
		w.WriteString("    }\n")
	default:
		fmt.Fprintf(w, "    if (%s < end) {\n", at)
		whole(at)
		w.WriteString("    }\n")
	}
}

// put writes the registers to the tile in workgroup memory, consecutive across.
func (x *side) put(w *strings.Builder, t tile, buffer string) {
	if x.gather != nil {
		x.gather.put(w, buffer)
		return
	}
	for l := range x.loads(t) {
		to := fmt.Sprintf("    sh_%s%s[%s_d%d", x.name, buffer, x.name, l)
		place := fmt.Sprintf("[%s_x%d >> 2u]", x.name, l)
		component := fmt.Sprintf("[%s_x%d & 3u]", x.name, l)
		switch {
		case x.vec4 && !x.deep:
			fmt.Fprintf(w, "%s]%s = %s_v%d;\n", to, place, x.name, l)
		case x.vec4:
			for i := range 4 {
				fmt.Fprintf(w, "%s + %du]%s%s = %s_v%d.%c;\n", to, i, place, component, x.name, l, "xyzw"[i])
			}
		default:
			fmt.Fprintf(w, "%s]%s%s = %s_v%d;\n", to, place, component, x.name, l)
		}
	}
}

// swizzle returns WGSL that finds the place of tile_number where there are so many across and down. It orders them by groups of eight
// rows, so that those that run together share what they read.
func swizzle(across, down string) string {
	return fmt.Sprintf(`  let band = tile_number / (8u * %[1]s);
  let band_rows = min(%[2]s - band * 8u, 8u);
  let in_band = tile_number %% (8u * %[1]s);
  let tile_row = band * 8u + in_band %% band_rows;
  let tile_col = in_band / band_rows;
`, across, down)
}

// longestFirst begins with the last rows of tiles, through the stack.
const longestFirst = `  let tile_number = (wg.z * grid.y + wg.y) * grid.x + wg.x;
  let tile_row = grid.y - 1u - tile_number / (grid.x * grid.z);
  let tile_col = tile_number % grid.x;
  let layer_number = tile_number / grid.x % grid.z;
`

// accumulators defines the registers of an invocation's results: c_G_I_H for row I of row group G and columns group H. The
// groups of an invocation lie apart by those of the others, so that neighbours read neighbours.
func (t tile) accumulators(w *strings.Builder) {
	w.WriteString(Lanes(t.Cols / t.Wide))
	for g := range t.High / 4 {
		for i := range 4 {
			for h := range t.Wide / 4 {
				fmt.Fprintf(w, "  var c_%d_%d_%d = vec4<f32>();\n", g, i, h)
			}
		}
	}
}

// multiply adds the product of the tiles. Rows of the tiles have constant indices where it is unrolled: only the places in
// them are checked, and those are the same in every row.
func (t tile) multiply(w *strings.Builder, buffer string, unroll bool) {
	step := func(k string) {
		for g := range t.High / 4 {
			fmt.Fprintf(w, "      let a%d = sh_a%s[%s][%du + ty];\n", g, buffer, k, g*t.Rows/t.High)
		}
		for h := range t.Wide / 4 {
			fmt.Fprintf(w, "      let b%d = sh_b%s[%s][%du + tx];\n", h, buffer, k, h*t.Cols/t.Wide)
		}
		for g := range t.High / 4 {
			for i := range 4 {
				for h := range t.Wide / 4 {
					fmt.Fprintf(w, "      c_%d_%d_%d = fma(vec4<f32>(a%d.%c), b%d, c_%d_%d_%d);\n", g, i, h, g, "xyzw"[i], h, g, i, h)
				}
			}
		}
	}
	if unroll {
		for k := range t.Depth {
			w.WriteString("    {\n")
			step(fmt.Sprintf("%du", k))
			w.WriteString("    }\n")
		}
		return
	}
	fmt.Fprintf(w, "    for (var k = 0u; k < %s; k++) {\n", shader.NoUnroll(t.Depth))
	step("k")
	w.WriteString("    }\n")
}

// FoldedBlock is the side of the blocks of a folded factor.
const FoldedBlock = 64

// FoldedFunc defines folded, where the line of a key begins that only queries from its block on see. Lines of keys of the second
// half lie before those of the first, where nothing is.
var FoldedFunc = fmt.Sprintf(`fn folded(key: u32, length: u32) -> u32 {
  let block = key / %[1]du;
  if (2u * block * %[1]du <= length) { return key * length; }
  return (length - block * %[1]du + key %% %[1]du) * length - block * %[1]du;
}
`, FoldedBlock)
