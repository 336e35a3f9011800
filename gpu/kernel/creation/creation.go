// Package creation has the GPU kernels that fill tensors from numbers alone, such as sequences.
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

func arangeCall(r *shader.Recorder, c *core.Call) error {
	out, a := &c.Outs[0], contract.ArangeOf(c)
	n := out.Numel()
	s := shader.New(r, "arange")
	count := s.Uint(n)
	if s.Flag(out.DType.IsFloat()) {
		y, first, step := s.Out("y", out, expr.F32, expr.Number), s.Float(a.FloatStart), s.Float(a.FloatStep)
		return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
			w.Each(count)
			w.Add("  st_y(%s + i, %s + real(i) * %s);", y, first, step)
		})
	}
	y, first, step := s.Out("y", out, expr.I64, expr.Number), s.Long(a.Start), s.Long(a.Step)
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add("  st_y(%s + i, plait_add_i64(%s, plait_mul_i64(pair(i, 0u), %s)));", y, first, step)
	})
}

// spaceCall computes linspace and logspace. The second half is computed from the end, so that the last element is exact.
func spaceCall(r *shader.Recorder, c *core.Call, power bool) error {
	out, a := &c.Outs[0], contract.SpaceOf(c)
	n := out.Numel()
	s := shader.New(r, "linspace")
	t := expr.F32
	y, count, first, last := s.Out("y", out, t, expr.Number), s.Uint(n), s.Float(a.Start), s.Float(a.End)
	step, base := 0.0, 1.0
	if n > 1 {
		step = (a.End - a.Start) / float64(n-1)
	}
	if s.Flag(power) {
		base = a.Base
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

// triangleIndicesCall computes the indices of a triangle. Each invocation searches for the row of its result.
func triangleIndicesCall(r *shader.Recorder, c *core.Call) error {
	out, a := &c.Outs[0], contract.TriangleIndicesOf(c)
	n := out.Shape[1]
	s := shader.New(r, "triangle_indices")
	y, count, rows, cols := s.Out("y", out, expr.I64, expr.Number), s.Uint(n), s.Uint(a.Rows), s.Uint(a.Columns)
	offset := "bitcast<i32>(" + s.Uint(int(uint32(int32(a.Diagonal)))) + ")"
	upper := s.Flag(a.Upper)
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
