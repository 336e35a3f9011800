package matmul

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// The program of a tiled product has three parts. tile_load.go reads tiles of both factors into registers and writes them to workgroup
// memory. tile_loop.go iterates along K and multiplies the tiles. epilogue.go stores the results.

// A tile is the size of a program's tile.
type tile struct{ shader.Tile }

// Tiled computes the product with the given tile. If parts is not nil, K is split into pieces, whose sums are stored there without the
// epilogue; the pieces are the outermost dimension of parts.
func (p *Product) Tiled(r *shader.Recorder, number, pieces int, parts *core.Memory) error {
	for first := 0; first < p.Batch.Count*pieces; {
		most := r.GPU.Workgroups / pieces * pieces
		layers := min(p.Batch.Count*pieces-first, most)
		if err := p.dispatchLayers(r, number, pieces, 0, parts, first, layers); err != nil {
			return err
		}
		first += layers
	}
	return nil
}

// A tiledText writes the program of a tiled product. Strings are expressions.
type tiledText struct {
	*shader.Text
	tile
	folded                          bool // see [Product.Folded]
	a, b                            factor
	m, n, k                         string // sizes of the matrices
	chunk, pieces, first, batchSize string // elements of K in a piece, pieces of a product, number of the first layer, and size of the batch
	rank, batchParams               int    // rank of the loop over the batch, and the index of its first parameter
	split                           bool   // K is split
	loop                            loopKind
	end                             endKind
	unroll                          bool
	out                             results
	lastWave                        *lastWaveText // split tiles of the last wave; nil for none
}

// dispatchLayers dispatches layers first to first+layers of the grid. A layer is one piece of K of one product of the batch. If whole is
// not 0, there is a single product, whose first whole tiles are computed at once and the others in pieces, which go to parts.
func (p *Product) dispatchLayers(r *shader.Recorder, number, pieces, whole int, parts *core.Memory, first, layers int) error {
	s := shader.New(r, p.name())
	s.Specialize(number)
	x := &tiledText{tile: tile{r.GPU.Tiles[number]}, split: parts != nil}
	x.bindFactors(s, p)
	x.m, x.n, x.k = s.Uint(p.M), s.Uint(p.N), s.Uint(p.K)
	chunk := shader.Ceil(shader.Ceil(p.K, pieces), x.K) * x.K
	x.chunk, x.pieces, x.first, x.batchSize = s.Uint(chunk), s.Uint(pieces), s.Uint(first), s.Uint(p.Batch.Count)
	last := s.Flag(whole > 0)
	var sums *core.Memory // where sums are stored instead of results
	if !last {
		sums = parts
	}
	x.bindResults(s, p, sums)
	if last {
		x.lastWave = p.lastWaveText(s, x.tile, whole, *parts)
	}
	x.folded = s.Flag(p.Folded)
	x.a.folded = x.folded
	ragged := s.Flag(p.K%x.K != 0)
	x.out.stage(s, p, x.tile)
	x.chooseLoop(ragged)
	x.rank = s.Specialize(len(p.Batch.Sizes))
	x.batchParams = s.Loop(&p.Batch)
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

// bindFactors binds the factors.
func (x *tiledText) bindFactors(s *shader.Builder, p *Product) {
	aligned := func(o *core.Operand, step, i int) bool {
		return shader.Vec4(o, append([]int{step}, p.Batch.Strides[i]...)...)
	}
	x.a = factor{name: "a", across: x.Rows, alongK: s.Flag(p.ACol == 1)}
	x.a.vec4 = s.Flag(p.vec4AlongK() || p.ACol != 1 && p.ARow == 1 && aligned(p.A, p.ACol, 1))
	x.b = factor{name: "b", across: x.Cols, alongK: s.Flag(p.BRow == 1 && p.BCol != 1)}
	x.b.vec4 = s.Flag(x.b.alongK && p.K%4 == 0 && aligned(p.B, p.BCol, 2) || !x.b.alongK && p.BCol == 1 && aligned(p.B, p.BRow, 2))
	x.a.operand, x.b.operand = s.In("a", p.A, expr.F32, expr.Number), s.In("b", p.B, expr.F32, expr.Number)
	s.Bindings[0].Vec4, s.Bindings[1].Vec4 = x.a.vec4, x.b.vec4
	x.a.step, x.a.stride, x.b.step, x.b.stride = s.Uint(p.ARow), s.Uint(p.ACol), s.Uint(p.BCol), s.Uint(p.BRow)
}

// write writes the text of the program.
func (x *tiledText) write(w *shader.Text) {
	x.Text = w
	x.out.functions(w)
	if x.folded {
		FoldedFunc(w)
	}
	for _, f := range []*factor{&x.a, &x.b} {
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

// place defines what a workgroup computes: row0 and col0, the first row and column of its tile; layer and piece; begin and end, its range
// of K; and at_0 to at_2, the indices of the first elements of the matrices.
func (x *tiledText) place() {
	switch {
	case x.folded:
		x.Put(longestFirst)
	case x.lastWave != nil:
		x.Put(x.lastWave.number)
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
	x.Put(shader.WalkAs("at_", "layer / "+x.pieces, x.rank, 3, x.batchParams, []string{start, x.a.operand, x.b.operand}))
	// Sizes are parameters even if K is a multiple of the tile's: with constants, NVIDIA's compiler makes the loop 30 % slower if a is
	// contiguous along K.
	begin, end := "piece * "+x.chunk, fmt.Sprintf("min(piece * %s + %s, %s)", x.chunk, x.chunk, x.k)
	if x.lastWave != nil {
		end = fmt.Sprintf("select(%s, %s, late)", x.k, end)
	}
	if x.folded {
		end = fmt.Sprintf("min(row0 + %du, %s)", x.Rows, x.k)
	}
	x.Add("  let begin = %s;\n  let end = %s;", begin, end)
}

// swizzle returns statements that define the row and column of tile tile_number, in a grid of the given size. Tiles are ordered in bands of
// eight rows, so that workgroups that run at the same time read the same parts of the factors.
func swizzle(across, down string) string {
	return fmt.Sprintf(`  let band = tile_number / (8u * %[1]s);
  let band_rows = min(%[2]s - band * 8u, 8u);
  let in_band = tile_number %% (8u * %[1]s);
  let tile_row = band * 8u + in_band %% band_rows;
  let tile_col = in_band / band_rows;
`, across, down)
}

// longestFirst orders the tiles of a folded factor by falling length of K: the last rows of all layers come first.
const longestFirst = `  let tile_number = (wg.z * grid.y + wg.y) * grid.x + wg.x;
  let tile_row = grid.y - 1u - tile_number / (grid.x * grid.z);
  let tile_col = tile_number % grid.x;
  let layer_number = tile_number / grid.x % grid.z;
`

// FoldedBlock is the side of the blocks of a folded factor.
const FoldedBlock = 64

// FoldedFunc declares folded(key, length), the index of the first element of a key's row in a folded matrix. The matrix is block
// triangular: a key is seen only by the queries from its block on. Rows of the keys of the second half are stored in the unused parts of
// the rows of the first half.
func FoldedFunc(w *shader.Text) {
	w.Func("folded(key: u32, length: u32) -> u32", `let block = key / %[1]du;
  if (2u * block * %[1]du <= length) { return key * length; }
  return (length - block * %[1]du + key %% %[1]du) * length - block * %[1]du;`, FoldedBlock)
}
