// Package linalg has the GPU kernels that factorise and solve batches of matrices.
package linalg

import (
	"fmt"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

// A workgroup works on one matrix in scratch memory, in float32. The work on a matrix is divided into dispatches of limited length, so that
// no driver mistakes a large matrix for a hang. Operands are contiguous.

const (
	matrixThreads = 64
	// longestDispatch is about how many loop iterations an invocation runs in a dispatch.
	longestDispatch = 20000
)

// Errors for the first matrix whose status is not 0.
const (
	singularMatrix    = "matrix %d is singular, want one that can be inverted"
	notPositiveMatrix = "matrix %d is not positive definite"
	notFiniteMatrix   = "no convergence for matrix %d, which may hold NaN or infinity"
)

func init() {
	kernel.Register(contract.LinalgSolve, solveCall)
	kernel.Register(contract.LinalgDet, detCall)
	kernel.Register(contract.LinalgTriangular, triangularCall)
}

// matrices are copies of a batch [batch, m, n] of matrices in scratch memory, each with a status word. k is the number of columns of
// right-hand sides.
type matrices struct {
	batch, m, n, k int
	data, status   core.Memory
}

// newMatrices copies Ins[0] to scratch memory.
func newMatrices(r *shader.Recorder, c *core.Call) (x *matrices, err error) {
	a := &c.Ins[0]
	rank := len(a.Shape)
	x = &matrices{batch: core.Numel(a.Shape[:rank-2]), m: a.Shape[rank-2], n: a.Shape[rank-1]}
	if a.Numel() == 0 && x.m > 0 && x.n > 0 {
		x.batch = 0
	}
	if x.batch == 0 {
		return x, nil
	}
	if x.status, err = r.Temp(4 * x.batch); err != nil {
		return x, err
	}
	r.Clear(shader.F32Operand(x.status, 0, x.batch))
	x.data, err = x.copyOf(r, a, a.Shape[rank-2], a.Shape[rank-1], false)
	return x, err
}

// copyOf copies a batch of matrices [rows, cols] to scratch memory; with columns, it transposes them. If a is absent, it writes identities.
func (x *matrices) copyOf(r *shader.Recorder, a *core.Operand, rows, cols int, columns bool) (core.Memory, error) {
	n := x.batch * rows * cols
	m, err := r.Temp(4 * max(n, 1))
	if err != nil || n == 0 {
		return m, err
	}
	s := shader.New(r, "matrices")
	value := "select(0.0, 1.0, (i % (" + s.Uint(rows) + " * " + s.Uint(cols) + ")) % (" + s.Uint(cols) + " + 1u) == 0u)"
	if s.Flag(a != nil && a.Present()) {
		value = "ld_x(" + s.In("x", a, expr.F32, expr.Number) + " + i)"
	}
	to, count := s.FloatsOf("to", m), s.Uint(n)
	place := "i"
	if s.Flag(columns) {
		r, c := s.Uint(rows), s.Uint(cols)
		place = "(i / (" + r + " * " + c + ")) * " + r + " * " + c + " + (i % " + c + ") * " + r + " + (i / " + c + ") % " + r
	}
	return m, s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add("  to[%s + %s] = %s;", to, place, value)
	})
}

// rightSides copies the right-hand sides Ins[1] [n, k] to scratch memory; identities if they are absent. If rows is not empty, its words
// give the order of the rows.
func (x *matrices) rightSides(r *shader.Recorder, c *core.Call, rows core.Memory) (core.Memory, error) {
	x.k = x.n
	b := len(c.Ins) > 1 && c.Ins[1].Present()
	if b {
		x.k = c.Ins[1].Shape[len(c.Ins[1].Shape)-1]
	}
	n := x.batch * x.n * x.k
	m, err := r.Temp(4 * max(n, 1))
	if err != nil || n == 0 {
		return m, err
	}
	s := shader.New(r, "right sides")
	to, count, height, width := s.FloatsOf("to", m), s.Uint(n), s.Uint(x.n), s.Uint(x.k)
	row, value := "own", "select(0.0, 1.0, row == i % "+width+")"
	if s.Flag(rows.Handle != 0) {
		row = "rows[" + s.WordsOf("rows", rows) + " + matrix * " + height + " + own]"
	}
	if s.Flag(b) {
		value = "ld_x(" + s.In("x", &c.Ins[1], expr.F32, expr.Number) + " + (matrix * " + height + " + row) * " + width + " + i % " + width + ")"
	}
	return m, s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let own = (i / %s) %% %s;
  let matrix = i / (%s * %s);
  let row = %s;`, width, height, width, height, row)
		w.Add("  to[%s + i] = %s;", to, value)
	})
}

// store writes matrices [rows, cols] from scratch memory to out. There, a matrix has rows*cols elements with the given strides.
func (x *matrices) store(r *shader.Recorder, out *core.Operand, from core.Memory, rows, cols, rowStep, colStep int) error {
	return x.storeOf(r, out, from, rows, cols, rows*cols, rowStep, colStep, "v")
}

// storeOf is store for matrices of size floats each. value is an expression of the element v at row and col.
func (x *matrices) storeOf(r *shader.Recorder, out *core.Operand, from core.Memory, rows, cols, size, rowStep, colStep int, value string) error {
	n := x.batch * rows * cols
	if n == 0 || !out.Present() {
		return nil
	}
	s := shader.New(r, "store "+value)
	y, at := s.Out("y", out, expr.F32, expr.Number), s.FloatsOf("from_", from)
	count, height, width, step, down, right := s.Uint(n), s.Uint(rows), s.Uint(cols), s.Uint(size), s.Uint(rowStep), s.Uint(colStep)
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let col = i %% %s;
  let row = (i / %s) %% %s;
  let matrix = i / (%s * %s);`, width, width, height, width, height)
		w.Add("  let v = from_[%s + matrix * %s + row * %s + col * %s];", at, step, down, right)
		w.Add("  st_y(%s + i, %s);", y, value)
	})
}

// report makes the first status that is not 0 the error of the call. what is the format of the error, for the number of the matrix.
func (x *matrices) report(r *shader.Recorder, c *core.Call, what string) error {
	s := shader.New(r, "matrices' status")
	at, count := s.WordsOf("status", x.status), s.Uint(x.batch)
	fault := s.Faults(r, c, func(c *core.Call, at uint32) error { return core.Errorf(core.MatrixError, c.Op, what, at) })
	return s.Run(r, 1, func(w *shader.Text) {
		w.Reduce("first", "u32", "min(a, b)", 256)
		w.EachGroup(256, "1u")
		w.Add(`  var first = 0xffffffffu;
  for (var i = li; i < %s && first == 0xffffffffu; i += 256u) {
    if (status[%s + i] != 0u) { first = i; }
  }
  first = whole_first(li, first);
  if (li == 0u && first != 0xffffffffu) { %s }`, count, at, fault("first"))
	})
}

// storeWords writes n words to out as integers.
func (x *matrices) storeWords(r *shader.Recorder, out *core.Operand, from core.Memory, n int) error {
	s := shader.New(r, "store words")
	y, at, count := s.Out("y", out, expr.I64, expr.Number), s.WordsOf("words", from), s.Uint(n)
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add("  st_y(%s + i, pair(words[%s + i], 0u));", y, at)
	})
}

// A stepProgram is what a workgroup does for a matrix, step by step. In its statements, at is the index of the matrix [m, n] in data, and
// mark that of its status word.
type stepProgram struct {
	functions func(w *shader.Text) // declares functions that the steps call; nil for none
	start     string               // statements before the first step
	parts     []string             // statements of a step; a barrier follows each part
}

// sums declares the function whole_sum.
func sums(w *shader.Text) { w.Sum(matrixThreads) }

// runSteps runs n steps for every matrix, in as many dispatches as needed. cost is about how many loop iterations a step takes. bind adds
// operands to the dispatch that starts at step first.
func (x *matrices) runSteps(r *shader.Recorder, name string, n, cost int, bind func(s *shader.Builder, first int) func() stepProgram) error {
	most := max(longestDispatch/max(cost, 1), 1)
	for first := 0; first < n; first += most {
		s := shader.New(r, name)
		data, status := s.FloatsOf("data", x.data), s.WordsOf("status", x.status)
		batch, rows, cols, begin, end := s.Uint(x.batch), s.Uint(x.m), s.Uint(x.n), s.Uint(first), s.Uint(min(first+most, n))
		parts := bind(s, first)
		err := s.Run(r, x.batch, func(w *shader.Text) {
			p := parts()
			if p.functions != nil {
				p.functions(w)
			}
			w.EachGroup(matrixThreads, batch)
			w.Add(`  let m = %s;
  let n = %s;
  let at = %s + group * m * n;
  let mark = %s + group;`, rows, cols, data, status)
			w.Put(p.start)
			w.Add("  for (var step = %s; step < %s; step++) {", begin, end)
			for _, part := range p.parts {
				w.Put(part)
				w.BarrierAll()
			}
			w.Add("  }")
		})
		if err != nil {
			return err
		}
		r.Flush()
	}
	return nil
}

// substitute solves triangular systems for the columns of b, in place.
func (x *matrices) substitute(r *shader.Recorder, b core.Memory, upper, unit bool) error {
	for first := 0; first < x.n && x.k > 0; {
		last, cost := first, 0
		for ; last < x.n && (last == first || cost < longestDispatch); last++ {
			cost += last + 1
		}
		s := shader.New(r, "substitute")
		data, status, right := s.FloatsOf("data", x.data), s.WordsOf("status", x.status), s.FloatsOf("b", b)
		count, n, k, begin, end := s.Uint(x.batch*x.k), s.Uint(x.n), s.Uint(x.k), s.Uint(first), s.Uint(last)
		s.Flag(upper)
		s.Flag(unit)
		err := s.Run(r, shader.GroupsFor(x.batch*x.k), func(w *shader.Text) {
			row, from, to, divide := "step", "0u", "row", ""
			if upper {
				row, from, to = "n - 1u - step", "row + 1u", "n"
			}
			if !unit {
				divide = fmt.Sprintf(`    let d = data[at + row * n + row];
    if (d == 0.0) { status[%s + matrix] = 1u; }
    sum = sum / d;
`, status)
			}
			w.Each(count)
			w.Add(`  let n = %s;
  let k = %s;
  let matrix = i / k;
  let at = %s + matrix * n * n;
  let column = %s + matrix * n * k + i %% k;`, n, k, data, right)
			w.Add(`  for (var step = %s; step < %s; step++) {
    let row = %s;
    var sum = b[column + row * k];
    for (var j = %s; j < %s; j++) { sum = sum - data[at + row * n + j] * b[column + j * k]; }`, begin, end, row, from, to)
			w.Add(`%s    b[column + row * k] = sum;
  }`, divide)
		})
		if err != nil {
			return err
		}
		first = last
	}
	return nil
}

// solveCall: Outs[0] = the solution X of Ins[0] X = Ins[1]; without Ins[1], the inverse of Ins[0].
func solveCall(r *shader.Recorder, c *core.Call) error {
	x, err := newMatrices(r, c)
	if err != nil || x.batch == 0 || x.n == 0 {
		return err
	}
	pivots, err := x.lu(r)
	if err != nil {
		return err
	}
	rows, err := rowOrder(r, c, x.batch, x.n, x.n, nil, pivots)
	if err != nil {
		return err
	}
	b, err := x.rightSides(r, c, rows)
	if err != nil {
		return err
	}
	if err := x.substitute(r, b, false, true); err != nil {
		return err
	}
	if err := x.substitute(r, b, true, false); err != nil {
		return err
	}
	if err := x.store(r, &c.Outs[0], b, x.n, x.k, x.k, 1); err != nil {
		return err
	}
	return x.report(r, c, singularMatrix)
}

// triangularCall: Outs[0] = the solution X of Ins[0] X = Ins[1] for triangular Ins[0].
func triangularCall(r *shader.Recorder, c *core.Call) error {
	x, err := newMatrices(r, c)
	if err != nil || x.batch == 0 || x.n == 0 {
		return err
	}
	b, err := x.rightSides(r, c, core.Memory{})
	if err != nil {
		return err
	}
	a := contract.TriangularOf(c)
	if err := x.substitute(r, b, a.Upper, a.Unit); err != nil {
		return err
	}
	if err := x.store(r, &c.Outs[0], b, x.n, x.k, x.k, 1); err != nil {
		return err
	}
	return x.report(r, c, singularMatrix)
}

// detCall: Outs = the determinants of Ins[0], their signs, and the logarithms of their absolute values.
func detCall(r *shader.Recorder, c *core.Call) error {
	x, err := newMatrices(r, c)
	if err != nil || x.batch == 0 {
		return err
	}
	pivots, err := x.lu(r)
	if err != nil {
		return err
	}
	s := shader.New(r, "determinants")
	data, exchanged := s.FloatsOf("data", x.data), s.WordsOf("pivots", pivots)
	count, n := s.Uint(x.batch), s.Uint(x.n)
	var outs []string
	for i, name := range []string{"det", "sign", "size"} {
		outs = append(outs, s.Out(name, &c.Outs[i], expr.F32, expr.Number))
	}
	return s.Run(r, shader.GroupsFor(x.batch), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let n = %s;
  var sign = 1.0;
  var det = 1.0;
  var size = 0.0;
  for (var j = 0u; j < n; j++) {
    let d = data[%s + (i * n + j) * n + j];
    let turn = select(1.0, -1.0, pivots[%s + i * n + j] != j + 1u);
    det = det * d * turn;
    size = size + plait_log_f32(abs(d));
    sign = select(sign * select(1.0, -1.0, d < 0.0) * turn, 0.0, d == 0.0);
  }
  if (plait_isnan_f32(det)) { sign = det; }
  st_det(%s + i, det);
  st_sign(%s + i, sign);`, n, data, exchanged, outs[0], outs[1])
		w.Add("  st_size(%s + i, size);", outs[2])
	})
}
