package linalg

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.LinalgLU, luCall)
	kernel.Register(contract.LinalgPermutation, permutationOfPivotsCall)
}

// lu replaces the matrices by L, without its diagonal of ones, and U, by Gaussian elimination of low columns with partial pivoting. It
// returns the pivots: for each of low rows, the row that it was exchanged with, counted from 1. The status of a matrix is the first row,
// counted from 1, in which the diagonal of U is 0.
//
// One workgroup factorises a panel of columns. A second dispatch exchanges the rows of the other columns and solves for the panel's rows of
// U, and a product updates the rest.
func (x *matrices) lu(r *shader.Recorder, low int) (core.Memory, error) {
	pivots, err := r.Temp(4 * max(x.batch*low, 1))
	if err != nil {
		return pivots, err
	}
	const most = 32 // columns of a panel
	moves, err := r.Temp(4 * 2 * most * x.batch)
	if err != nil {
		return pivots, err
	}
	a := x.whole()
	for first := 0; first < low; {
		p := x.luShape(r, first)
		count := min(p.width, low-first)
		if err := x.luPanel(r, p, first, count, low, pivots, moves); err != nil {
			return pivots, err
		}
		next := first + count
		if x.n > count {
			t := triangle{block: a.at(first, first), width: p.width, count: count, unit: true, moves: &moves, skip: first}
			if err := x.solvePanel(r, t, a.at(first, 0), x.n); err != nil {
				return pivots, err
			}
			if err := x.product(r, a.at(next, next), a.at(next, first), a.at(first, next), x.m-next, x.n-next, count, -1, 1); err != nil {
				return pivots, err
			}
		}
		r.Flush()
		first = next
	}
	return pivots, nil
}

// A luShape is how a workgroup holds a panel: each invocation has a number of rows in registers.
type luShape struct{ threads, rows, width int }

// luShape returns the shape for the panel at column first. Taller panels have fewer columns.
func (x *matrices) luShape(r *shader.Recorder, first int) luShape {
	const registers = 32
	height := x.m - first
	p := luShape{threads: 64, rows: 1, width: registers}
	for p.threads < height && 4*p.threads <= min(r.GPU.Invocations, 1024) {
		p.threads *= 4
	}
	for p.threads*p.rows < height {
		p.rows *= 2
		p.width = max(p.width/2, 1)
	}
	if x.m <= 8 {
		p.width = 8
	}
	return p
}

// luPanel factorises columns first to first+count. It writes to moves, for each of the panel's rows, which row came there, and then where
// the row that was there went, counted from first.
//
// An invocation holds its rows as a ring of registers that moves by one in each step: the column that is eliminated is always in register
// 0, and the multiplier that replaces it enters at the end. A row stays in its registers when it is exchanged; only its number changes.
func (x *matrices) luPanel(r *shader.Recorder, p luShape, first, count, low int, pivots, moves core.Memory) error {
	s := shader.New(r, "lu")
	s.Specialize(p.threads)
	s.Specialize(p.rows)
	s.Specialize(p.width)
	data, status, pivot, move := s.RealsOf("data", x.data), s.WordsOf("status", x.status), s.WordsOf("pivots", pivots), s.WordsOf("moves", moves)
	batch, rows, cols, begin, steps, lowWord := s.Uint(x.batch), s.Uint(x.m), s.Uint(x.n), s.Uint(first), s.Uint(count), s.Uint(low)
	vectors := shader.Ceil(p.width, 4)
	return s.Run(r, x.batch, func(w *shader.Text) {
		w.Shared("row", shader.Real4, vectors)
		// A candidate has the place y of its row, and the bits of its absolute value, in x or in z and x.
		typ, none := shader.Pair, "pair(0u, 0xffffffffu)"
		better, value := "a.x > b.x || (a.x == b.x && a.y < b.y)", "pair(bitcast<u32>(abs(a%[1]d_0)), place%[1]d)"
		if r.Float64 {
			typ, none, better = shader.Word4, "word4(0u, 0xffffffffu, 0u, 0u)", "a.z > b.z || (a.z == b.z && (a.x > b.x || (a.x == b.x && a.y < b.y)))"
			value = "word4(bitcast<pair>(abs(a%[1]d_0)).x, place%[1]d, bitcast<pair>(abs(a%[1]d_0)).y, 0u)"
		}
		w.Shared("largest", typ, p.threads)
		w.Shared("larger", typ, p.threads/8)
		w.Shared("few", typ, 8)
		w.Func("most(a: "+typ+", b: "+typ+") -> "+typ, "if (%s) { return a; }\n  return b;", better)
		w.EachGroup(p.threads, batch)
		w.Add(`  let n = %s;
  let first = %s;
  let height = %s - first;
  let count = %s;
  let from_ = %s + (group * (height + first) + first) * n + first;`, cols, begin, rows, steps, data)
		for q := range p.rows {
			w.Add("  var place%[1]d = li + %[2]du;\n  var left%[1]d = place%[1]d < height;", q, q*p.threads)
			for c := range p.width {
				w.Add("  var a%d_%d = 0.0;", q, c)
				w.Add("  if (left%[1]d && %[2]du < count) { a%[1]d_%[2]d = data[from_ + place%[1]d * n + %[2]du]; }", q, c)
			}
		}
		w.Add("  var failed = 0u;\n  for (var step = 0u; step < count; step++) {\n    var best = %s;", none)
		for q := range p.rows {
			w.Add("    if (left%[1]d) { best = most(best, "+value+"); }", q)
		}
		w.Add("    largest[li] = best;")
		w.Barrier()
		few := "larger"
		w.Add(`    if (li < %[1]du) {
      for (var i = 1u; i < 8u; i++) { best = most(best, largest[li + i * %[1]du]); }
      larger[li] = best;
    }`, p.threads/8)
		w.Barrier()
		if p.threads > 64 {
			few = "few"
			w.Add(`    if (li < 8u) {
      for (var i = li + 8u; i < %du; i = i + 8u) { best = most(best, larger[i]); }
      few[li] = best;
    }`, p.threads/8)
			w.Barrier()
		}
		w.Add("    for (var i = 0u; i < 8u; i++) { best = most(best, %s[i]); }\n    let pivot = best.y;", few)
		for q := range p.rows {
			w.Add("    if (left%[1]d && place%[1]d == pivot) {", q)
			for v := range vectors {
				var parts [4]string
				for i := range parts {
					parts[i] = "0.0"
					if c := 4*v + i; c < p.width {
						parts[i] = fmt.Sprintf("select(0.0, a%d_%d, step + %du < %du)", q, c, c, p.width)
					}
				}
				w.Add("      row[%d] = real4(%s, %s, %s, %s);", v, parts[0], parts[1], parts[2], parts[3])
			}
			w.Add("      place%[1]d = step;\n      left%[1]d = false;\n    } else if (left%[1]d && place%[1]d == step) { place%[1]d = pivot; }", q)
		}
		w.Barrier()
		w.Add(`    let d = row[0].x;
    if (d == 0.0 && failed == 0u) { failed = first + step + 1u; }
    if (li == 0u) { pivots[%s + group * %s + first + step] = first + pivot + 1u; }`, pivot, lowWord)
		for v := range vectors {
			w.Add("    let u%d = row[%d];", v, v)
		}
		for q := range p.rows {
			w.Add("    let head%[1]d = a%[1]d_0;\n    let f%[1]d = select(0.0, head%[1]d / d, left%[1]d && d != 0.0);", q)
			for c := 1; c < p.width; c++ {
				w.Add("    a%d_%d = a%d_%d - f%d * u%d.%s;", q, c-1, q, c, q, c/4, shader.Component(c%4))
			}
			w.Add("    a%[1]d_%[2]d = select(head%[1]d, f%[1]d, left%[1]d);", q, p.width-1)
		}
		w.Add("  }\n  if (li == 0u && failed != 0u && status[%s + group] == 0u) { status[%s + group] = failed; }", status, status)
		for q := range p.rows {
			w.Add(`  if (li + %[1]du < height) {
    if (place%[2]d < count) { moves[%[3]s + group * 64u + place%[2]d] = li + %[1]du; }
    if (li + %[1]du < count) { moves[%[3]s + group * 64u + 32u + li + %[1]du] = place%[2]d; }`, q*p.threads, q, move)
			for c := range p.width {
				w.Add("    { let col = (%du + count) %% %du; if (col < count) { data[from_ + place%d * n + col] = a%d_%d; } }", c, p.width, q, q, c)
			}
			w.Add("  }")
		}
	})
}

// rowOrder returns the order of m rows after the exchanges of k pivots, which are an operand or words.
func rowOrder(r *shader.Recorder, c *core.Call, batch, k, m int, pivots *core.Operand, words core.Memory) (core.Memory, error) {
	rows, err := r.Temp(4 * max(batch*m, 1))
	if err != nil || batch*m == 0 {
		return rows, err
	}
	s := shader.New(r, "rows after exchanges")
	to, count, low, height := s.WordsOf("rows", rows), s.Uint(batch), s.Uint(k), s.Uint(m)
	pivot, check := "", ""
	if s.Flag(pivots != nil) {
		pivot = "ld_x(" + s.In("x", pivots, expr.I64, expr.Number) + " + i * " + low + " + j).x"
		fault := s.Faults(r, c, func(c *core.Call, at uint32) error {
			return core.Errorf(core.IndexError, c.Op, "a pivot of matrix %d is not within its %d rows", at, m)
		})
		check = fmt.Sprintf("    if (pivot == 0u || pivot > %s) { %s return; }\n", height, fault("i"))
	} else {
		pivot = "pivots[" + s.WordsOf("pivots", words) + " + i * " + low + " + j]"
	}
	return rows, s.Run(r, shader.GroupsFor(batch), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let first = %s + i * %s;
  for (var j = 0u; j < %s; j++) { rows[first + j] = j; }
  for (var j = 0u; j < %s; j++) {
    let pivot = %s;`, to, height, height, low, pivot)
		w.Add(`%s    let t = rows[first + j];
    rows[first + j] = rows[first + pivot - 1u];
    rows[first + pivot - 1u] = t;
  }`, check)
	})
}

// luCall: Outs = L and U of Ins[0] in one matrix, the pivots, and the status words.
func luCall(r *shader.Recorder, c *core.Call) error {
	x, err := newMatrices(r, c)
	if err != nil || x.batch == 0 {
		return err
	}
	pivots, err := x.lu(r, min(x.m, x.n))
	if err != nil {
		return err
	}
	if err := x.copyTo(r, blockIn(&c.Outs[0]), x.whole(), x.m, x.n, "v"); err != nil {
		return err
	}
	if n := c.Outs[1].Numel(); n > 0 {
		if err := x.storeWords(r, &c.Outs[1], pivots, n); err != nil {
			return err
		}
	}
	return x.storeWords(r, &c.Outs[2], x.status, x.batch)
}

// permutationOfPivotsCall: Outs[0] [*, m], int64, = where each row was before the exchanges of the pivots Ins[0] [*, k].
func permutationOfPivotsCall(r *shader.Recorder, c *core.Call) error {
	pivots, out := &c.Ins[0], &c.Outs[0]
	last := len(pivots.Shape) - 1
	batch, k, m := core.Numel(pivots.Shape[:last]), pivots.Shape[last], out.Shape[last]
	if k == 0 {
		pivots = nil
	}
	rows, err := rowOrder(r, c, batch, k, m, pivots, core.Memory{})
	if err != nil || batch*m == 0 {
		return err
	}
	return (&matrices{}).storeWords(r, out, rows, batch*m)
}
