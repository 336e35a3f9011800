package loss

import (
	"fmt"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() { kernel.Register(contract.MultilabelMarginLoss, multilabelMarginCall) }

// multilabelMarginCall: for each sample of Ins[0] [batch, n], Outs[0], if present, = the sum of max(0, 1 - x[j] + x[i]) over target classes
// j and other classes i, divided by n. Outs[1], if present, = the gradients. Ins[1], int64, lists a sample's target classes before its
// first -1. A class listed twice counts twice.
func multilabelMarginCall(r *shader.Recorder, c *core.Call) error {
	in, target, loss, slope := &c.Ins[0], &c.Ins[1], &c.Outs[0], &c.Outs[1]
	a := contract.ClassLossOf(c)
	batch, n := a.Batch, a.Classes
	if batch*n == 0 {
		if loss.Present() {
			r.Clear(loss)
		}
		return nil
	}
	ends, err := r.Temp(4 * batch)
	if err != nil {
		return err
	}
	s := shader.New(r, "ends of multilabel targets")
	j, to, rows, size := s.In("classes", target, expr.I64, expr.Number), s.WordsOf("ends", ends), s.Uint(batch), s.Uint(n)
	err = s.Run(r, batch, func(w *shader.Text) {
		w.Reduce("end", "u32", "min(a, b)", 64)
		w.EachGroup(64, rows)
		w.Add(`  var end = %s;
  for (var j = li; j < end; j += 64u) {
    if (all(ld_classes(%s + group * %s + j) == pair(0xffffffffu, 0xffffffffu))) { end = j; }
  }
  end = whole_end(li, end);
  if (li == 0u) { ends[%s + group] = end; }`, size, j, size, to)
	})
	if err != nil {
		return err
	}
	// times counts how often each class is a target.
	times, err := r.Temp(4 * batch * n)
	if err != nil {
		return err
	}
	r.Clear(shader.F32Operand(times, 0, batch*n))
	s = shader.New(r, "multilabel targets")
	j, end, count := s.In("classes", target, expr.I64, expr.Number), s.WordsOf("ends", ends), s.Uint(batch*n)
	size = s.Uint(n)
	to = s.AtomicsOf("times", times)
	fault := s.Faults(r, c, func(c *core.Call, at uint32) error {
		return core.Errorf(core.IndexError, c.Op, "the target at position %d is not one of %d classes", at, n)
	})
	err = s.Run(r, shader.GroupsFor(batch*n), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let own = i %% %s;
  if (own >= ends[%s + i / %s]) { return; }
  let k = ld_classes(%s + i);`, size, end, size, j)
		w.Add(`  if (k.y != 0u || k.x >= %s) { %s return; }
  %s;`, size, fault("i"), w.AtomicAdd("times["+to+" + i - own + k.x]", "1u"))
	})
	if err != nil {
		return err
	}
	parts, err := r.Reals(batch * n)
	if err != nil {
		return err
	}
	// Only pairs of a target and another class contribute: a target visits all other classes, and another class visits the list of targets.
	s = shader.New(r, "multilabel_margin_loss")
	x, m, part := s.In("x", in, expr.F32, expr.Number), s.WordsOf("times", times), s.RealsOf("parts", parts)
	j, end = s.In("classes", target, expr.I64, expr.Number), s.WordsOf("ends", ends)
	count, size = s.Uint(batch*n), s.Uint(n)
	store := ""
	if s.Flag(slope.Present()) {
		store = fmt.Sprintf("  st_slope(%s + i, slope / real(%s));\n", s.Out("slope", slope, expr.F32, expr.Number), size)
	}
	err = s.Run(r, shader.GroupsFor(batch*n), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let first = i - i %% %s;
  let own = ld_x(%s + i);
  let mine = times[%s + i];
  var slope = 0.0;
  var loss = 0.0;
  if (mine == 0u) {
    let end = ends[%s + i / %s];
    for (var j = 0u; j < end; j++) {`, size, x, m, end, size)
		w.Add(`      let k = min(ld_classes(%s + first + j).x, %s - 1u);
      let lack = 1.0 - ld_x(%s + first + k) + own;
      if (lack > 0.0) { slope = slope + 1.0; }
      if (!(lack <= 0.0)) { loss = loss + lack; }
    }
  } else {
    for (var j = 0u; j < %s; j++) {`, j, size, x, size)
		w.Add(`      if (times[%s + first + j] == 0u && 1.0 - own + ld_x(%s + first + j) > 0.0) { slope = slope - real(mine); }
    }
  }
  parts[%s + i] = loss / real(%s);
%s`, m, x, part, size, store)
	})
	if err != nil || !loss.Present() {
		return err
	}
	s = shader.New(r, "multilabel losses")
	y := s.Out("y", loss, expr.F32, expr.Number)
	part, rows, size = s.RealsOf("parts", parts), s.Uint(batch), s.Uint(n)
	return s.Run(r, batch, func(w *shader.Text) {
		w.Sum(64)
		w.EachGroup(64, rows)
		w.Add(`  var sum = 0.0;
  for (var j = li; j < %s; j += 64u) { sum = sum + parts[%s + group * %s + j]; }
  sum = whole_sum(li, sum);
  if (li == 0u) { st_y(%s + group, sum); }`, size, part, size, y)
	})
}
