package gpu

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

func init() { register("multilabel_margin_loss", multilabelMarginCall) }

// multilabelMarginCall: Outs[0], where given, = for each sample of Ins[0] [batch, n] the sum of max(0, 1 - x[j] + x[i]) over its
// target classes j and its other classes i, over n; Outs[1], where given, = the slopes. Ins[1], int64, lists a sample's target
// classes before its first -1; one that comes twice counts twice. Ints: batch, n.
func multilabelMarginCall(r *recorder, c *core.Call) error {
	in, target, loss, slope := &c.Ins[0], &c.Ins[1], &c.Outs[0], &c.Outs[1]
	batch, n := int(c.Ints[0]), int(c.Ints[1])
	if batch*n == 0 {
		if loss.Present() {
			r.clear(loss)
		}
		return nil
	}
	times, err := r.temp(4 * batch * n)
	if err != nil {
		return err
	}
	s := newShader(r, "multilabel targets")
	j, to, count, size := s.in("classes", target, expr.I64, expr.Number), s.wordsOf("times", times), s.uint(batch*n), s.uint(n)
	fault := s.faults(r, c, func(c *core.Call, at uint32) error {
		return core.Errorf(core.IndexError, c.Op, "the target at position %d is not one of %d classes", at, n)
	})
	err = s.run(r, groupsFor(batch*n), func() string {
		return each(count, `
  let own = i % `+size+`;
  let first = i - own;
  var times_ = 0u;
  for (var j = 0u; j < `+size+`; j++) {
    let k = ld_classes(`+j+` + first + j);
    if (all(k == vec2<u32>(0xffffffffu, 0xffffffffu))) { break; }
    if (k.y != 0u || k.x >= `+size+`) { `+fault("(first + j)")+` }
    if (k.y == 0u && k.x == own) { times_ = times_ + 1u; }
  }
  times[`+to+` + i] = times_;
`)
	})
	if err != nil {
		return err
	}
	parts, err := r.temp(4 * batch * n)
	if err != nil {
		return err
	}
	s = newShader(r, "multilabel_margin_loss")
	x, m, part := s.in("x", in, expr.F32, expr.Number), s.wordsOf("times", times), s.floatsOf("parts", parts)
	count, size = s.uint(batch*n), s.uint(n)
	store := ""
	if s.flag(slope.Present()) {
		store = "  st_slope(" + s.out("slope", slope, expr.F32, expr.Number) + " + i, slope / f32(" + size + "));\n"
	}
	err = s.run(r, groupsFor(batch*n), func() string {
		return each(count, `
  let first = i - i % `+size+`;
  let own = ld_x(`+x+` + i);
  let mine = times[`+m+` + i];
  var slope = 0.0;
  var loss = 0.0;
  for (var j = 0u; j < `+size+`; j++) {
    let their = times[`+m+` + first + j];
    if ((mine == 0u) == (their == 0u)) { continue; }
    let v = ld_x(`+x+` + first + j);
    if (mine == 0u) {
      let lack = 1.0 - v + own;
      if (lack > 0.0) { slope = slope + f32(their); }
      if (!(lack <= 0.0)) { loss = loss + f32(their) * lack; }
    } else if (1.0 - own + v > 0.0) {
      slope = slope - f32(mine);
    }
  }
  parts[`+part+` + i] = loss / f32(`+size+`);
`+store)
	})
	if err != nil || !loss.Present() {
		return err
	}
	s = newShader(r, "multilabel losses")
	y, part, rows := s.out("y", loss, expr.F32, expr.Number), s.floatsOf("parts", parts), s.uint(batch)
	size = s.uint(n)
	return s.run(r, batch, func() string {
		return wholeSum(64) + eachGroup(64, rows) + `
  var sum = 0.0;
  for (var j = li; j < ` + size + `; j += 64u) { sum = sum + parts[` + part + ` + group * ` + size + ` + j]; }
  sum = whole_sum(li, sum);
  if (li == 0u) { st_y(` + y + ` + group, sum); }
}
`
	})
}
