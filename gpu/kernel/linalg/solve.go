package linalg

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.LinalgSolve, solveCall)
	kernel.Register(contract.LinalgDet, detCall)
}

// newSystems copies systems [A | B] of equations to scratch memory: matrices Ins[0] [m, m], and right-hand sides Ins[1] on their right;
// identities if these are absent.
func newSystems(r *shader.Recorder, c *core.Call) (*matrices, error) {
	a, k := &c.Ins[0], c.Ins[0].Shape[len(c.Ins[0].Shape)-1]
	right := len(c.Ins) > 1 && c.Ins[1].Present()
	x := &matrices{batch: core.Numel(a.Shape[:len(a.Shape)-2]), m: k}
	if right {
		k = c.Ins[1].Shape[len(c.Ins[1].Shape)-1]
	}
	x.n = x.m + k
	if x.batch == 0 || x.m == 0 {
		return x, nil
	}
	if err := x.allocate(r); err != nil {
		return x, err
	}
	s := shader.New(r, "systems")
	to, from := s.RealsOf("to", x.data), s.In("x", a, expr.F32, expr.Number)
	count, height, width := s.Uint(x.batch*x.m*x.n), s.Uint(x.m), s.Uint(x.n)
	value := "select(0.0, 1.0, row + m == col)"
	if s.Flag(right) {
		value = "ld_b(" + s.In("b", &c.Ins[1], expr.F32, expr.Number) + " + line * (n - m) + col - m)"
	}
	return x, s.Run(r, shader.GroupsFor(x.batch*x.m*x.n), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let m = %s;
  let n = %s;
  let line = i / n;
  let row = line %% m;
  let col = i %% n;
  if (col < m) { to[%s + i] = ld_x(%s + line * m + col); } else { to[%s + i] = %s; }`, height, width, to, from, to, value)
	})
}

// storeSolution writes what is on the right of A.
func (x *matrices) storeSolution(r *shader.Recorder, out *core.Operand) error {
	return x.copyTo(r, blockIn(out), x.whole().at(0, x.m), x.m, x.n-x.m, "v")
}

// solveCall: Outs[0] = the solution X of Ins[0] X = Ins[1]; without Ins[1], the inverse of Ins[0]. Elimination turns [A | B] into
// [U | L⁻¹ P B].
func solveCall(r *shader.Recorder, c *core.Call) error {
	x, err := newSystems(r, c)
	if err != nil || x.batch == 0 || x.m == 0 {
		return err
	}
	if _, err := x.lu(r, x.m); err != nil {
		return err
	}
	if err := x.substitute(r, true, false); err != nil {
		return err
	}
	if err := x.storeSolution(r, &c.Outs[0]); err != nil {
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
	pivots, err := x.lu(r, min(x.m, x.n))
	if err != nil {
		return err
	}
	s := shader.New(r, "determinants")
	data, exchanged := s.RealsOf("data", x.data), s.WordsOf("pivots", pivots)
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
