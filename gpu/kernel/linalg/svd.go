package linalg

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() { kernel.Register(contract.LinalgSVD, svdCall) }

// svdCall: Outs = descending singular values and, unless absent, U and V' of Ins[0] = U S V'. A wide matrix is transposed, which exchanges
// U and V.
//
// The matrix is Q R. Sweeps rotate the rows of X = W R until they are orthogonal, which is when X Xᵀ is diagonal; for the rows of R this
// takes far fewer sweeps than for those of the matrix. The norms of X are the singular values, and the columns of Q Wᵀ are those of U. The
// rows of X, divided by their norms, would be those of V', but small ones are less accurate, and those of a norm of 0 have no direction.
// So V is the orthogonal factor of Xᵀ, up to signs.
//
// Drmač, Veselić: New fast and accurate Jacobi SVD algorithm, 2008.
func svdCall(r *shader.Recorder, c *core.Call) error {
	a := blockIn(&c.Ins[0])
	rank := len(c.Ins[0].Shape)
	batch, m, n := core.Numel(c.Ins[0].Shape[:rank-2]), c.Ins[0].Shape[rank-2], c.Ins[0].Shape[rank-1]
	wide := m < n
	if wide {
		m, n = n, m
		a = a.transposed()
	}
	if batch == 0 || n == 0 {
		return nil
	}
	first, err := newQR(r, batch, m, n, func(x *matrices, to block) error { return x.copyTo(r, to, a, m, n, "v") })
	if err != nil {
		return err
	}
	if err := first.factorise(r); err != nil {
		return err
	}
	j, x, w, err := orthogonalRows(r, first, n)
	if err != nil {
		return err
	}
	sizes, err := j.norms(r, x, n)
	if err != nil {
		return err
	}
	ranks, err := j.ranks(r, sizes, n, true)
	if err != nil {
		return err
	}
	if err := j.sort(r, ranks, block{of: &c.Outs[0], row: 1, col: 1, each: n}, sizes, n, 1); err != nil {
		return err
	}
	if len(c.Outs) == 1 {
		return j.report(r, c, notFiniteMatrix)
	}
	left, right := blockIn(&c.Outs[1]), blockIn(&c.Outs[2])
	if wide {
		left, right = right.transposed(), left.transposed()
	}
	second, err := newQR(r, batch, n, n, func(_ *matrices, to block) error { return j.sort(r, ranks, to.transposed(), x, n, n) })
	if err != nil {
		return err
	}
	if err := second.factorise(r); err != nil {
		return err
	}
	memory, err := r.Reals(batch * n * n)
	if err != nil {
		return err
	}
	factor := second.blockOf(memory, n, n)
	if err := second.orthogonal(r, factor); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return second.storeSigned(r, right.transposed(), factor) },
		func() error { return j.sort(r, ranks, left.transposed(), w, n, n) },
		func() error { return j.copyTo(r, left.at(n, 0), left, m-n, n, "0.0") },
		func() error { return first.multiply(r, left, n) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return j.report(r, c, notFiniteMatrix)
}

// orthogonalRows returns X with orthogonal rows, and the orthogonal W, for which X = W R. At first W has the signs of R's diagonal on its
// own, so that the vectors of nearly diagonal matrices have positive elements there.
func orthogonalRows(r *shader.Recorder, q *qr, n int) (j *jacobi, x, w block, err error) {
	if j, err = newJacobi(r, q.batch, n, 2*n); err != nil {
		return nil, x, w, err
	}
	j.relative, j.least = true, max(2e-7, 0x1p-24*math.Sqrt(float64(n)))
	if r.Float64 {
		j.least = max(4e-16, 0x1p-53*math.Sqrt(float64(n)))
	}
	x, w = j.riders, j.riders.at(0, n)
	var memory [2]block
	for i, rows := range []int{n, j.n} {
		m, err := r.Reals(q.batch * rows * n)
		if err != nil {
			return nil, x, w, err
		}
		memory[i] = j.blockOf(m, rows, n)
	}
	triangle, spare := memory[0], memory[1]
	diagonal := q.whole()
	diagonal.row, diagonal.col = diagonal.row+1, 0
	refresh := func() error { return j.product(r, j.whole(), x, x.transposed(), j.n, j.n, n, 1, 0) }
	for _, step := range []func() error{
		func() error { return j.copyTo(r, triangle, q.whole(), n, n, upperTriangle) },
		func() error { return j.copyTo(r, j.riders.at(n, 0), x, j.n-n, 2*n, "0.0") },
		func() error {
			return j.copyTo(r, w, diagonal, n, n, "select(0.0, select(1.0, -1.0, v < 0.0), row == col)")
		},
		func() error { return j.product(r, x, w, triangle, n, n, n, 1, 0) },
		func() error { return j.sweeps(r, refresh, func() error { return nil }) },
		func() error { return j.polish(r, w, spare, n) },
		func() error { return j.product(r, x, w, triangle, j.n, n, n, 1, 0) },
	} {
		if err := step(); err != nil {
			return nil, x, w, err
		}
	}
	return j, x, w, nil
}

// norms returns the norms of rows of the given length.
func (j *jacobi) norms(r *shader.Recorder, x block, length int) (block, error) {
	m, err := r.Reals(j.batch * j.n)
	if err != nil {
		return block{}, err
	}
	s := shader.New(r, "norms")
	from, to := s.RealsOf("x", x.of.Memory), s.RealsOf("to", m)
	count, cols, row := s.Uint(j.batch*j.n), s.Uint(length), s.Uint(x.row)
	return j.blockOf(m, j.n, 1), s.Run(r, j.batch*j.n, func(w *shader.Text) {
		w.Sum(matrixThreads)
		w.EachGroup(matrixThreads, count)
		w.Add(`  var sum = 0.0;
  for (var i = li; i < %s; i += %du) {
    let v = x[%s + group * %s + i];
    sum = sum + v * v;
  }
  sum = whole_sum(li, sum);
  if (li == 0u) { to[%s + group] = sqrt(sum); }`, cols, matrixThreads, from, row, to)
	})
}

// storeSigned stores the columns of q, with the signs for which the diagonal of R is positive.
func (q *qr) storeSigned(r *shader.Recorder, to, factor block) error {
	s := shader.New(r, "store signed")
	y, x, data := s.Out("y", to.operand(), expr.F32, expr.Number), s.In("x", factor.operand(), expr.F32, expr.Number), s.RealsOf("data", q.data)
	count, rows, low, apart := s.Uint(q.batch*q.m*q.low), s.Uint(q.m), s.Uint(q.low), s.Uint(q.n)
	each, down, right := s.Uint(to.each), s.Uint(to.row), s.Uint(to.col)
	return s.Run(r, shader.GroupsFor(q.batch*q.m*q.low), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let low = %s;
  let rows = %s;
  let col = i %% low;
  let row = i / low %% rows;
  let matrix = i / (low * rows);
  let v = ld_x(%s + i);
  let negative = data[%s + (matrix * rows + col) * %s + col] < 0.0;`, low, rows, x, data, apart)
		w.Add("  st_y(%s + matrix * %s + row * %s + col * %s, select(v, -v, negative));", y, each, down, right)
	})
}
