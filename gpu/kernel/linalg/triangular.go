package linalg

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() { kernel.Register(contract.LinalgTriangular, triangularCall) }

// triangularCall: Outs[0] = the solution X of Ins[0] X = Ins[1] for triangular Ins[0].
func triangularCall(r *shader.Recorder, c *core.Call) error {
	x, err := newSystems(r, c)
	if err != nil || x.batch == 0 || x.m == 0 {
		return err
	}
	a := contract.TriangularOf(c)
	if err := x.substitute(r, a.Upper, a.Unit); err != nil {
		return err
	}
	if err := x.storeSolution(r, &c.Outs[0]); err != nil {
		return err
	}
	return x.report(r, c, singularMatrix)
}

// substitute solves the triangular systems of [A | B], whose solutions replace B: the rows of a panel in one dispatch, then a product
// subtracts what they contribute to the rows that are left.
func (x *matrices) substitute(r *shader.Recorder, upper, unit bool) error {
	if x.n == x.m {
		return nil
	}
	a, width := x.whole(), panelWidth(x.m)
	panels := shader.Ceil(x.m, width)
	for i := range panels {
		first, next := i*width, (i+1)*width
		rows := x.m - next
		if upper {
			first, next = (panels-1-i)*width, 0
			rows = first
		}
		t := triangle{block: a.at(first, first), width: width, count: min(width, x.m-first), upper: upper, unit: unit}
		if err := x.solvePanel(r, t, a.at(first, x.m), x.n-x.m); err != nil {
			return err
		}
		if err := x.product(r, a.at(next, x.m), a.at(next, first), a.at(first, x.m), rows, x.n-x.m, t.count, -1, 1); err != nil {
			return err
		}
		r.Flush()
	}
	return nil
}

// A triangle is a square block of count rows and columns, in which a panel of equations is solved. width is a program's largest count.
//
// With moves, the block is in the matrices that it is solved for, at column skip: the panel's columns are left out, the rows of the
// others are exchanged first, as [matrices.luPanel] says, and only the columns behind the panel are solved for.
type triangle struct {
	block
	width, count int
	upper, unit  bool
	moves        *core.Memory
	skip         int
}

// solvePanel replaces the first rows of columns of b by the solutions for a triangle. An invocation has a column, in a ring of registers
// that moves by one in each step: the unknown that the others depend on is always in register 0, and its solution enters at the end.
func (x *matrices) solvePanel(r *shader.Recorder, t triangle, b block, columns int) error {
	const threads = 64
	s := shader.New(r, "solve panel")
	s.Specialize(t.width)
	s.Flag(t.upper)
	s.Flag(t.unit)
	moving, move := s.Flag(t.moves != nil), ""
	if moving {
		columns -= t.count
		move = s.WordsOf("moves", *t.moves)
	}
	groups := shader.Ceil(columns, threads)
	status := s.WordsOf("status", x.status)
	corner, cornerRow, cornerCol, cornerEach := s.In("corner", t.operand(), expr.F32, expr.Number), s.Uint(t.row), s.Uint(t.col), s.Uint(t.each)
	right, rightStep, rightEach := s.InOut("right", b.operand(), expr.F32), s.Uint(b.row), s.Uint(b.each)
	total, perMatrix, wide, count, skip := s.Uint(x.batch*groups), s.Uint(groups), s.Uint(columns), s.Uint(t.count), s.Uint(t.skip)
	vectors := shader.Ceil(t.width, 4)
	return s.Run(r, x.batch*groups, func(w *shader.Text) {
		w.Shared("shifted", shader.Real4, t.width, vectors)
		w.EachGroup(threads, total)
		w.Add("  let count = %s;\n  let matrix = group / %s;\n  var col = group %% %s * %du + li;", count, perMatrix, perMatrix, threads)
		// Column step of the triangle begins at its diagonal: the element that belongs to register i is at place i.
		row, col := "step + i", "step"
		if t.upper {
			row, col = "count - 1u - step - i", "count - 1u - step"
		}
		w.Add(`  for (var e = li; e < %[1]du; e += %[2]du) {
    let step = e / %[3]du;
    let i = e %% %[3]du;
    var v = 0.0;
    if (step + i < count) { v = ld_corner(%[4]s + matrix * %[5]s + (%[6]s) * %[7]s + (%[8]s) * %[9]s); }
    shifted[step][i >> 2u][i & 3u] = v;
  }`, t.width*4*vectors, threads, 4*vectors, corner, cornerEach, row, cornerRow, col, cornerCol)
		w.Barrier()
		w.Add("  if (col >= %s) { return; }\n  var steps = count;", wide)
		if moving {
			w.Add("  if (col >= %[1]s) { col = col + count; } else { steps = 0u; }", skip)
		}
		w.Add("  let apart = %s;\n  let at = %s + matrix * %s + col;", rightStep, right, rightEach)
		t.load(w, move)
		w.Add("  for (var step = 0u; step < steps; step++) {\n    var solved = a0;")
		for v := range vectors {
			w.Add("    let f%d = shifted[step][%d];", v, v)
		}
		if !t.unit {
			w.Add("    if (f0.x == 0.0) { status[%s + matrix] = 1u; }\n    solved = solved / f0.x;", status)
		}
		for i := 1; i < t.width; i++ {
			w.Add("    a%d = a%d - f%d.%s * solved;", i-1, i, i/4, shader.Component(i%4))
		}
		w.Add("    a%d = solved;\n  }", t.width-1)
		for i := range t.width {
			w.Add("  { let i = (%du + steps) %% %du; if (i < count) { st_right(at + (%s) * apart, a%d); } }", i, t.width, t.line("i"), i)
		}
	})
}

// line returns the expression for the row of unknown i.
func (t *triangle) line(i string) string {
	if t.upper {
		return "count - 1u - " + i
	}
	return i
}

// load reads an invocation's column into registers, and exchanges its rows.
func (t *triangle) load(w *shader.Text, move string) {
	for i := range t.width {
		from := t.line(fmt.Sprintf("%du", i))
		if t.moves != nil {
			w.Add("  var old%[1]d = 0.0;\n  if (%[1]du < count) { old%[1]d = ld_right(at + %[1]du * apart); }", i)
			from = fmt.Sprintf("moves[%s + matrix * 64u + %du]", move, i)
		}
		w.Add("  var a%[1]d = 0.0;\n  if (%[1]du < count) { a%[1]d = ld_right(at + (%[2]s) * apart); }", i, from)
	}
	if t.moves == nil {
		return
	}
	for i := range t.width {
		w.Add(`  if (%[1]du < count) {
    let place = moves[%[2]s + matrix * 64u + 32u + %[1]du];
    if (place >= count) { st_right(at + place * apart, old%[1]d); }
  }`, i, move)
	}
}
