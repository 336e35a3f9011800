// Package creation computes tensors that follow from numbers alone.
package creation

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.Arange, arangeCall)
	kernel.Register(contract.Linspace, func(r *shader.Recorder, c *core.Call) error { return spaceCall(r, c, false) })
	kernel.Register(contract.Logspace, func(r *shader.Recorder, c *core.Call) error { return spaceCall(r, c, true) })
	kernel.Register(contract.TriangleIndices, triangleIndicesCall)
}

// arangeCall: Outs[0][i] = Ints[0] + i Ints[1], or Floats[0] + i Floats[1] for floats.
func arangeCall(r *shader.Recorder, c *core.Call) error {
	out := &c.Outs[0]
	n := out.Numel()
	s := shader.New(r, "arange")
	count := s.Uint(n)
	if s.Flag(out.DType.IsFloat()) {
		y, first, step := s.Out("y", out, expr.F32, expr.Number), s.Float(c.Floats[0]), s.Float(c.Floats[1])
		return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
			w.Each(count)
			w.Add("  st_y(%s + i, %s + real(i) * %s);", y, first, step)
		})
	}
	y, first, step := s.Out("y", out, expr.I64, expr.Number), s.Long(c.Ints[0]), s.Long(c.Ints[1])
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add("  st_y(%s + i, plait_add_i64(%s, plait_mul_i64(pair(i, 0u), %s)));", y, first, step)
	})
}

// spaceCall: Outs[0] = numbers from Floats[0] to Floats[1], both included, or Floats[2] to these powers. The second half is
// counted from the end.
func spaceCall(r *shader.Recorder, c *core.Call, power bool) error {
	out := &c.Outs[0]
	n := out.Numel()
	s := shader.New(r, "linspace")
	t := expr.F32
	y, count, first, last := s.Out("y", out, t, expr.Number), s.Uint(n), s.Float(c.Floats[0]), s.Float(c.Floats[1])
	step, base := 0.0, 1.0
	if n > 1 {
		step = (c.Floats[1] - c.Floats[0]) / float64(n-1)
	}
	if s.Flag(power) {
		base = c.Floats[2]
	}
	stepWord, baseWord := s.Float(step), s.Float(base)
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add("  var v = %s + real(i) * %s;", first, stepWord)
		w.Add("  if (i >= %s - %s / 2u) { v = %s - real(%s - 1u - i) * %s; }", count, count, last, count, stepWord)
		if power {
			w.Add("  v = plait_pow_f32(%s, v);", baseWord)
		}
		w.Add("  st_y(%s + i, v);", y)
	})
}

// triangleIndicesCall: Outs[0], int64 of shape [2, n], = the rows and columns of the triangle, below the diagonal Ints[2]
// (above it if Ints[3]), of a matrix with Ints[0] rows and Ints[1] columns. Each result looks for its row.
func triangleIndicesCall(r *shader.Recorder, c *core.Call) error {
	out := &c.Outs[0]
	n := out.Shape[1]
	s := shader.New(r, "triangle_indices")
	y, count, rows, cols := s.Out("y", out, expr.I64, expr.Number), s.Uint(n), s.Uint(int(c.Ints[0])), s.Uint(int(c.Ints[1]))
	offset := "bitcast<i32>(" + s.Uint(int(uint32(int32(c.Ints[2])))) + ")"
	upper := s.Flag(c.Ints[3] != 0)
	if n == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		begin, end := "0", "clamp(i32(row) + "+offset+" + 1, 0, i32("+cols+"))"
		if upper {
			begin, end = "clamp(i32(row) + "+offset+", 0, i32("+cols+"))", "i32("+cols+")"
		}
		w.Each(count)
		w.Add(`  var left = i32(i);
  for (var row = 0u; row < %s; row++) {
    let begin = %s;
    let here = max(%s - begin, 0);
    if (left < here) {
      st_y(%s + i, pair(row, 0u));`, rows, begin, end, y)
		w.Add(`      st_y(%s + %s + i, pair(u32(begin + left), 0u));
      return;
    }
    left = left - here;
  }`, y, count)
	})
}
