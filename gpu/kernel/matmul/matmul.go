// Package matmul multiplies stacks of matrices by tiles. matmul.go estimates which tile is the cheapest and into how many pieces K is cut,
// tuner.go measures it on request, and tiled.go writes the program.
package matmul

import (
	"fmt"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/copying"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() { kernel.Register(contract.MatMul, matmulCall) }

// A Product is a stack of matrix products: out = alpha a b + beta out + bias.
type Product struct {
	M, N, K     int
	Out, A, B   *core.Operand
	bias        *core.Operand // nil for none
	Alpha, Beta float64
	gpu         *shader.Device // set where it is run
	uncut       bool           // the last wave is not split along K
	Folded      bool           // a is block lower triangular, and stored folded: see [FoldedFunc]
	ARow, ACol  int            // strides along the rows and columns of a
	BRow, BCol  int
	CRow, CCol  int
	Batch       shader.Loop // over the stack: out, a and b

	Gather    *Gather // nil, or what reads one factor from images
	Wide, Gap int     // the output skips gap elements after each wide columns of a row
}

func matmulCall(r *shader.Recorder, c *core.Call) error {
	a := contract.MatMulOf(c)
	p := Product{Out: &c.Outs[0], A: &c.Ins[0], B: &c.Ins[1], Alpha: a.Alpha, Beta: a.Beta}
	if len(c.Ins) > 2 && c.Ins[2].Present() {
		p.bias = &c.Ins[2]
	}
	p.M, p.N, p.CRow, p.CCol = matrix(p.Out, false)
	_, p.K, p.ARow, p.ACol = matrix(p.A, a.TransposeA)
	_, _, p.BRow, p.BCol = matrix(p.B, a.TransposeB)
	p.Batch = stack(p.Out, p.A, p.B)
	if p.M == 0 || p.N == 0 || p.Batch.Count == 0 {
		return nil
	}
	if !p.A.DType.IsFloat() {
		return p.integers(r, c)
	}
	return p.Run(r)
}

// matrix returns the size and the strides of the last two dimensions.
func matrix(o *core.Operand, transposed bool) (rows, cols, row, col int) {
	n := len(o.Shape)
	rows, cols, row, col = o.Shape[n-2], o.Shape[n-1], o.Strides[n-2], o.Strides[n-1]
	if transposed {
		return cols, rows, col, row
	}
	return rows, cols, row, col
}

// stack returns the loop over the leading dimensions.
func stack(out *core.Operand, factors ...*core.Operand) shader.Loop {
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
	// startCost is the fixed cost of a workgroup, in elements of K.
	startCost = 15
	// sumCost is the fixed cost of adding up the pieces of split K, and resultCost that of each result of a piece.
	sumCost, resultCost = 7_600_000, 1
	// gatherCost is the latency of gathered loads, for each element of K.
	gatherCost = 40_000
	// mostPieces is the largest number of pieces of split K, and leastK the least K of a piece.
	mostPieces, leastK = 64, 64
	mostGatheredPieces = 128
)

// A choice is how a product is computed: the number of the tile, and into how many pieces K is split; with last, only the tiles of the last
// wave are, see [Product.waves].
type choice struct {
	number, pieces int
	last           bool
}

// estimate returns the cheapest choice.
func (p *Product) estimate() choice {
	var best choice
	least := 0
	for number, t := range p.gpu.Tiles {
		if number > 0 && (p.gpu.Software && number > 1 || p.M <= t.Rows/2 || p.N <= t.Cols/2 || // compiling the large ones there takes long
			t.Double && p.loose() || t.Loose && !p.loose()) {
			continue
		}
		if c, cost := p.cut(number); number == 0 || cost < least {
			best, least = c, cost
		}
	}
	return best
}

// groups returns the number of tiles of the output.
func (p *Product) groups(t shader.Tile) int {
	return shader.Ceil(p.M, t.Rows) * shader.Ceil(p.N, t.Cols) * p.Batch.Count
}

// MaxSoftwareK is the largest K of a piece on lavapipe, which ends loops after 65535 iterations.
const MaxSoftwareK = 1 << 15

// leastPieces returns into how many pieces K has to be split.
func (p *Product) leastPieces() int {
	if !p.gpu.Software {
		return 1
	}
	return max(shader.Ceil(p.K, MaxSoftwareK), 1)
}

// cut returns the cheapest way to split K for a tile, and the product's cost.
func (p *Product) cut(number int) (best choice, cost int) {
	least := p.leastPieces()
	most := mostPieces
	if p.Gather != nil {
		most = mostGatheredPieces
	}
	lasts := []bool{false}
	if p.waves(p.gpu.Tiles[number]) > 0 {
		lasts = []bool{false, true}
	}
	for n := least; n <= max(least, most) && (n == least || p.K/n >= leastK); n++ {
		for _, last := range lasts {
			c := choice{number, n, last && n > 1}
			if took := p.cost(c); best.pieces == 0 || took < cost {
				best, cost = c, took
			}
		}
	}
	return best, cost
}

// cost estimates the product's time.
func (p *Product) cost(c choice) int {
	t, groups := p.gpu.Tiles[c.number], p.groups(p.gpu.Tiles[c.number])
	if c.pieces == 1 {
		return p.pass(t, groups, 1)
	}
	cost, results := p.pass(t, groups, c.pieces), p.M*p.N*p.Batch.Count
	if c.last {
		waves := p.waves(t)
		rest := groups - waves*p.gpu.Multiprocessors
		cost, results = waves*p.pass(t, p.gpu.Multiprocessors, 1)+p.pass(t, rest, c.pieces), rest*t.Rows*t.Cols
	}
	if p.ACol == 1 && t.Double { // programs for pieces of these run slower
		switch {
		case p.BRow == 1 && p.BCol != 1 || p.K%t.K != 0:
			cost += cost / 5
		case c.last:
			cost += cost / 128
		default:
			cost += cost / 20
		}
	}
	return cost + sumCost + c.pieces*results*resultCost
}

// pass estimates the time of a dispatch of so many tiles, each in pieces. A step along K costs a multiprocessor a fixed time and some for each
// of its tiles, and no less than the latency of memory.
func (p *Product) pass(t shader.Tile, groups, pieces int) int {
	step := max(t.Least, t.Add+t.Each*shader.Ceil(groups*pieces, p.gpu.Multiprocessors))
	if p.Gather != nil { // one at a time, and by way of a table
		step = max(step*6/5, t.Each+gatherCost)
	}
	return (shader.Ceil(shader.Ceil(p.K, pieces), t.K)*t.K + startCost) * step
}

// loose reports whether rows of a are read along K one element at a time, or a factor is gathered.
func (p *Product) loose() bool { return p.Gather != nil || p.ACol == 1 && !p.vec4AlongK() }

// vec4AlongK reports whether rows of a are read along K as vec4.
func (p *Product) vec4AlongK() bool {
	return p.ACol == 1 && p.K%4 == 0 && shader.Aligned(p.A, append([]int{p.ARow}, p.Batch.Strides[1]...)...)
}

// flatten makes one product of a stack that shares b, where the rows of a and of the output are evenly spaced through the stack. It has fewer
// ragged edges, and NVIDIA's compiler makes the program without a stack 30 % faster.
func (p *Product) flatten() {
	s := p.Batch.Strides
	if len(p.Batch.Sizes) != 1 || s[0][0] != p.M*p.CRow || s[1][0] != p.M*p.ARow || s[2][0] != 0 {
		return
	}
	p.M *= p.Batch.Count
	p.Batch = shader.Loop{Count: 1, Strides: make([][]int, 3)}
}

// turning is the least number of rows for which it pays to transpose b in memory first: workgroups then load its tiles without
// transposing them.
const turning = 1024

// Run computes the product.
func (p *Product) Run(r *shader.Recorder) error {
	p.flatten()
	single := true
	for _, s := range p.Batch.Strides[2] {
		single = single && s == 0
	}
	if p.BRow == 1 && p.BCol != 1 && single && p.M*p.Batch.Count >= turning && min(p.N, p.K) >= 64 && 4*p.K*(p.N+3) <= r.GPU.Binding {
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

// RunTiles computes the product by tiles, with split K where that is faster.
func (p *Product) RunTiles(r *shader.Recorder) error {
	p.gpu = r.GPU
	if whole, rest := p.splitRemainder(); whole != nil && whole.splits() {
		if err := whole.by(r, whole.choose(r)); err != nil {
			return err
		}
		return rest.by(r, rest.estimate())
	}
	return p.by(r, p.choose(r))
}

// by computes the product by a choice.
func (p *Product) by(r *shader.Recorder, c choice) error {
	number, pieces := c.number, c.pieces
	if pieces == 1 {
		return p.Tiled(r, number, 1, nil)
	}
	if c.last {
		return p.lastWaveInPieces(r, number, pieces)
	}
	size := 4 * p.M * p.N * p.Batch.Count * pieces
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

// sumPieces adds the partial products of split K in order and runs the epilogue.
func (p *Product) sumPieces(r *shader.Recorder, parts core.Memory, pieces int) error {
	s := shader.New(r, "matmul (sum)")
	from := s.FloatsOf("parts", parts)
	to := s.Both("c", p.Out, expr.F32)
	count := p.M * p.N * p.Batch.Count
	n, per, cols, piecesWord := s.Uint(count), s.Uint(p.M*p.N), s.Uint(p.N), s.Uint(pieces)
	cr, cc := s.Uint(p.CRow), s.Uint(p.CCol)
	finish := p.finisher(s)
	outer := shader.Loop{Sizes: p.Batch.Sizes, Strides: p.Batch.Strides[:1]}
	s.Specialize(len(outer.Sizes))
	at := s.Loop(&outer)
	cr, gap := p.gaps(s, cr)
	return s.Run(r, shader.GroupsFor(count), func(w *shader.Text) {
		finish.function(w)
		gap(w)
		w.Each(n)
		w.Add(`  var sum = 0.0;
  for (var j = 0u; j < %s; j++) { sum = sum + parts[%s + j * %s + i]; }`, piecesWord, from, n)
		w.Add(`  let inner = i %% %s;
  let row = inner / %s;
  let col = inner %% %s;`, per, cols, cols)
		w.Put(shader.WalkAs("at_", "i / "+per, len(outer.Sizes), 1, at, []string{to}))
		w.Add(`  let at = at_0 + row * %s + col * %s;
  st_c(at, finish(sum, at, col));`, cr, cc)
	})
}

// gaps returns an expression for the stride of the output's rows, with the gaps before column col added, and what writes the function gaps
// that computes them.
func (p *Product) gaps(s *shader.Builder, cr string) (stride string, function func(w *shader.Text)) {
	if !s.Flag(p.Gap != 0) {
		return cr, func(*shader.Text) {}
	}
	wide, gap := s.Uint(p.Wide), s.Uint(p.Gap)
	return cr + " + gaps(col)", func(w *shader.Text) { w.Func("gaps(col: u32) -> u32", "return col / %s * %s;", wide, gap) }
}

// A finisher writes the epilogue: alpha, beta times the old value and bias.
type finisher struct {
	alpha, beta, bias, step string
	early                   bool // alpha and beta are applied to the sum before
}

// finisher adds what the epilogue needs to the program, in which the output is bound as c.
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

// sum returns an expression for alpha sum + beta old.
func (f finisher) sum(sum, old string) string {
	return sum + " * " + f.alpha + " + " + old + " * " + f.beta
}

// function writes the function finish(sum, at, col): the result at position at, in a column, for a sum.
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
