package loss

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() { kernel.Register(contract.MultilabelMarginLoss, multilabelMarginCall) }

// multilabelMarginCall: Outs[0], where given, = for each sample of Ins[0] [batch, n] the sum of max(0, 1 - x[j] + x[i]) over its
// target classes j and its other classes i, over n; Outs[1], where given, = the slopes. Ins[1], int64, lists a sample's target
// classes before its first -1; one that comes twice counts twice. Ints: batch, n.
func multilabelMarginCall(r *shader.Recorder, c *core.Call) error {
	in, target, loss, slope := &c.Ins[0], &c.Ins[1], &c.Outs[0], &c.Outs[1]
	batch, n := int(c.Ints[0]), int(c.Ints[1])
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
	err = s.Run(r, batch, func() string {
		return shader.WorkgroupReduce("end", "u32", "min(a, b)", 64) + shader.EachGroup(64, rows) + `
  var end = ` + size + `;
  for (var j = li; j < end; j += 64u) {
    if (all(ld_classes(` + j + ` + group * ` + size + ` + j) == vec2<u32>(0xffffffffu, 0xffffffffu))) { end = j; }
  }
  end = whole_end(li, end);
  if (li == 0u) { ends[` + to + ` + group] = end; }
}
`
	})
	if err != nil {
		return err
	}
	// How often each class is a target.
	times, err := r.Temp(4 * batch * n)
	if err != nil {
		return err
	}
	r.Clear(shader.F32Operand(times, 0, batch*n))
	s = shader.New(r, "multilabel targets")
	j, end, count := s.In("classes", target, expr.I64, expr.Number), s.WordsOf("ends", ends), s.Uint(batch*n)
	size = s.Uint(n)
	s.Bindings = append(s.Bindings, shader.Binding{Access: shader.Access{Name: "times", DType: core.Bool, Shared: true}})
	s.Mems = append(s.Mems, times)
	to = s.Uint(int(shader.Word(times)))
	fault := s.Faults(r, c, func(c *core.Call, at uint32) error {
		return core.Errorf(core.IndexError, c.Op, "the target at position %d is not one of %d classes", at, n)
	})
	err = s.Run(r, shader.GroupsFor(batch*n), func() string {
		return shader.Each(count, `
  let own = i % `+size+`;
  if (own >= ends[`+end+` + i / `+size+`]) { return; }
  let k = ld_classes(`+j+` + i);
  if (k.y != 0u || k.x >= `+size+`) { `+fault("i")+` return; }
  atomicAdd(&times[`+to+` + i - own + k.x], 1u);
`)
	})
	if err != nil {
		return err
	}
	parts, err := r.Temp(4 * batch * n)
	if err != nil {
		return err
	}
	// Only pairs of a target and another class are looked at: for a target its others, for another the list of targets.
	s = shader.New(r, "multilabel_margin_loss")
	x, m, part := s.In("x", in, expr.F32, expr.Number), s.WordsOf("times", times), s.FloatsOf("parts", parts)
	j, end = s.In("classes", target, expr.I64, expr.Number), s.WordsOf("ends", ends)
	count, size = s.Uint(batch*n), s.Uint(n)
	store := ""
	if s.Flag(slope.Present()) {
		store = "  st_slope(" + s.Out("slope", slope, expr.F32, expr.Number) + " + i, slope / f32(" + size + "));\n"
	}
	err = s.Run(r, shader.GroupsFor(batch*n), func() string {
		return shader.Each(count, `
  let first = i - i % `+size+`;
  let own = ld_x(`+x+` + i);
  let mine = times[`+m+` + i];
  var slope = 0.0;
  var loss = 0.0;
  if (mine == 0u) {
    let end = ends[`+end+` + i / `+size+`];
    for (var j = 0u; j < end; j++) {
      let k = min(ld_classes(`+j+` + first + j).x, `+size+` - 1u);
      let lack = 1.0 - ld_x(`+x+` + first + k) + own;
      if (lack > 0.0) { slope = slope + 1.0; }
      if (!(lack <= 0.0)) { loss = loss + lack; }
    }
  } else {
    for (var j = 0u; j < `+size+`; j++) {
      if (times[`+m+` + first + j] == 0u && 1.0 - own + ld_x(`+x+` + first + j) > 0.0) { slope = slope - f32(mine); }
    }
  }
  parts[`+part+` + i] = loss / f32(`+size+`);
`+store)
	})
	if err != nil || !loss.Present() {
		return err
	}
	s = shader.New(r, "multilabel losses")
	y := s.Out("y", loss, expr.F32, expr.Number)
	part, rows, size = s.FloatsOf("parts", parts), s.Uint(batch), s.Uint(n)
	return s.Run(r, batch, func() string {
		return shader.WorkgroupSum(64) + shader.EachGroup(64, rows) + `
  var sum = 0.0;
  for (var j = li; j < ` + size + `; j += 64u) { sum = sum + parts[` + part + ` + group * ` + size + ` + j]; }
  sum = whole_sum(li, sum);
  if (li == 0u) { st_y(` + y + ` + group, sum); }
}
`
	})
}
