package pooling

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

// plain returns the pool without the rules for averages.
func (p *pool) plain() *pool {
	plain := *p
	plain.includePad, plain.divisor = false, 0
	return &plain
}

// maxPoolCall: Outs[0] = the maxima of the windows of Ins[0]; Outs[1], int64 and optional, = their positions in their planes. NaN is larger
// than every number. Of equal elements the first counts, and of NaNs the last.
func maxPoolCall(r *shader.Recorder, c *core.Call) error {
	x, y := &c.Ins[0], &c.Outs[0]
	p := newPool(contract.PoolOf(c), x.Shape, y.Shape)
	s := shader.New(r, "max_pool")
	t := shader.ComputeType(x.DType)
	from, to := s.In("x", x, t, expr.Number), s.Out("y", y, t, expr.Number)
	index := ""
	if s.Flag(len(c.Outs) > 1 && c.Outs[1].Present()) {
		index = s.Out("index", &c.Outs[1], expr.I64, expr.Number)
	}
	n, plane := s.Uint(y.Numel()), s.Uint(primitive.Product3(p.In))
	s.Flag(p.adaptive)
	window := p.mostElements()
	wide, width := s.Flag(window >= wideWindow), s.Specialize(primitive.RowThreads(window))
	g := p.BindConstants(s)
	if y.Numel() == 0 {
		return nil
	}
	if wide {
		return s.Run(r, y.Numel(), func(w *shader.Text) {
			best, store := "bitcast<u32>(v), at", "bitcast<real>(best.x)"
			typ, none := shader.Pair, "pair(0u, 0xffffffffu)"
			switch {
			case t == expr.I64:
				typ, none, best, store = shader.Word4, "word4(0u, 0xffffffffu, 0u, 0u)", "v.x, at, v.y, 0u", "pair(best.x, best.z)"
				w.Func("larger(a: word4, b: word4) -> bool", "return plait_lt_i64(pair(b.x, b.z), pair(a.x, a.z)) || (a.x == b.x && a.z == b.z && a.y < b.y);")
			case r.Float64:
				typ, none, best, store = shader.Word4, "word4(0u, 0xffffffffu, 0u, 0u)", "bitcast<pair>(v).x, at, bitcast<pair>(v).y, 0u", "bitcast<real>(pair(best.x, best.z))"
				w.Func("larger(a: word4, b: word4) -> bool", `let u = bitcast<real>(pair(a.x, a.z));
  let v = bitcast<real>(pair(b.x, b.z));
  if (plait_isnan_f32(u)) { return !plait_isnan_f32(v) || a.y > b.y; }
  return u > v || (u == v && a.y < b.y);`)
			default:
				w.Func("larger(a: pair, b: pair) -> bool", `let u = bitcast<real>(a.x);
  let v = bitcast<real>(b.x);
  if (plait_isnan_f32(u)) { return !plait_isnan_f32(v) || a.y > b.y; }
  return u > v || (u == v && a.y < b.y);`)
			}
			// The second word is the position, or NoIndex.
			w.Func("better(a: "+typ+", b: "+typ+") -> "+typ, "if (a.y == %[1]s) { return b; }\n  if (b.y == %[1]s || larger(a, b)) { return a; }\n  return b;", shader.NoIndex)
			w.Reduce("best", typ, "better(a, b)", width)
			w.EachGroup(width, n)
			w.Put(primitive.UnfoldPlane("o", "group", g.Out))
			w.Put(p.plain().windowRange(g, "1u"))
			w.Add("  var best = %s;", none)
			w.Put(wideLoop(g, width, fmt.Sprintf("    let v = ld_x(%s + plane * %s + at);\n    best = better(best, %s(%s));\n", from, plane, typ, best)))
			w.Add("  best = whole_best(li, best);\n  if (li > 0u) { return; }")
			w.Add("  st_y(%s + group, %s);", to, store)
			if index != "" {
				w.Add("  st_index(%s + group, pair(best.y, 0u));", index)
			}
		})
	}
	return s.Run(r, shader.GroupsFor(y.Numel()), func(w *shader.Text) {
		better := "v > best || plait_isnan_f32(v)"
		if t == expr.I64 {
			better = "plait_lt_i64(best, v)"
		}
		w.Each(n)
		w.Put(primitive.UnfoldPlane("o", "i", g.Out))
		w.Put(p.plain().windowRange(g, "1u"))
		w.Add(`  var best: %s;
  var where_best = 0xffffffffu;`, shader.TypeName(t, expr.Number))
		w.Put(windowLoop(g, fmt.Sprintf(`    let v = ld_x(%s + plane * %s + at);
    if (where_best == 0xffffffffu || %s) { best = v; where_best = at; }
`, from, plane, better)))
		w.Add("  st_y(%s + i, best);", to)
		if index != "" {
			w.Add("  st_index(%s + i, pair(where_best, 0u));", index)
		}
	})
}

// maxPoolGradient computes the gradient of max_pool: each element is the sum of Ins[0] over the windows whose maximum it is by Ins[1]. Only
// windows that may contain it are visited, instead of the whole plane.
func maxPoolGradient(r *shader.Recorder, c *core.Call, a contract.PoolAttrs) error {
	in, index, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	p := newPool(a, out.Shape, in.Shape)
	s := shader.New(r, "max_pool_grad")
	t := shader.ComputeType(in.DType)
	x, k, y := s.In("x", in, t, expr.Number), s.In("index", index, expr.I64, expr.Number), s.Out("y", out, t, expr.Number)
	n, plane, places := s.Uint(out.Numel()), s.Uint(primitive.Product3(p.In)), s.Uint(primitive.Product3(p.Out))
	s.Flag(p.adaptive)
	g := p.BindConstants(s)
	if out.Numel() == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(out.Numel()), func(w *shader.Text) {
		w.Each(n)
		w.Put(primitive.UnfoldPlane("e", "i", g.In))
		w.Add("  let own = i - plane * %s;", plane)
		w.Add("  var sum: %s;", shader.TypeName(t, expr.Number))
		w.Put(p.outputLoop(g, fmt.Sprintf(`    let j = plane * %s + (o_0 * %s + o_1) * %s + o_2;
    if (ld_index(%s + j).x == own) { sum = %s; }
`, places, g.Out[1], g.Out[2], k, shader.Combine(contract.ScatterAdd, t, "sum", "ld_x("+x+" + j)"))))
		w.Add("  st_y(%s + i, sum);", y)
	})
}
