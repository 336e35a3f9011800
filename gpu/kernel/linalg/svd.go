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

// svdCall: Outs = U, descending singular values and V' of Ins[0] = U S V'. A wide matrix is transposed, which exchanges U and V, and a tall
// one first becomes a square R.
//
// Sweeps rotate the rows of X = V Aᵀ until they are orthogonal, which is when X Xᵀ is diagonal. Their norms are the singular values. The
// rows, divided by their norms, would be the columns of U, but small ones are less accurate, and those of a norm of 0 have no direction. So
// U is the Q of their QR factorisation, up to signs.
func svdCall(r *shader.Recorder, c *core.Call) error {
	a := blockIn(&c.Ins[0])
	rank := len(c.Ins[0].Shape)
	batch, m, n := core.Numel(c.Ins[0].Shape[:rank-2]), c.Ins[0].Shape[rank-2], c.Ins[0].Shape[rank-1]
	if batch == 0 || m*n == 0 {
		return nil
	}
	left, right := &c.Outs[0], &c.Outs[2]
	wide := m < n
	if wide {
		a, m, n = a.transposed(), n, m
		left, right = right, left
	}
	var tall *qr
	if m > n {
		var err error
		tall, err = newQR(r, batch, m, n, func(x *matrices, to block) error { return x.copyTo(r, to, a, m, n, "v") })
		if err != nil {
			return err
		}
		if err := tall.factorise(r); err != nil {
			return err
		}
		square, err := r.Temp(4 * batch * n * n)
		if err != nil {
			return err
		}
		a = blockOf(square, n, n)
		if err := tall.copyTo(r, a, tall.whole(), n, n, upperTriangle); err != nil {
			return err
		}
	}
	j, err := newJacobi(r, batch, n, 2*n)
	if err != nil {
		return err
	}
	j.relative, j.least = true, max(2e-7, 0x1p-24*math.Sqrt(float64(n)))
	x, v, rows := j.riders, j.riders.at(0, n), a.transposed()
	spare, err := r.Temp(4 * batch * j.n * n)
	if err != nil {
		return err
	}
	refresh := func() error { return j.product(r, j.whole(), x, x.transposed(), j.n, j.n, n, 1, 0) }
	for _, step := range []func() error{
		func() error { return j.copyTo(r, x, rows, n, n, "v") },
		func() error { return j.copyTo(r, x.at(n, 0), x, j.n-n, n, "0.0") },
		func() error { return j.copyTo(r, v, v, j.n, n, identityMatrix) },
		func() error { return j.sweeps(r, refresh, func() error { return nil }) },
		func() error { return j.polish(r, v, blockOf(spare, j.n, n), n) },
		func() error { return j.product(r, x, v, rows, j.n, n, n, 1, 0) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	sizes, err := j.norms(r, x, n)
	if err != nil {
		return err
	}
	ranks, err := j.ranks(r, sizes, n, true)
	if err != nil {
		return err
	}
	q, err := newQR(r, batch, n, n, func(_ *matrices, to block) error { return j.sort(r, ranks, to.transposed(), x, n, n) })
	if err != nil {
		return err
	}
	if err := q.factorise(r); err != nil {
		return err
	}
	factor, err := q.orthogonal(r)
	if err != nil {
		return err
	}
	toLeft, toRight := blockIn(left), blockIn(right)
	if wide {
		toLeft, toRight = toLeft.transposed(), toRight.transposed()
	}
	u := toLeft
	if tall != nil {
		whole, err := r.Temp(4 * batch * m * n)
		if err != nil {
			return err
		}
		u = blockOf(whole, m, n)
	}
	if err := q.storeSigned(r, u, factor); err != nil {
		return err
	}
	if tall != nil {
		if err := tall.copyTo(r, u.at(n, 0), u, m-n, n, "0.0"); err != nil {
			return err
		}
		if err := tall.multiply(r, u, n); err != nil {
			return err
		}
		if err := tall.copyTo(r, toLeft, u, m, n, "v"); err != nil {
			return err
		}
	}
	if err := j.sort(r, ranks, toRight, v, n, n); err != nil {
		return err
	}
	if err := j.sort(r, ranks, block{of: &c.Outs[1], row: 1, col: 1, each: n}, sizes, n, 1); err != nil {
		return err
	}
	return j.report(r, c, notFiniteMatrix)
}

// norms returns the norms of rows of the given length.
func (j *jacobi) norms(r *shader.Recorder, x block, length int) (block, error) {
	m, err := r.Temp(4 * j.batch * j.n)
	if err != nil {
		return block{}, err
	}
	s := shader.New(r, "norms")
	from, to := s.FloatsOf("x", x.of.Memory), s.FloatsOf("to", m)
	count, cols, row := s.Uint(j.batch*j.n), s.Uint(length), s.Uint(x.row)
	return blockOf(m, j.n, 1), s.Run(r, j.batch*j.n, func(w *shader.Text) {
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
	y, x, data := s.Out("y", to.operand(), expr.F32, expr.Number), s.In("x", factor.operand(), expr.F32, expr.Number), s.FloatsOf("data", q.data)
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
