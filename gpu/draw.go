package gpu

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// longestDrawn is how many weights are drawn from: each draw goes over them.
const longestDrawn = 1 << 16

func init() {
	register("multinomial", multinomialCall)
	register("repeat_index", repeatIndexCall)
}

// multinomialCall draws positions of weights, the last dimension of Ins[0]. Ints: seed, offset, replacement. With replacement,
// draw j of row r is inverse transform sampling with uniform number r count + j. Without, weight i of row r gets the key
// -log(1-u) / weight from uniform number r n + i, and the draws are the smallest keys in order. The CPU does this in float64,
// so that a draw may differ where two weights meet.
func multinomialCall(r *recorder, c *core.Call) error {
	out, in := &c.Outs[0], &c.Ins[0]
	last := len(in.Shape) - 1
	n, count, rows := in.Shape[last], out.Shape[last], core.Numel(in.Shape[:last])
	replacement := c.Ints[2] != 0
	if n > longestDrawn {
		return core.Errorf(core.NotImplemented, c.Op, "%v draws from at most %d weights, got %d", r.device, longestDrawn, n)
	}
	s := newShader(r, "multinomial")
	x, y := s.in("x", in, expr.F32, expr.Number), s.out("y", out, expr.I64, expr.Number)
	size, draws, total := s.uint(n), s.uint(count), s.uint(rows*map[bool]int{true: count, false: n}[replacement])
	seed, offset := s.long(c.Ints[0]), s.long(c.Ints[1])
	want := count
	fault := s.faults(r, c, func(c *core.Call, at uint32) error {
		what := [...]string{"a weight that is negative or not finite", "no positive weight", "fewer positive weights than samples to draw without replacement"}[at%4]
		return core.Errorf(core.ValueError, c.Op, "row %d has %s, got %d weights, want %d samples", at/4, what, n, want)
	})
	s.flag(replacement)
	if rows == 0 || count == 0 {
		return nil
	}
	invocations := rows * count
	if !replacement {
		invocations = rows * n
	}
	return s.run(r, groupsFor(invocations), func() string {
		head := "fn uniform_word(index: u32) -> u32 {\n  let w = plait_philox(" + seed + ", plait_add_i64(" + offset + ", vec2<u32>(index / 2u, 0u)));\n  return select(w.x, w.z, index % 2u == 1u);\n}\n"
		check := `
  var sum = 0.0;
  var positive = 0u;
  for (var j = 0u; j < ` + size + `; j++) {
    let w = ld_x(first + j);
    if (!(w >= 0.0) || plait_isinf_f32(w)) { ` + fault("(row * 4u)") + ` return; }
    positive = positive + select(0u, 1u, w > 0.0);
    sum = sum + w;
  }
  if (positive == 0u) { ` + fault("(row * 4u + 1u)") + ` return; }
`
		if replacement {
			return head + each(total, "  let row = i / "+draws+";\n  let first = "+x+" + row * "+size+";\n"+check+`
  let u = plait_uniform(uniform_word(i)) * sum;
  var passed = 0.0;
  var chosen = 0u;
  for (var j = 0u; j < `+size+`; j++) {
    let w = ld_x(first + j);
    if (w > 0.0) { chosen = j; }
    passed = passed + w;
    if (passed > u && w > 0.0) { break; }
  }
  st_y(`+y+` + i, vec2<u32>(chosen, 0u));
`)
		}
		return head + "fn key(row: u32, j: u32, w: f32) -> f32 {\n  return select(" + infinity + ", plait_negative_log(~uniform_word(row * " + size + " + j)) / w, w > 0.0);\n}\n" +
			each(total, "  let row = i / "+size+";\n  let own = i % "+size+";\n  let first = "+x+" + row * "+size+";\n"+check+
				"  if (positive < "+draws+") { "+fault("(row * 4u + 2u)")+" return; }\n"+`
  let mine = key(row, own, ld_x(first + own));
  var rank = 0u;
  for (var j = 0u; j < `+size+`; j++) {
    let other = key(row, j, ld_x(first + j));
    if (other < mine || (other == mine && j < own)) { rank = rank + 1u; }
  }
  if (rank < `+draws+`) { st_y(`+y+` + row * `+draws+` + rank, vec2<u32>(own, 0u)); }
`)
	})
}

// repeatIndexCall: Outs[0] = each position of Ins[0], a vector of counts, as often as it says. Each result looks for its
// position.
func repeatIndexCall(r *recorder, c *core.Call) error {
	in, out := &c.Ins[0], &c.Outs[0]
	if out.Numel() == 0 {
		return nil
	}
	s := newShader(r, "repeat_index")
	x, y, n, size, step := s.in("x", in, expr.I64, expr.Number), s.out("y", out, expr.I64, expr.Number), s.uint(out.Numel()), s.uint(in.Numel()), s.uint(in.Strides[0])
	return s.run(r, groupsFor(out.Numel()), func() string {
		return each(n, `
  var left = i;
  for (var j = 0u; j < `+size+`; j++) {
    let times = ld_x(`+x+` + j * `+step+`).x;
    if (left < times) { st_y(`+y+` + i, vec2<u32>(j, 0u)); return; }
    left = left - times;
  }
`)
	})
}
