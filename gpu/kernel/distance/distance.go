// Package distance has the GPU kernel of distances between rows.
package distance

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.PairNorms, pairsCall)
}

// block is the number of features that are summed by themselves, which keeps rounding errors small.
const block = 128

// pairsCall: an invocation computes the distance of a pair. Those of the lower triangle have none.
func pairsCall(r *shader.Recorder, c *core.Call) error {
	x, z, y := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	a := contract.PairOf(c)
	total := x.Shape[0] * x.Shape[1] * z.Shape[1]
	s := shader.New(r, "pair_norms")
	t := shader.ComputeType(y.DType)
	first, second, out := s.In("x", x, t, expr.Number), s.In("z", z, t, expr.Number), s.Out("y", y, t, expr.Number)
	count, n, k, m, p := s.Uint(total), s.Uint(x.Shape[1]), s.Uint(z.Shape[1]), s.Uint(x.Shape[2]), s.Float(a.P)
	join, onto, root := "sum + plait_pow_f32(d, "+p+")", "total + sum", "plait_pow_f32(total, real(1.0) / "+p+")"
	triangle := s.Flag(a.Triangle)
	switch {
	case s.Flag(a.P == 0):
		join, root = "sum + select(sign(d), d, plait_isnan_f32(d))", "total"
	case s.Flag(a.P == 1):
		join, root = "sum + d", "total"
	case s.Flag(a.P == 2):
		join, root = "sum + d * d", "sqrt(total)"
	case s.Flag(math.IsInf(a.P, 1)):
		join, onto, root = "plait_max_f32(sum, d)", "plait_max_f32(total, sum)", "total"
		if !triangle {
			join = "select(plait_max_f32(sum, d), sum, plait_isnan_f32(d))"
		}
	}
	if total == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(total), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let column = i %% %[2]s;
  let row = i / %[2]s %% %[1]s;
  let batch = i / (%[1]s * %[2]s);`, n, k)
		place := out + " + i"
		if triangle {
			w.Add("  if (column <= row) { return; }")
			place = out + " + batch * (" + n + " * (" + n + " - 1u) / 2u) + (row * (2u * " + n + " - row - 1u) / 2u + column - row - 1u)"
		}
		w.Add(`  let from_x = %[1]s + (batch * %[3]s + row) * %[5]s;
  let from_z = %[2]s + (batch * %[4]s + column) * %[5]s;
  var total = real(0.0);
  for (var start = 0u; start < %[5]s; start += %[6]du) {
    var sum = real(0.0);
    let end = min(start + %[6]du, %[5]s);
    for (var e = start; e < end; e++) {
      let d = abs(ld_x(from_x + e) - ld_z(from_z + e));
      sum = %[7]s;
    }
    total = %[8]s;
  }
  st_y(%[9]s, %[10]s);`, first, second, n, k, m, block, join, onto, place, root)
	})
}
