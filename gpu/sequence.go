package gpu

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

func init() {
	register("cat", catCall)
	register("arange", arangeCall)
	register("linspace", func(r *recorder, c *core.Call) error { return spaceCall(r, c, false) })
	register("logspace", func(r *recorder, c *core.Call) error { return spaceCall(r, c, true) })
	register("triangle", triangleCall)
	register("triangle_indices", triangleIndicesCall)
}

// catCall: Outs[0] = the Ins, of its dtype, one after the other along dimension Ints[0].
func catCall(r *recorder, c *core.Call) error {
	dim, at := int(c.Ints[0]), 0
	piece := core.Call{Op: c.Op, Outs: []core.Operand{c.Outs[0]}, Ins: make([]core.Operand, 1)}
	for i := range c.Ins {
		in := c.Ins[i]
		out := c.Outs[0]
		out.Shape = in.Shape
		out.Offset += at * out.Strides[dim]
		at += in.Shape[dim]
		piece.Outs[0], piece.Ins[0] = out, in
		if err := copyCall(r, &piece); err != nil {
			return err
		}
	}
	return nil
}

// arangeCall: Outs[0][i] = Ints[0] + i Ints[1], or Floats[0] + i Floats[1] for floats.
func arangeCall(r *recorder, c *core.Call) error {
	out := &c.Outs[0]
	n := out.Numel()
	s := newShader(r, "arange")
	count := s.uint(n)
	if s.flag(out.DType.IsFloat()) {
		y, first, step := s.out("y", out, expr.F32, expr.Number), s.float(c.Floats[0]), s.float(c.Floats[1])
		return s.run(r, groupsFor(n), func() string {
			return each(count, "  st_y("+y+" + i, "+first+" + f32(i) * "+step+");\n")
		})
	}
	y, first, step := s.out("y", out, expr.I64, expr.Number), s.long(c.Ints[0]), s.long(c.Ints[1])
	return s.run(r, groupsFor(n), func() string {
		return each(count, "  st_y("+y+" + i, plait_add_i64("+first+", plait_mul_i64(vec2<u32>(i, 0u), "+step+")));\n")
	})
}

// spaceCall: Outs[0] = numbers from Floats[0] to Floats[1], both included, or Floats[2] to these powers. The second half is
// counted from the end.
func spaceCall(r *recorder, c *core.Call, power bool) error {
	out := &c.Outs[0]
	n := out.Numel()
	s := newShader(r, "linspace")
	t := expr.F32
	y, count, first, last := s.out("y", out, t, expr.Number), s.uint(n), s.float(c.Floats[0]), s.float(c.Floats[1])
	step, base := 0.0, 1.0
	if n > 1 {
		step = (c.Floats[1] - c.Floats[0]) / float64(n-1)
	}
	if s.flag(power) {
		base = c.Floats[2]
	}
	stepWord, baseWord := s.float(step), s.float(base)
	return s.run(r, groupsFor(n), func() string {
		text := "  var v = " + first + " + f32(i) * " + stepWord + ";\n  if (i >= " + count + " - " + count + " / 2u) { v = " + last + " - f32(" + count + " - 1u - i) * " + stepWord + "; }\n"
		if power {
			text += "  v = plait_pow_f32(" + baseWord + ", v);\n"
		}
		return each(count, text+"  st_y("+y+" + i, v);\n")
	})
}

// triangleCall: Outs[0] = the part of each matrix of Ins[0] below the diagonal Ints[0] (above it if Ints[1]). The input may
// be the output.
func triangleCall(r *recorder, c *core.Call) error {
	out, in := &c.Outs[0], &c.Ins[0]
	n := len(out.Shape)
	s := newShader(r, "triangle")
	t := expr.F32
	if !out.DType.IsFloat() {
		t = expr.I64
	}
	x, y := s.in("x", in, t, expr.Number), s.out("y", out, t, expr.Number)
	count, rows, cols := s.uint(out.Numel()), s.uint(out.Shape[n-2]), s.uint(out.Shape[n-1])
	l := newLayout(out.Shape, in, out)
	diagonal := "bitcast<i32>(" + s.uint(int(uint32(int32(c.Ints[0])))) + ")"
	upper := s.flag(c.Ints[1] != 0)
	rank := s.choose(len(l.sizes))
	at := s.loop(&l)
	return s.run(r, groupsFor(out.Numel()), func() string {
		test := "i32(col) - i32(row) <= " + diagonal
		if upper {
			test = "i32(col) - i32(row) >= " + diagonal
		}
		return each(count, walk(rank, 2, at, []string{x, y})+`
  let col = i % `+cols+`;
  let row = (i / `+cols+`) % `+rows+`;
  var v: `+wgslType(t, expr.Number)+`;
  if (`+test+`) { v = ld_x(at_0); }
  st_y(at_1, v);
`)
	})
}

// triangleIndicesCall: Outs[0], int64 of shape [2, n], = the rows and columns of the triangle, below the diagonal Ints[2]
// (above it if Ints[3]), of a matrix with Ints[0] rows and Ints[1] columns. Each result looks for its row.
func triangleIndicesCall(r *recorder, c *core.Call) error {
	out := &c.Outs[0]
	n := out.Shape[1]
	s := newShader(r, "triangle_indices")
	y, count, rows, cols := s.out("y", out, expr.I64, expr.Number), s.uint(n), s.uint(int(c.Ints[0])), s.uint(int(c.Ints[1]))
	offset := "bitcast<i32>(" + s.uint(int(uint32(int32(c.Ints[2])))) + ")"
	upper := s.flag(c.Ints[3] != 0)
	if n == 0 {
		return nil
	}
	return s.run(r, groupsFor(n), func() string {
		begin, end := "0", "clamp(i32(row) + "+offset+" + 1, 0, i32("+cols+"))"
		if upper {
			begin, end = "clamp(i32(row) + "+offset+", 0, i32("+cols+"))", "i32("+cols+")"
		}
		return each(count, `
  var left = i32(i);
  for (var row = 0u; row < `+rows+`; row++) {
    let begin = `+begin+`;
    let here = max(`+end+` - begin, 0);
    if (left < here) {
      st_y(`+y+` + i, vec2<u32>(row, 0u));
      st_y(`+y+` + `+count+` + i, vec2<u32>(u32(begin + left), 0u));
      return;
    }
    left = left - here;
  }
`)
	})
}
