package matmul

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// The program of a product by tiles has three parts. tile_load.go reads tiles of the factors into registers and writes them to workgroup
// memory. tile_loop.go goes along K and multiplies them. epilogue.go stores the results.

// A tile is a tile as the text of programs has it.
type tile struct{ shader.Tile }

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

// A tiledText writes the program of a product by tiles. Strings are expressions.
type tiledText struct {
	*shader.Text
	tile
	folded                      bool // see [Product]
	a, b                        side
	m, n, k                     string // sizes
	chunk, pieces, first, stack string // elements of K in a piece, pieces of a product, the first product, and how many there are
	rank, batch                 int    // of the loop over the stack, and its first parameter
	split                       bool   // K is in pieces
	loop                        loopKind
	end                         endKind
	unroll                      bool
	out                         results
	late                        *lastText // nil, or the tiles of the last wave
}

// layers dispatches products first to first+layers of the stack, each piece counting as one. If whole is not 0, there is a single product, of
// which so many tiles are computed whole and the others in pieces, which go to parts.
func (p *Product) layers(r *shader.Recorder, number, pieces, whole int, parts *core.Memory, first, layers int) error {
	s := shader.New(r, p.name())
	s.Specialize(number)
	x := &tiledText{tile: tile{r.GPU.Tiles[number]}, split: parts != nil}
	x.bindFactors(s, p)
	x.m, x.n, x.k = s.Uint(p.M), s.Uint(p.N), s.Uint(p.K)
	chunk := shader.Ceil(shader.Ceil(p.K, pieces), x.K) * x.K
	x.chunk, x.pieces, x.first, x.stack = s.Uint(chunk), s.Uint(pieces), s.Uint(first), s.Uint(p.Batch.Count)
	last := s.Flag(whole > 0)
	var sums *core.Memory // that are stored instead of results
	if !last {
		sums = parts
	}
	x.bindResults(s, p, sums)
	if last {
		x.late = p.lastText(s, x.tile, whole, *parts)
	}
	x.folded = s.Flag(p.Folded)
	x.a.folded = x.folded
	ragged := s.Flag(p.K%x.K != 0)
	x.out.stage(s, p, x.tile)
	x.chooseLoop(ragged)
	x.rank = s.Specialize(len(p.Batch.Sizes))
	x.batch = s.Loop(&p.Batch)
	if p.Gather != nil {
		p.Gather.bind(s, &x.a, &x.b, x.tile)
		if x.out.finished {
			x.out.row, x.out.gaps = p.gaps(s, x.out.row)
		}
	}
	x.unroll = s.Flag(!r.GPU.Software)
	across, down := shader.Ceil(p.N, x.Cols), shader.Ceil(p.M, x.Rows)
	if last {
		across, down = whole+(across*down-whole)*pieces, 1
	}
	return s.RunGrid(r, across, down, layers, x.write)
}

// bindFactors adds the factors to the program.
func (x *tiledText) bindFactors(s *shader.Builder, p *Product) {
	aligned := func(o *core.Operand, step, i int) bool {
		return shader.Aligned(o, append([]int{step}, p.Batch.Strides[i]...)...)
	}
	x.a = side{name: "a", across: x.Rows, alongK: s.Flag(p.ACol == 1)}
	x.a.vec4 = s.Flag(p.vec4AlongK() || p.ACol != 1 && p.ARow == 1 && aligned(p.A, p.ACol, 1))
	x.b = side{name: "b", across: x.Cols, alongK: s.Flag(p.BRow == 1 && p.BCol != 1)}
	x.b.vec4 = s.Flag(x.b.alongK && p.K%4 == 0 && aligned(p.B, p.BCol, 2) || !x.b.alongK && p.BCol == 1 && aligned(p.B, p.BRow, 2))
	x.a.operand, x.b.operand = s.In("a", p.A, expr.F32, expr.Number), s.In("b", p.B, expr.F32, expr.Number)
	s.Bindings[0].Vec4, s.Bindings[1].Vec4 = x.a.vec4, x.b.vec4
	x.a.step, x.a.stride, x.b.step, x.b.stride = s.Uint(p.ARow), s.Uint(p.ACol), s.Uint(p.BCol), s.Uint(p.BRow)
}

// write writes the program.
func (x *tiledText) write(w *shader.Text) {
	x.Text = w
	x.out.functions(w)
	if x.folded {
		FoldedFunc(w)
	}
	for _, f := range []*side{&x.a, &x.b} {
		w.Shared("sh_"+f.name, shader.Real4, x.K, f.across/4)
		if x.loop == doubleLoop {
			w.Shared("sh_"+f.name+"2", shader.Real4, x.K, f.across/4)
		}
	}
	w.Main(x.Threads())
	x.place()
	x.a.first, x.b.first = "at_1", "at_2"
	x.a.prepare(w, x.tile, "row0")
	x.b.prepare(w, x.tile, "col0")
	x.accumulators()
	x.alongK()
	x.epilogue()
}

// place defines what a workgroup computes: row0 and col0, the first row and column of its tile; layer, the number of the product and the
// piece, and piece; begin and end of K; and the positions at_0 to at_2 of the product's matrices.
func (x *tiledText) place() {
	switch {
	case x.folded:
		x.Put(longestFirst)
	case x.late != nil:
		x.Put(x.late.number)
	default:
		x.Add("  let tile_number = group;")
		x.Put(swizzle("grid.x", "grid.y"))
		x.Add("  let layer_number = wg.z;")
	}
	x.Add(`  let layer = layer_number + %s;
  let row0 = tile_row * %du;
  let col0 = tile_col * %du;
  let piece = layer %% %s;`, x.first, x.Rows, x.Cols, x.pieces)
	start := x.out.first
	if !x.out.finished {
		start = "0u"
	}
	x.Put(shader.WalkAs("at_", "layer / "+x.pieces, x.rank, 3, x.batch, []string{start, x.a.operand, x.b.operand}))
	// Parameters even where K is whole tiles: with constants here NVIDIA's compiler makes the loop 30 % slower for a read along K.
	begin, end := "piece * "+x.chunk, fmt.Sprintf("min(piece * %s + %s, %s)", x.chunk, x.chunk, x.k)
	if x.late != nil {
		end = fmt.Sprintf("select(%s, %s, late)", x.k, end)
	}
	if x.folded {
		end = fmt.Sprintf("min(row0 + %du, %s)", x.Rows, x.k)
	}
	x.Add("  let begin = %s;\n  let end = %s;", begin, end)
}

// swizzle returns statements that find the place of tile_number where there are so many tiles across and down. It orders them by groups of
// eight rows, so that those that run together share what they read.
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

// FoldedBlock is the side of the blocks of a folded factor.
const FoldedBlock = 64

// FoldedFunc writes the function folded, where the line of a key begins that only queries from its block on see. Lines of keys of the
// second half lie before those of the first, where nothing is.
func FoldedFunc(w *shader.Text) {
	w.Func("folded(key: u32, length: u32) -> u32", `let block = key / %[1]du;
  if (2u * block * %[1]du <= length) { return key * length; }
  return (length - block * %[1]du + key %% %[1]du) * length - block * %[1]du;`, FoldedBlock)
}
