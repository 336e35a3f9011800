package linalg

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/shader"
)

const (
	// largestSide is the number of rows of a block: the rotations of a pair of blocks fit into the workgroup memory of every GPU.
	largestSide = 24
	// maxSweeps is how often all pairs are rotated at most. In float32 a dozen sweeps suffice for nearly all matrices.
	maxSweeps = 16
	// maxSmallSweeps and maxInnerSweeps are the same for a matrix that is a single pair of blocks: how often it is computed afresh, and how
	// often all its rows are rotated in between.
	maxSmallSweeps, maxInnerSweeps = 3, 12
)

// A jacobi makes symmetric matrices diagonal by rotations of pairs of rows and columns, and applies the rotations also to the rows of other
// matrices, its riders.
//
// The rows are divided into blocks. In a round, all blocks are paired; for each pair, a workgroup rotates the rows of a submatrix that fits
// its memory, and then products apply the rotations to the matrix and the riders. The rounds of a sweep pair each block with each other.
// A sweep's errors do not add up to those of others, because its matrix is computed afresh from the riders.
//
// Bečka, Okša, Vajteršic: Dynamic ordering for a parallel block-Jacobi SVD algorithm, 2002; Demmel, Veselić: Jacobi's method is more
// accurate than QR, 1992.
type jacobi struct {
	*matrices
	side, pairs int     // rows of a block, and number of pairs
	riders      block   // [n, width], with a row for each of the matrix
	width       int     // columns of the riders
	relative    bool    // an element is small in comparison with the diagonal elements of its row and column, not with the largest
	least       float64 // the relative size up to which elements count as 0
	rotations   core.Memory
	done        core.Memory // a word for each matrix, which is 1 when it has converged
	turned      core.Memory // two words for each matrix: see [jacobi.rotate]
	scale       core.Memory // the largest element of each diagonal
}

// newJacobi returns a jacobi for batches of matrices of at least the given number of rows. The rows beyond them are 0.
func newJacobi(r *shader.Recorder, batch, rows, width int) (*jacobi, error) {
	j := &jacobi{matrices: &matrices{batch: batch}, side: largestSide, pairs: 1, width: width}
	if rows <= 2*largestSide {
		j.side = shader.Ceil(rows, 2)
	} else {
		j.pairs = shader.Ceil(rows, 2*largestSide)
	}
	j.n = 2 * j.side * j.pairs
	j.m = j.n
	if err := j.allocate(r); err != nil {
		return nil, err
	}
	riders, err := r.Reals(batch * j.n * width)
	if err != nil {
		return nil, err
	}
	j.riders = j.blockOf(riders, j.n, width)
	for _, m := range []struct {
		to   *core.Memory
		n    int
		real bool
	}{{&j.rotations, batch * j.pairs * 4 * j.side * j.side, true}, {&j.done, batch, false}, {&j.turned, 2 * batch, false}, {&j.scale, batch, true}} {
		if m.real {
			*m.to, err = r.Reals(m.n)
		} else if *m.to, err = r.Temp(4 * m.n); err == nil {
			r.Clear(shader.F32Operand(*m.to, 0, m.n))
		}
		if err != nil {
			return nil, err
		}
	}
	return j, nil
}

// sweeps rotates until the matrices are diagonal. refresh computes them from the riders before a sweep, and after follows it.
func (j *jacobi) sweeps(r *shader.Recorder, refresh, after func() error) error {
	most, inner := maxSweeps, 1
	if j.pairs == 1 {
		most, inner = maxSmallSweeps, maxInnerSweeps
	}
	for sweep := range most {
		if err := refresh(); err != nil {
			return err
		}
		if err := j.check(r, sweep == 0); err != nil {
			return err
		}
		for round := range 2*j.pairs - 1 {
			if err := j.rotate(r, round, inner); err != nil {
				return err
			}
			if err := j.apply(r, round); err != nil {
				return err
			}
			r.Flush()
		}
		if err := after(); err != nil {
			return err
		}
	}
	return nil
}

// check finds the largest elements of the diagonals. A matrix that the last sweep did not turn is done. So are, before the first sweep,
// those that are not finite, which is their status: a product spreads what is not to the diagonal.
func (j *jacobi) check(r *shader.Recorder, first bool) error {
	s := shader.New(r, "jacobi (check)")
	data, status, done, turned, scale := s.RealsOf("data", j.data), s.WordsOf("status", j.status), s.WordsOf("done", j.done), s.WordsOf("turned", j.turned), s.RealsOf("scale", j.scale)
	batch, size := s.Uint(j.batch), s.Uint(j.n)
	s.Flag(first)
	return s.Run(r, j.batch, func(w *shader.Text) {
		w.Reduce("largest", shader.Real, "max(a, b)", matrixThreads)
		w.EachGroup(matrixThreads, batch)
		w.Add(`  let n = %s;
  var most = 0.0;
  for (var i = li; i < n; i += %du) {
    let v = abs(data[%s + (group * n + i) * n + i]);`, size, matrixThreads, data)
		if first {
			w.Add("    if (plait_unbounded(v)) {\n      status[%s + group] = 1u;\n      done[%s + group] = 1u;\n    }", status, done)
		}
		w.Add(`    most = max(most, v);
  }
  most = whole_largest(li, most);
  if (li == 0u) { scale[%s + group] = most; }`, scale)
		if !first {
			w.Add(`  if (li == 0u) {
    if (turned[%[1]s + 2u * group] == 0u || turned[%[1]s + 2u * group + 1u] == 0u) { done[%[2]s + group] = 1u; }
    turned[%[1]s + 2u * group] = 0u;
    turned[%[1]s + 2u * group + 1u] = 0u;
  }`, turned, done)
		}
	})
}

// polish makes the rows [n, cols] of v, which are nearly orthonormal, more so, by a step of Newton's method. It needs memory of the size of
// the matrix and of v, and overwrites the matrix.
func (j *jacobi) polish(r *shader.Recorder, v, spare block, cols int) error {
	squares := j.whole()
	if err := j.product(r, squares, v, v.transposed(), j.n, j.n, cols, 1, 0); err != nil {
		return err
	}
	if err := j.copyTo(r, spare, v, j.n, cols, "1.5 * v"); err != nil {
		return err
	}
	if err := j.product(r, spare, squares, v, j.n, cols, j.n, -0.5, 1); err != nil {
		return err
	}
	return j.copyTo(r, v, spare, j.n, cols, "v")
}

// ranks returns, for each row, how many of the first rows come before it: those of a smaller diagonal element, or with falling, of a larger
// one.
func (j *jacobi) ranks(r *shader.Recorder, sizes block, rows int, falling bool) (core.Memory, error) {
	m, err := r.Temp(4 * j.batch * rows)
	if err != nil {
		return m, err
	}
	s := shader.New(r, "ranks")
	s.Flag(falling)
	size, to := s.RealsOf("sizes", sizes.of.Memory), s.WordsOf("ranks", m)
	count, n, each, step := s.Uint(j.batch*rows), s.Uint(rows), s.Uint(sizes.each), s.Uint(sizes.row)
	return m, s.Run(r, shader.GroupsFor(j.batch*rows), func(w *shader.Text) {
		before := map[bool]string{false: "o < v", true: "o > v"}[falling]
		w.Each(count)
		w.Add(`  let n = %s;
  let at = %s + i / n * %s;
  let own = i %% n;
  let v = sizes[at + own * %s];
  var rank = 0u;
  for (var k = 0u; k < n; k++) {
    let o = sizes[at + k * %s];
    if (%s || (o == v && k < own)) { rank = rank + 1u; }
  }
  ranks[%s + i] = rank;`, n, size, each, step, step, before, to)
	})
}
