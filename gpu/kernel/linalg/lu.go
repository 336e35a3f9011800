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

// lu replaces the matrices by L, without its diagonal of ones, and U, by Gaussian elimination with partial pivoting. It returns the pivots:
// for each of min(m, n) rows, the row that it was exchanged with, counted from 1. The status of a matrix is the first row, counted from 1,
// in which the diagonal of U is 0.
func (x *matrices) lu(r *shader.Recorder) (core.Memory, error) {
	low := min(x.m, x.n)
	pivots, err := r.Temp(4 * max(x.batch*low, 1))
	if err != nil {
		return pivots, err
	}
	return pivots, x.runSteps(r, "lu", low, x.m*x.n/matrixThreads+x.m/16+8, func(s *shader.Builder, _ int) func() stepProgram {
		to, lowWord := s.WordsOf("pivots", pivots), s.Uint(low)
		return func() stepProgram {
			return stepProgram{functions: maxPair, parts: []string{fmt.Sprintf(`
    var best = pair(0u, 0xffffffffu);
    for (var i = step + li; i < m; i += 64u) {
      let v = bitcast<u32>(abs(data[at + i * n + step]));
      if (v > best.x || best.y == 0xffffffffu) { best = pair(v, i); }
    }
    let pivot = whole_most(li, best).y;
    if (li == 0u) { pivots[%s + group * %s + step] = pivot + 1u; }
    if (pivot != step) {
      for (var j = li; j < n; j += 64u) {
        let t = data[at + step * n + j];
        data[at + step * n + j] = data[at + pivot * n + j];
        data[at + pivot * n + j] = t;
      }
    }
`, to, lowWord), `
    let d = data[at + step * n + step];
    let below = m - 1u - step;
    let right = n - 1u - step;
    if (d == 0.0 && li == 0u && status[mark] == 0u) { status[mark] = step + 1u; }
    if (d != 0.0) {
      for (var e = li; e < below * right; e += 64u) {
        let i = step + 1u + e / right;
        let j = step + 1u + e % right;
        data[at + i * n + j] = data[at + i * n + j] - data[at + i * n + step] / d * data[at + step * n + j];
      }
    }
`, `
    if (d != 0.0) {
      for (var i = step + 1u + li; i < m; i += 64u) { data[at + i * n + step] = data[at + i * n + step] / d; }
    }
`}}
		}
	})
}

// maxPair declares whole_most, which returns the pair with the largest first word, and of these the one with the smallest second.
func maxPair(w *shader.Text) {
	w.Reduce("most", shader.Pair, "select(b, a, a.x > b.x || (a.x == b.x && a.y < b.y))", matrixThreads)
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
	pivots, err := x.lu(r)
	if err != nil {
		return err
	}
	if err := x.store(r, &c.Outs[0], x.data, x.m, x.n, x.n, 1); err != nil {
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
