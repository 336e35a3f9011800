package attention

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

// GPUs with tensor cores compute attention of 16-bit numbers by programs of their own, whose text is in folder tensorcore. Sums are in
// float32. The backward pass computes weights twice, in blocks of queries for dq and in blocks of keys for dk and dv: then all sums stay in
// registers and have a fixed order. Storing dq piece by piece, in turns, would save two of seven products but move more memory.

const (
	minTensorCompute = 80  // the first compute capability with bfloat16 products and asynchronous copies
	asyncCompute     = 90  // the only one with wgmma
	maxTensorDim     = 256 // wider vectors do not fit in registers
	tensorRows       = 128 // every block has a divisor of it as rows
)

// onTensorCores reports whether tensor cores compute the call.
func (a *attentionProblem) onTensorCores(gpu *shader.Device) bool {
	dtype := a.q.DType
	if gpu.Compute < minTensorCompute || dtype != core.Float16 && dtype != core.BFloat16 {
		return false
	}
	if a.dim < 1 || a.dim > maxTensorDim || a.valueDim < 1 || a.valueDim > maxTensorDim {
		return false
	}
	if a.mask != nil && a.mask.DType != core.Bool && a.mask.DType != core.Float32 && a.mask.DType != dtype {
		return false
	}
	for _, list := range [][]core.Operand{a.c.Ins, a.c.Outs} {
		for i := range list {
			o := &list[i]
			if vectors := o != a.mask && o.Present() && len(o.Shape) == 4; vectors && (o.DType != dtype || o.Shape[3] > 1 && o.Strides[3] != 1) {
				return false
			}
		}
	}
	return true
}

// A tensorTile is how a program divides its work. A block has 16 * tiles rows for each of its warps, which are queries or keys, and visits
// the others: span of them are in shared memory at a time, twice, and scores of slice of them in registers.
type tensorTile struct {
	warps, tiles, span, slice int
	slices                    int  // how many blocks share the columns of a result
	held                      bool // the rows of a block stay in registers
	blocks                    int  // that run on a multiprocessor at a time: it limits their registers
	async                     bool // products by wgmma instead of mma.sync
}

func (t tensorTile) rows() int { return 16 * t.tiles * t.warps }

// Tiles for vectors of up to 64, 128 and 256 elements. They were chosen on an H100 among a dozen for each program. With two fragments of
// rows a warp reads half as much shared memory, with one more warps run at a time. All fit into the 99 KiB of shared memory that a block has
// at most on small GPUs.
var (
	forwardTiles = []tensorTile{
		{warps: 4, tiles: 2, span: 64, slices: 1, held: true, blocks: 2},
		{warps: 4, tiles: 2, span: 32, slices: 1, blocks: 2},
		{warps: 4, tiles: 1, span: 32, slices: 1, blocks: 1},
	}
	queryTiles = []tensorTile{
		{warps: 8, tiles: 1, span: 64, slice: 32, slices: 1, held: true, blocks: 2},
		{warps: 4, tiles: 1, span: 32, slice: 16, slices: 1, blocks: 2},
		{warps: 4, tiles: 1, span: 16, slice: 16, slices: 1, blocks: 1},
	}
	keyTiles = []tensorTile{
		{warps: 4, tiles: 2, span: 64, slice: 32, slices: 1, blocks: 2},
		{warps: 4, tiles: 1, span: 32, slice: 16, slices: 1, blocks: 2},
		{warps: 4, tiles: 1, span: 16, slice: 16, slices: 2, blocks: 1},
	}
)

// Tiles for GPUs of compute capability 9.0, and vectors of up to 64 and 128 elements.
var (
	forwardTiles90 = []tensorTile{
		{warps: 4, tiles: 1, span: 64, slices: 1, blocks: 3, async: true},
		{warps: 8, tiles: 1, span: 64, slices: 1, blocks: 2, async: true},
	}
	queryTiles90 = []tensorTile{
		{warps: 8, tiles: 1, span: 64, slice: 64, slices: 1, blocks: 2, async: true},
		{warps: 4, tiles: 1, span: 64, slice: 64, slices: 1, blocks: 3, async: true},
	}
	keyTiles90 = []tensorTile{
		{warps: 4, tiles: 1, span: 128, slice: 64, slices: 1, blocks: 2, async: true},
		{warps: 4, tiles: 1, span: 64, slice: 64, slices: 1, blocks: 2, async: true},
	}
)

// tensorTileOf returns the tile of a program for the vectors of a problem. Masks and dropout need registers too.
func (a *attentionProblem) tensorTileOf(gpu *shader.Device, tiles, tiles90 []tensorTile) tensorTile {
	wide := max(a.dim, a.valueDim)
	size := 0
	for most := 64; most < wide; most *= 2 {
		size++
	}
	plain := a.mask == nil && a.Dropout == 0
	if gpu.Compute == asyncCompute && size < len(tiles90) {
		t := tiles90[size]
		if !plain {
			t.warps, t.blocks = 4, 2
		}
		return t
	}
	t := tiles[size]
	if plain {
		return t
	}
	if t.slice = min(t.slice, 16); t.slice == 0 {
		t.span = min(t.span, 32)
	}
	return t
}

// tensorPadded returns for how many queries of a head stats have room.
func (a *attentionProblem) tensorPadded() int { return shader.Ceil(a.queries, tensorRows) * tensorRows }

// tensorForward computes the result and lse.
func (a *attentionProblem) tensorForward(r *shader.Recorder) error {
	t := a.tensorTileOf(r.GPU, forwardTiles, forwardTiles90)
	p := a.tensorProgram(r, "attention (tensor cores)", "forward", t)
	p.matrix("q", a.q, false)
	p.matrix("k", a.k, false)
	p.matrix("v", a.v, false)
	p.matrix("o", &a.c.Outs[0], true)
	p.vector("lse", p.Out("lse", &a.c.Outs[1], expr.F32, expr.Number))
	blocks := shader.Ceil(a.queries, t.rows())
	p.problem(blocks)
	return p.run(r, blocks*a.batch*a.kv*a.group)
}

// tensorBackward computes the gradients that are wanted. The program of blocks of queries also writes stats, which that of blocks of keys
// reads.
func (a *attentionProblem) tensorBackward(r *shader.Recorder) error {
	stats, err := r.Temp(8 * a.batch * a.kv * a.group * a.tensorPadded())
	if err != nil {
		return err
	}
	o, lse, do := &a.c.Ins[4], &a.c.Ins[5], &a.c.Ins[6]
	dq, dk, dv := &a.c.Outs[0], &a.c.Outs[1], &a.c.Outs[2]
	t := a.tensorTileOf(r.GPU, queryTiles, queryTiles90)
	p := a.tensorProgram(r, "attention_backward (queries, tensor cores)", "query_gradients", t)
	p.matrix("q", a.q, false)
	p.matrix("k", a.k, false)
	p.matrix("v", a.v, false)
	p.matrix("o", o, false)
	p.matrix("g", do, false)
	if p.flag("WITH_Q", dq.Present()) {
		p.matrix("dq", dq, true)
	}
	p.vector("lse", p.In("lse", lse, expr.F32, expr.Number))
	p.vector("stats", p.RealsOf("stats", stats))
	blocks := shader.Ceil(a.queries, t.rows())
	p.problem(blocks)
	if err := p.run(r, blocks*a.batch*a.kv*a.group); err != nil || !dk.Present() && !dv.Present() {
		return err
	}
	t = a.tensorTileOf(r.GPU, keyTiles, keyTiles90)
	p = a.tensorProgram(r, "attention_backward (keys, tensor cores)", "key_gradients", t)
	p.matrix("q", a.q, false)
	p.matrix("k", a.k, false)
	p.matrix("v", a.v, false)
	p.matrix("g", do, false)
	if p.flag("WITH_K", dk.Present()) {
		p.matrix("dk", dk, true)
	}
	if p.flag("WITH_V", dv.Present()) {
		p.matrix("dv", dv, true)
	}
	p.vector("stats", p.RealsOf("stats", stats))
	blocks = shader.Ceil(a.keys, t.rows())
	p.problem(blocks)
	return p.run(r, blocks*a.batch*a.kv*t.slices)
}

// problem adds the parameters that all programs have.
func (p *tensorProgram) problem(blocks int) {
	a := p.a
	p.word("queries", a.queries)
	p.word("keys", a.keys)
	p.word("heads", a.kv*a.group)
	p.word("group", a.group)
	p.word("batches", a.batch)
	p.word("blocks", blocks)
	p.word("padded", a.tensorPadded())
	p.number("scale", a.Scale)
	p.flag("NEGATIVE", a.Scale < 0)
	p.flag("CAUSAL", a.Causal)
	kind := maskNone
	if a.mask != nil {
		switch a.mask.DType {
		case core.Bool:
			kind = maskBool
		case core.Float32:
			kind = maskFloat
		default:
			kind = maskHalf
		}
		p.mask(a.mask)
	}
	p.constant("MASK", kind)
	if p.flag("DROPOUT", a.Dropout > 0) {
		keep, by := 1-a.Dropout, 0.0
		if keep > 0 {
			by = 1 / keep
		}
		p.number("by", by)
		p.long("seed", a.Seed)
		p.long("offset", a.Offset)
		p.long("limit", primitive.KeepLimit(keep))
		p.word("quads", shader.Ceil(a.keys, 4))
		p.word("all_heads", int(a.Heads))
	}
}

// Values of MASK in the programs.
const (
	maskNone = iota
	maskBool
	maskFloat
	maskHalf
)
