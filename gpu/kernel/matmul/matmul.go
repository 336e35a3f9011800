// Package matmul multiplies batches of matrices. A workgroup computes one tile of the output; where the output has too few tiles to fill
// the GPU, K is split between workgroups too (split K), and a second dispatch adds the partial sums. matmul.go estimates which tile and how
// many pieces of K are the fastest, tuner.go measures it on request, and tiled.go writes the program.
package matmul

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/copying"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() { kernel.Register(contract.MatMul, matmulCall) }

// A Product is a batch of matrix products: out = alpha a b + beta out + bias.
type Product struct {
	M, N, K       int
	Out, A, B     *core.Operand
	bias          *core.Operand // nil for none
	Alpha, Beta   float64
	Reduced       bool           // see [contract.MatMul]
	gpu           *shader.Device // set when the product is run
	double        bool           // sums are in float64; set too
	wholeLastWave bool           // do not split the last wave along K
	Folded        bool           // a is block lower triangular and stored folded: see [FoldedFunc]
	ARow, ACol    int            // strides along the rows and columns of a
	BRow, BCol    int
	CRow, CCol    int
	Batch         shader.Loop // over the batch: out, a and b

	Gather        *Gather // reads one factor from images, as an im2col matrix; nil for none
	GapEvery, Gap int     // in a row of the output, Gap elements are skipped after every GapEvery columns
}

func matmulCall(r *shader.Recorder, c *core.Call) error {
	a := contract.MatMulOf(c)
	p := Product{Out: &c.Outs[0], A: &c.Ins[0], B: &c.Ins[1], Alpha: a.Alpha, Beta: a.Beta, Reduced: a.Reduced}
	if len(c.Ins) > 2 && c.Ins[2].Present() {
		p.bias = &c.Ins[2]
	}
	p.M, p.N, p.CRow, p.CCol = matrix(p.Out, false)
	_, p.K, p.ARow, p.ACol = matrix(p.A, a.TransposeA)
	_, _, p.BRow, p.BCol = matrix(p.B, a.TransposeB)
	p.Batch = batchLoop(p.Out, p.A, p.B)
	if p.M == 0 || p.N == 0 || p.Batch.Count == 0 {
		return nil
	}
	if !p.A.DType.IsFloat() {
		return p.integers(r, c)
	}
	return p.Run(r)
}

// matrix returns the sizes and strides of the last two dimensions.
func matrix(o *core.Operand, transposed bool) (rows, cols, row, col int) {
	n := len(o.Shape)
	rows, cols, row, col = o.Shape[n-2], o.Shape[n-1], o.Strides[n-2], o.Strides[n-1]
	if transposed {
		return cols, rows, col, row
	}
	return rows, cols, row, col
}

// batchLoop returns the loop over the leading dimensions.
func batchLoop(out *core.Operand, factors ...*core.Operand) shader.Loop {
	l := shader.Loop{Count: 1, Strides: make([][]int, 1+len(factors))}
	steps := make([]int, 1+len(factors))
	lead := len(out.Shape) - 2
	for d, n := range out.Shape[:lead] {
		steps[0] = out.Strides[d]
		for i, f := range factors {
			at := d - (len(out.Shape) - len(f.Shape))
			steps[1+i] = 0
			if at >= 0 && f.Shape[at] != 1 {
				steps[1+i] = f.Strides[at]
			}
		}
		l.Count *= n
		l.Push(n, steps...)
	}
	return l
}

// Costs are in picoseconds, fitted to 2700 measurements of 99 products on an H200.
const (
	// startCost is the fixed cost of a workgroup, expressed as elements of K.
	startCost = 15
	// sumCost is the fixed cost of adding the pieces of split K, and resultCost the cost for each result of each piece.
	sumCost, resultCost = 7_600_000, 1
	// gatherCost is the latency of gathered loads for each element of K.
	gatherCost = 40_000
	// maxPieces is the largest number of pieces of split K, maxGatheredPieces that of products with a gather, and minPieceK the least K of
	// a piece.
	maxPieces, minPieceK = 64, 64
	maxGatheredPieces    = 128
)

// A choice is how a product is computed: the index of the tile, and the number of pieces that K is split into. With lastWave, only the
// tiles of the last wave are split: see [Product.waves].
type choice struct {
	tile, pieces int
	lastWave     bool
}

// estimate returns the choice with the least estimated cost.
func (p *Product) estimate() choice {
	var best choice
	least := 0
	for number, t := range p.gpu.Tiles {
		if number > 0 && (p.gpu.Software && number > 1 || p.M <= t.Rows/2 || p.N <= t.Cols/2 || // software adapters take long to compile the large tiles
			p.skips(t) || t.Double && p.scalarLoads() || t.ScalarLoads && !p.scalarLoads()) {
			continue
		}
		if c, cost := p.bestSplit(number); number == 0 || cost < least {
			best, least = c, cost
		}
	}
	return best
}

// realSize returns the size of a sum.
func (p *Product) realSize() int {
	if p.double {
		return 8
	}
	return 4
}

// skips reports whether a tile of float64 numbers does not fit workgroup memory.
func (p *Product) skips(t shader.Tile) bool { return p.double && t.Double }

// groups returns the number of tiles of all outputs.
func (p *Product) groups(t shader.Tile) int {
	return shader.Ceil(p.M, t.Rows) * shader.Ceil(p.N, t.Cols) * p.Batch.Count
}

// MaxSoftwareK is the largest K of a piece on a software adapter: lavapipe ends loops after 65535 iterations.
const MaxSoftwareK = 1 << 15

// minPieces returns into how many pieces K must be split at least.
func (p *Product) minPieces() int {
	if !p.gpu.Software {
		return 1
	}
	return max(shader.Ceil(p.K, MaxSoftwareK), 1)
}

// bestSplit returns the cheapest way to split K for a tile, and its cost.
func (p *Product) bestSplit(number int) (best choice, cost int) {
	least := p.minPieces()
	most := maxPieces
	if p.Gather != nil {
		most = maxGatheredPieces
	}
	lasts := []bool{false}
	if p.waves(p.gpu.Tiles[number]) > 0 {
		lasts = []bool{false, true}
	}
	for n := least; n <= max(least, most) && (n == least || p.K/n >= minPieceK); n++ {
		for _, last := range lasts {
			c := choice{number, n, last && n > 1}
			if took := p.cost(c); best.pieces == 0 || took < cost {
				best, cost = c, took
			}
		}
	}
	return best, cost
}

// cost returns the estimated time of a choice.
func (p *Product) cost(c choice) int {
	t, groups := p.gpu.Tiles[c.tile], p.groups(p.gpu.Tiles[c.tile])
	if c.pieces == 1 {
		return p.dispatchCost(t, groups, 1)
	}
	cost, results := p.dispatchCost(t, groups, c.pieces), p.M*p.N*p.Batch.Count
	if c.lastWave {
		waves := p.waves(t)
		rest := groups - waves*p.gpu.Multiprocessors
		cost, results = waves*p.dispatchCost(t, p.gpu.Multiprocessors, 1)+p.dispatchCost(t, rest, c.pieces), rest*t.Rows*t.Cols
	}
	if p.ACol == 1 && t.Double { // split-K programs for an a that is contiguous along K run slower
		switch {
		case p.BRow == 1 && p.BCol != 1 || p.K%t.K != 0:
			cost += cost / 5
		case c.lastWave:
			cost += cost / 128
		default:
			cost += cost / 20
		}
	}
	return cost + sumCost + c.pieces*results*resultCost
}

// dispatchCost returns the estimated time of a dispatch of tiles, each split into pieces. Each element of K costs a multiprocessor a fixed
// time plus a time for each of its tiles, and at least the latency of memory.
func (p *Product) dispatchCost(t shader.Tile, groups, pieces int) int {
	step := max(t.MinCost, t.BaseCost+t.TileCost*shader.Ceil(groups*pieces, p.gpu.Multiprocessors))
	if p.Gather != nil { // gathered loads are scalar and read a table first
		step = max(step*6/5, t.TileCost+gatherCost)
	}
	return (shader.Ceil(shader.Ceil(p.K, pieces), t.K)*t.K + startCost) * step
}

// scalarLoads reports whether a factor needs scalar loads along K: rows of a that cannot be read as vec4, or a gather.
func (p *Product) scalarLoads() bool { return p.Gather != nil || p.ACol == 1 && !p.vec4AlongK() }

// vec4AlongK reports whether rows of a are read along K four elements at a time.
func (p *Product) vec4AlongK() bool {
	return p.ACol == 1 && p.K%4 == 0 && shader.Vec4(p.A, append([]int{p.ARow}, p.Batch.Strides[1]...)...)
}

// flatten turns a batch that shares b into one product, if the rows of a and of the output are evenly spaced through the batch. The product
// has fewer partial tiles, and NVIDIA's compiler makes the program without a batch 30 % faster.
func (p *Product) flatten() {
	s := p.Batch.Strides
	if len(p.Batch.Sizes) != 1 || s[0][0] != p.M*p.CRow || s[1][0] != p.M*p.ARow || s[2][0] != 0 {
		return
	}
	p.M *= p.Batch.Count
	p.Batch = shader.Loop{Count: 1, Strides: make([][]int, 3)}
}

// transposeRows is the least number of rows of a for which b is transposed in memory first, if it is contiguous along K. Workgroups then
// load its tiles without transposing them.
const transposeRows = 1024

// Run computes the product: as a streamed one, by the GPU's library, or by tiles, after making a batch into one product or transposing b
// where that is faster.
func (p *Product) Run(r *shader.Recorder) error {
	p.flatten()
	if v, ok := p.stream(r.GPU); ok && !r.Float64 {
		return v.run(r)
	}
	if done, err := p.aligned(r); done || err != nil {
		return err
	}
	return p.single(r)
}

// single computes the product by the GPU's library, or by tiles.
func (p *Product) single(r *shader.Recorder) error {
	if done, err := p.library(r); done || err != nil {
		return err
	}
	shared := true
	for _, s := range p.Batch.Strides[2] {
		shared = shared && s == 0
	}
	if p.BRow == 1 && p.BCol != 1 && shared && p.M*p.Batch.Count >= transposeRows && min(p.N, p.K) >= 64 && r.RealType().Size()*p.K*(p.N+3) <= r.GPU.Binding {
		b, apart, err := copying.Transposed(r, p.B, p.K, p.N, p.BCol)
		if err != nil {
			return err
		}
		with := *p
		with.B, with.BRow, with.BCol = b, apart, 1
		return with.RunTiles(r)
	}
	return p.RunTiles(r)
}

// RunTiles computes the product by tiles, with split K if that is faster.
func (p *Product) RunTiles(r *shader.Recorder) error {
	p.gpu, p.double = r.GPU, r.Float64
	if whole, rest := p.splitRemainder(); whole != nil && whole.remainderPays() {
		if err := whole.compute(r, whole.choose(r)); err != nil {
			return err
		}
		return rest.compute(r, rest.estimate())
	}
	return p.compute(r, p.choose(r))
}

// compute computes the product as a choice says.
func (p *Product) compute(r *shader.Recorder, c choice) error {
	number, pieces := c.tile, c.pieces
	if pieces == 1 {
		return p.Tiled(r, number, 1, nil)
	}
	if c.lastWave {
		return p.splitLastWave(r, number, pieces)
	}
	size := r.RealType().Size() * p.M * p.N * p.Batch.Count * pieces
	if size > r.GPU.Binding {
		return p.Tiled(r, number, 1, nil)
	}
	parts, err := r.Temp(size)
	if err != nil {
		return err
	}
	if err := p.Tiled(r, number, pieces, &parts); err != nil {
		return err
	}
	return p.sumPieces(r, parts, pieces)
}

// sumPieces adds the partial sums of split K in a fixed order and runs the epilogue.
func (p *Product) sumPieces(r *shader.Recorder, parts core.Memory, pieces int) error {
	s := shader.New(r, "matmul (sum)")
	from := s.RealsOf("parts", parts)
	to := s.InOut("c", p.Out, expr.F32)
	count := p.M * p.N * p.Batch.Count
	vec4, wide := s.Flag(p.Gap == 0 && p.CCol == 1 && p.N%4 == 0 && shader.Vec4(p.Out, append([]int{p.CRow}, p.Batch.Strides[0]...)...)), 1
	if s.Bindings[0].Vec4, s.Bindings[1].Vec4 = vec4, vec4; vec4 {
		wide = 4
	}
	n, per, cols, piecesWord := s.Uint(count/wide), s.Uint(p.M*p.N/wide), s.Uint(p.N/wide), s.Uint(pieces)
	cr, cc := s.Uint(p.CRow), s.Uint(p.CCol)
	finish := p.finisher(s)
	outer := shader.Loop{Sizes: p.Batch.Sizes, Strides: p.Batch.Strides[:1]}
	s.Specialize(len(outer.Sizes))
	at := s.Loop(&outer)
	cr, gap := p.gaps(s, cr)
	return s.Run(r, shader.GroupsFor(count/wide), func(w *shader.Text) {
		finish.function(w)
		gap(w)
		w.Each(n)
		zero, first := "0.0", from
		if vec4 {
			zero, first = "real4()", "("+from+" >> 2u)"
		}
		w.Add(`  var sum = %s;
  for (var j = 0u; j < %s; j++) { sum = sum + parts[%s + j * %s + i]; }`, zero, piecesWord, first, n)
		w.Add(`  let inner = i %% %s;
  let row = inner / %s;
  let col = inner %% %s;`, per, cols, cols)
		w.Put(shader.WalkAs("at_", "i / "+per, len(outer.Sizes), 1, at, []string{to}))
		if vec4 {
			var list []string
			for q := range 4 {
				list = append(list, fmt.Sprintf("finish(sum.%s, at + %du, 4u * col + %du)", shader.Component(q), q, q))
			}
			w.Add("  let at = at_0 + row * %s + 4u * col;\n  st4_c(at >> 2u, real4(%s));", cr, strings.Join(list, ", "))
			return
		}
		w.Add(`  let at = at_0 + row * %s + col * %s;
  st_c(at, finish(sum, at, col));`, cr, cc)
	})
}

// gaps returns the expression that replaces the stride of the output's rows if there are gaps, and a function that declares gaps(col), the
// elements skipped before column col.
func (p *Product) gaps(s *shader.Builder, cr string) (stride string, function func(w *shader.Text)) {
	if !s.Flag(p.Gap != 0) {
		return cr, func(*shader.Text) {}
	}
	wide, gap := s.Uint(p.GapEvery), s.Uint(p.Gap)
	return cr + " + gaps(col)", func(w *shader.Text) { w.Func("gaps(col: u32) -> u32", "return col / %s * %s;", wide, gap) }
}

// A finisher is the epilogue of a product: alpha, beta times the old value, and bias. Strings are expressions.
type finisher struct {
	alpha, beta, bias, step string
	early                   bool // alpha and beta have been applied before finish is called
}

// finisher adds the epilogue's parameters and bias to the program, in which the output is bound as c.
func (p *Product) finisher(s *shader.Builder) finisher {
	f := finisher{alpha: s.Float(p.Alpha)}
	if s.Flag(p.Beta != 0) {
		f.beta = s.Float(p.Beta)
	}
	if s.Flag(p.bias != nil) {
		f.bias = s.In("bias", p.bias, expr.F32, expr.Number)
		f.step = s.Uint(p.bias.Strides[0])
	}
	return f
}

// sum returns the expression alpha sum + beta old.
func (f finisher) sum(sum, old string) string {
	return sum + " * " + f.alpha + " + " + old + " * " + f.beta
}

// function declares finish(sum, at, col), the result for a sum at index at and column col.
func (f finisher) function(w *shader.Text) {
	value := "sum"
	switch {
	case f.early:
	case f.beta != "":
		value = f.sum("sum", "ld_c(at)")
	default:
		value += " * " + f.alpha
	}
	body := fmt.Sprintf("var v = %s;\n", value)
	if f.bias != "" {
		body += fmt.Sprintf("  v = v + ld_bias(%s + col * %s);\n", f.bias, f.step)
	}
	w.Func("finish(sum: real, at: u32, col: u32) -> real", "%s  return v;", body)
}
