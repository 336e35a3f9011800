package gpu

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

func init() { register("matmul", matmulCall) }

// A product is a stack of matrix products: out = alpha a b + beta out + bias, then max(., 0) if relu.
type product struct {
	m, n, k     int
	out, a, b   *core.Operand
	bias        *core.Operand // nil for none
	alpha, beta float64
	relu        bool
	software    bool // the adapter computes on the CPU
	uncut       bool // the tiles of the last round stay whole
	lower       bool // rows of a end with the block that their diagonal is in, and a is folded
	ar, ac      int  // strides along the rows and columns of a
	br, bc      int
	cr, cc      int
	batch       layout // over the stack: out, a and b

	gather    *gather // nil, or what reads one of the factors
	wide, gap int     // after each wide columns of a row of the results, gap elements of memory are not its own
}

// matmulCall: Outs[0] = Floats[0] Ins[0] @ Ins[1] + Floats[1] Outs[0] + Ins[2]. Ints say whether each factor is stored
// transposed, and whether negative results become zero.
func matmulCall(r *recorder, c *core.Call) error {
	p := product{out: &c.Outs[0], a: &c.Ins[0], b: &c.Ins[1], alpha: c.Floats[0], beta: c.Floats[1], relu: c.Ints[2] != 0}
	if len(c.Ins) > 2 && c.Ins[2].Present() {
		p.bias = &c.Ins[2]
	}
	p.m, p.n, p.cr, p.cc = matrix(p.out, false)
	_, p.k, p.ar, p.ac = matrix(p.a, c.Ints[0] != 0)
	_, _, p.br, p.bc = matrix(p.b, c.Ints[1] != 0)
	p.batch = stack(p.out, p.a, p.b)
	if p.m == 0 || p.n == 0 || p.batch.count == 0 {
		return nil
	}
	if !p.a.DType.IsFloat() {
		return p.integers(r, c)
	}
	return p.run(r)
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
func stack(out *core.Operand, factors ...*core.Operand) layout {
	l := layout{count: 1, strides: make([][]int, 1+len(factors))}
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
		l.count *= n
		l.push(n, steps...)
	}
	return l
}

// A tile is how a product is divided: a workgroup computes rows x cols results, going along depth at a time, and each of
// its invocations high x wide of them. With two tiles of each factor in workgroup memory the next is written while one is
// read.
type tile struct {
	rows, cols, depth, high, wide int
	double                        bool // where neighbours in memory lie across
	loose                         bool // for rows of a that are read one element at a time, and for gathers
	least, add, each              int  // costs: see cost
}

func (t tile) threads() int { return t.rows / t.high * (t.cols / t.wide) }

var tiles = []tile{
	{rows: 32, cols: 32, depth: 16, high: 4, wide: 4, least: 26_500, add: 14_100, each: 9_090},
	{rows: 64, cols: 64, depth: 16, high: 4, wide: 8, add: 8_540, each: 27_090},
	{rows: 64, cols: 128, depth: 16, high: 8, wide: 8, least: 71_300, add: 10_300, each: 50_500, loose: true},
	{rows: 128, cols: 128, depth: 16, high: 8, wide: 8, add: 1_050, each: 101_300, double: true},
}

// multiprocessors is over how many of them workgroups spread.
var multiprocessors = 132

// Costs are in picoseconds, fitted to 2700 measurements of 99 products on an H200.
const (
	// startCost is what a workgroup costs beside its depth, in elements of depth.
	startCost = 15
	// sumCost is what it costs to add up pieces, and resultCost for each result of a piece.
	sumCost, resultCost = 7_600_000, 1
	// gatherCost is what a workgroup by itself waits for what it gathers.
	gatherCost = 40_000
	// mostPieces bounds into how many pieces the depth is cut, and leastDepth how deep each is.
	mostPieces, leastDepth = 64, 64
	mostGatheredPieces     = 128
)

// A choice is how a product is computed: by which of the tiles, and into how many pieces its depth is cut; last says that this is
// done for the tiles alone that do not fill a round, see [product.rounds].
type choice struct {
	number, pieces int
	last           bool
}

// estimate returns the cheapest choice.
func (p *product) estimate() choice {
	var best choice
	least := 0
	for number, t := range tiles {
		if number > 0 && (p.software && number > 1 || p.m <= t.rows/2 || p.n <= t.cols/2 || // compiling the large ones there takes long
			t.double && p.loose() || t.loose && !p.loose()) {
			continue
		}
		if c, cost := p.cut(number); number == 0 || cost < least {
			best, least = c, cost
		}
	}
	return best
}

// groups returns how many tiles the results are.
func (p *product) groups(t tile) int { return ceil(p.m, t.rows) * ceil(p.n, t.cols) * p.batch.count }

// longestLoop is how deep pieces may be on lavapipe, which ends loops after 65535 rounds.
const longestLoop = 1 << 15

// leastPieces returns into how many pieces the depth has to be cut.
func (p *product) leastPieces() int {
	if !p.software {
		return 1
	}
	return max(ceil(p.k, longestLoop), 1)
}

// cut returns how the depth is best cut for a tile, and what the product then costs.
func (p *product) cut(number int) (best choice, cost int) {
	least := p.leastPieces()
	most := mostPieces
	if p.gather != nil {
		most = mostGatheredPieces
	}
	lasts := []bool{false}
	if p.rounds(tiles[number]) > 0 {
		lasts = []bool{false, true}
	}
	for n := least; n <= max(least, most) && (n == least || p.k/n >= leastDepth); n++ {
		for _, last := range lasts {
			c := choice{number, n, last && n > 1}
			if took := p.cost(c); best.pieces == 0 || took < cost {
				best, cost = c, took
			}
		}
	}
	return best, cost
}

// cost returns about how long the product takes.
func (p *product) cost(c choice) int {
	t, groups := tiles[c.number], p.groups(tiles[c.number])
	if c.pieces == 1 {
		return p.pass(t, groups, 1)
	}
	cost, results := p.pass(t, groups, c.pieces), p.m*p.n*p.batch.count
	if c.last {
		rounds := p.rounds(t)
		rest := groups - rounds*multiprocessors
		cost, results = rounds*p.pass(t, multiprocessors, 1)+p.pass(t, rest, c.pieces), rest*t.rows*t.cols
	}
	if p.ac == 1 && t.double { // programs for pieces of these run slower
		switch {
		case p.br == 1 && p.bc != 1 || p.k%t.depth != 0:
			cost += cost / 5
		case c.last:
			cost += cost / 128
		default:
			cost += cost / 20
		}
	}
	return cost + sumCost + c.pieces*results*resultCost
}

// pass returns about how long so many tiles take in pieces. With each element of depth a multiprocessor goes through all its tiles, for
// which it needs some time for itself and some for each, and at least what one takes that waits for memory.
func (p *product) pass(t tile, groups, pieces int) int {
	step := max(t.least, t.add+t.each*ceil(groups*pieces, multiprocessors))
	if p.gather != nil { // one at a time, and by way of a table
		step = max(step*6/5, t.each+gatherCost)
	}
	return (ceil(ceil(p.k, pieces), t.depth)*t.depth + startCost) * step
}

// loose reports whether rows of a are read along the depth, one element at a time, or a factor is gathered.
func (p *product) loose() bool { return p.gather != nil || p.ac == 1 && !p.deepFours() }

// deepFours reports whether rows of a are read along the depth, four elements at a time.
func (p *product) deepFours() bool {
	return p.ac == 1 && p.k%4 == 0 && aligned(p.a, append([]int{p.ar}, p.batch.strides[1]...)...)
}

func ceil(a, b int) int { return (a + b - 1) / b }

// flatten makes a stack with one b a single product where the rows of a and of the results follow each other through it: with
// fewer, larger edges, and by the program for one product, which NVIDIA's compiler makes 30 % faster.
func (p *product) flatten() {
	s := p.batch.strides
	if len(p.batch.sizes) != 1 || s[0][0] != p.m*p.cr || s[1][0] != p.m*p.ar || s[2][0] != 0 {
		return
	}
	p.m *= p.batch.count
	p.batch = layout{count: 1, strides: make([][]int, 3)}
}

// turning is how many rows a product must have for a copy of b whose rows lie in memory as they are to pay: workgroups write it to
// their tiles without turning it.
const turning = 1024

func (p *product) run(r *recorder) error {
	p.flatten()
	single := true
	for _, s := range p.batch.strides[2] {
		single = single && s == 0
	}
	if p.br == 1 && p.bc != 1 && single && p.m*p.batch.count >= turning && min(p.n, p.k) >= 64 && 4*p.k*(p.n+3) <= r.device.limits.Binding {
		b, apart, err := turned(r, p.b, p.k, p.n, p.bc)
		if err != nil {
			return err
		}
		with := *p
		with.b, with.br, with.bc = b, apart, 1
		return with.tiles(r)
	}
	return p.tiles(r)
}

// tiles computes the product by tiles, in pieces of the depth where that is faster.
func (p *product) tiles(r *recorder) error {
	p.software = r.device.adapter.Software
	if whole, rest := p.parted(); whole != nil && apart(whole.estimate(), p.k) {
		if err := whole.by(r, whole.choose(r)); err != nil {
			return err
		}
		return rest.by(r, rest.estimate())
	}
	return p.by(r, p.choose(r))
}

// by computes the product as chosen.
func (p *product) by(r *recorder, c choice) error {
	number, pieces := c.number, c.pieces
	if pieces == 1 {
		return p.tiled(r, number, 1, nil)
	}
	if c.last {
		return p.lastInPieces(r, number, pieces)
	}
	size := 4 * p.m * p.n * p.batch.count * pieces
	if size > r.device.limits.Binding {
		return p.tiled(r, number, 1, nil)
	}
	parts, err := r.temp(size)
	if err != nil {
		return err
	}
	if err := p.tiled(r, number, pieces, &parts); err != nil {
		return err
	}
	return p.sumPieces(r, parts, pieces)
}

// aligned reports whether an operand can be accessed four float32 at a time along its dimension of stride 1, with steps along
// all others.
func aligned(o *core.Operand, steps ...int) bool {
	if o.DType != core.Float32 || base(o)%4 != 0 {
		return false
	}
	for _, s := range steps {
		if s%4 != 0 {
			return false
		}
	}
	return true
}

// sumPieces adds the partial products of the pieces of the depth, in their order, and finishes the results.
func (p *product) sumPieces(r *recorder, parts core.Memory, pieces int) error {
	s := newShader(r, "matmul (sum)")
	from := s.floatsOf("parts", parts)
	to := s.both("c", p.out, expr.F32)
	count := p.m * p.n * p.batch.count
	n, per, cols, piecesWord := s.uint(count), s.uint(p.m*p.n), s.uint(p.n), s.uint(pieces)
	cr, cc := s.uint(p.cr), s.uint(p.cc)
	finish := p.finisher(s)
	outer := layout{sizes: p.batch.sizes, strides: p.batch.strides[:1]}
	s.choose(len(outer.sizes))
	at := s.loop(&outer)
	cr, gap := p.gaps(s, cr)
	return s.run(r, groupsFor(count), func() string {
		walkBatch := walkAs("at_", "i / "+per, len(outer.sizes), 1, at, []string{to})
		return finish.text() + gap + each(n, `
  var sum = 0.0;
  for (var j = 0u; j < `+piecesWord+`; j++) { sum = sum + parts[`+from+` + j * `+n+` + i]; }
  let inner = i % `+per+`;
  let row = inner / `+cols+`;
  let col = inner % `+cols+`;
`+walkBatch+`
  let at = at_0 + row * `+cr+` + col * `+cc+`;
  st_c(at, finish(sum, at, col));
`)
	})
}

// gaps returns the stride of rows of results with, where they have gaps, those of the column, col, added, and a function for it.
func (p *product) gaps(s *shader, cr string) (stride, text string) {
	if !s.flag(p.gap != 0) {
		return cr, ""
	}
	return cr + " + gaps(col)", "fn gaps(col: u32) -> u32 { return col / " + s.uint(p.wide) + " * " + s.uint(p.gap) + "; }\n"
}

// A finisher makes a result of a sum: scale, old value, bias and the function at the end.
type finisher struct {
	alpha, beta, bias, step string
	relu                    bool
	early                   bool // scale and old value are in the sum
}

// finisher adds what finishing needs to the shader, in which the output is bound as c.
func (p *product) finisher(s *shader) finisher {
	f := finisher{alpha: s.float(p.alpha), relu: s.flag(p.relu)}
	if s.flag(p.beta != 0) {
		f.beta = s.float(p.beta)
	}
	if s.flag(p.bias != nil) {
		f.bias = s.in("bias", p.bias, expr.F32, expr.Number)
		f.step = s.uint(p.bias.Strides[0])
	}
	return f
}

// sum returns WGSL for a scaled sum and old value.
func (f finisher) sum(sum, old string) string {
	return sum + " * " + f.alpha + " + " + old + " * " + f.beta
}

func (f finisher) text() string {
	t := "fn finish(sum: f32, at: u32, col: u32) -> f32 {\n  var v = sum"
	switch {
	case f.early:
	case f.beta != "":
		t += " * " + f.alpha + " + ld_c(at) * " + f.beta
	default:
		t += " * " + f.alpha
	}
	t += ";\n"
	if f.bias != "" {
		t += "  v = v + ld_bias(" + f.bias + " + col * " + f.step + ");\n"
	}
	if f.relu {
		t += "  v = select(v, 0.0, v < 0.0);\n"
	}
	return t + "  return v;\n}\n"
}
