package linalg

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() { kernel.Register(contract.LinalgEigh, eighCall) }

// eighCall: Outs[0], Outs[1] = ascending eigenvalues and, unless absent, eigenvectors, in columns, of symmetric matrices A. Sweeps make
// V A Vᵀ diagonal; the rows of V become the eigenvectors.
func eighCall(r *shader.Recorder, c *core.Call) error {
	a := blockIn(&c.Ins[0])
	n := a.row
	batch := core.Numel(c.Ins[0].Shape[:len(c.Ins[0].Shape)-2])
	if batch == 0 || n == 0 {
		return nil
	}
	j, err := newJacobi(r, batch, n, n)
	if err != nil {
		return err
	}
	j.least = 0x1p-21
	if r.Float64 {
		j.least = 0x1p-50
	}
	v := j.riders
	products, err := r.Reals(batch * j.n * n)
	if err != nil {
		return err
	}
	spare := j.blockOf(products, j.n, n)
	if err := j.copyTo(r, v, v, j.n, n, identityMatrix); err != nil {
		return err
	}
	refresh := func() error {
		if err := j.product(r, spare, v, a, j.n, n, n, 1, 0); err != nil {
			return err
		}
		return j.product(r, j.whole(), spare, v.transposed(), j.n, j.n, n, 1, 0)
	}
	if err := j.sweeps(r, refresh, func() error { return j.polish(r, v, spare, n) }); err != nil {
		return err
	}
	if err := refresh(); err != nil {
		return err
	}
	values := j.whole()
	values.row++ // the diagonal
	ranks, err := j.ranks(r, values, n, false)
	if err != nil {
		return err
	}
	if err := j.sort(r, ranks, block{of: &c.Outs[0], row: 1, col: 1, each: n}, values, n, 1); err != nil {
		return err
	}
	if len(c.Outs) > 1 {
		if err := j.sort(r, ranks, blockIn(&c.Outs[1]).transposed(), v, n, n); err != nil {
			return err
		}
	}
	return j.report(r, c, notFiniteMatrix)
}

// sort copies rows [n, cols] of a block, each to the row that ranks has for it.
func (j *jacobi) sort(r *shader.Recorder, ranks core.Memory, to, from block, n, cols int) error {
	s := shader.New(r, "sort rows")
	y, x, rank := s.Out("y", to.operand(), expr.F32, expr.Number), s.In("x", from.operand(), expr.F32, expr.Number), s.WordsOf("ranks", ranks)
	count, rows, width := s.Uint(j.batch*n*cols), s.Uint(n), s.Uint(cols)
	row, each, down, right, apart := s.Uint(from.row), s.Uint(from.each), s.Uint(to.row), s.Uint(to.col), s.Uint(to.each)
	return s.Run(r, shader.GroupsFor(j.batch*n*cols), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let rows = %s;
  let cols = %s;
  let col = i %% cols;
  let row = i / cols %% rows;
  let matrix = i / (cols * rows);
  let place = ranks[%s + matrix * rows + row];`, rows, width, rank)
		w.Add("  st_y(%s + matrix * %s + place * %s + col * %s, ld_x(%s + matrix * %s + row * %s + col));", y, apart, down, right, x, each, row)
	})
}
