package attention

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel/copying"
	"github.com/plait-ml/plait/gpu/kernel/matmul"
	"github.com/plait-ml/plait/gpu/shader"
)

// attentionBackwardCall: dq, dk, dv = f(q, k, v, mask, o, lse, do). Outputs may be absent. The attention weights are recomputed from the
// scores and lse, in blocks of keys for dk and dv. There are two ways to compute dq, with the same bits: recompute the weights again in
// blocks of queries; or have the blocks of keys store the score gradients, for some heads at a time, and multiply those with the keys.
func attentionBackwardCall(r *shader.Recorder, c *core.Call) error {
	a := newAttention(c)
	rows := a.batch * a.kv * a.group * a.queries
	if rows*a.keys == 0 {
		for i := range c.Outs {
			if o := c.Outs[i]; o.Present() && o.Numel() > 0 {
				zero := core.Call{Op: c.Op, Outs: []core.Operand{o}, Ins: []core.Operand{{IsNumber: true}}}
				if err := copying.Copy(r, &zero); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if a.onTensorCores(r.GPU) {
		return a.tensorBackward(r)
	}
	stats, err := r.Reals(2 * rows)
	if err != nil {
		return err
	}
	if err := a.rowStats(r, stats, rows); err != nil {
		return err
	}
	if parts := a.scoreParts(r.GPU); parts != nil {
		if scores, err := r.Temp(a.scoreBytes() * parts[0].batches * parts[0].heads); err == nil { // if there is no memory, scores are computed twice
			return a.storeScores(r, stats, rows, parts, scores)
		}
	}
	if c.Outs[0].Present() {
		for column := 0; column < a.dim; column += sliceWidth {
			if err := a.queryGradients(r, stats, rows, column); err != nil {
				return err
			}
		}
	}
	if !c.Outs[1].Present() && !c.Outs[2].Present() {
		return nil
	}
	return a.keyColumns(r, stats, rows, a.keyHeads(), nil)
}

// keyHeads returns the range of all key heads.
func (a *attentionProblem) keyHeads() headRange { return headRange{batches: a.batch, heads: a.kv} }

// rowStats writes to stats the sum of o do of each row, followed by the lse of each row.
func (a *attentionProblem) rowStats(r *shader.Recorder, stats core.Memory, rows int) error {
	o, lse, do := &a.c.Ins[4], &a.c.Ins[5], &a.c.Ins[6]
	s := shader.New(r, "attention_backward (rows)")
	x, g := s.In("o", o, expr.F32, expr.Number), s.In("g", do, expr.F32, expr.Number)
	l, to := s.In("lse", lse, expr.F32, expr.Number), s.RealsOf("stats", stats)
	count, heads, queries, dim := s.Uint(rows), s.Uint(a.kv*a.group), s.Uint(a.queries), s.Uint(a.valueDim)
	at := func(o *core.Operand, first string) string {
		return fmt.Sprintf("%s + row / (%s * %s) * %s + row / %s %% %s * %s + row %% %s * %s", first, heads, queries, s.Uint(o.Strides[0]),
			queries, heads, s.Uint(o.Strides[1]), queries, s.Uint(o.Strides[2]))
	}
	atO, atG := at(o, x), at(do, g)
	const lanes = 16
	return s.Run(r, shader.Ceil(rows, shader.Threads/lanes), func(w *shader.Text) {
		w.Shared("sums", shader.Real, shader.Threads/lanes, lanes+1)
		w.Main(shader.Threads)
		w.Add(`  let row = group * %du + li / %du;
  let lane = li %% %du;
  let first = %s;
  let other = %s;
  var sum = 0.0;`, shader.Threads/lanes, lanes, lanes, atO, atG)
		w.Add(`  if (row < %s) {
    for (var j = lane; j < %s; j += %du) { sum = sum + ld_o(first + j) * ld_g(other + j); }
  }`, count, dim, lanes)
		w.Add("  sums[li / %du][lane] = sum;", lanes)
		w.Barrier()
		w.Add("  if (lane > 0u || row >= %s) { return; }", count)
		for t := 1; t < lanes; t++ {
			w.Add("  sum = sum + sums[li / %du][%d];", lanes, t)
		}
		w.Add(`  stats[%s + row] = sum;
  stats[%s + %s + row] = ld_lse(%s + row);`, to, to, count, l)
	})
}

// queryGradients computes up to sliceWidth columns of dq.
func (a *attentionProblem) queryGradients(r *shader.Recorder, stats core.Memory, rows, column int) error {
	s := shader.New(r, "attention_backward (queries)")
	queries, keys, dim, valueDim := s.Uint(a.queries), s.Uint(a.keys), s.Uint(a.dim), s.Uint(a.valueDim)
	q, k := newHeadOperand(s, "q", a.q, queries, dim, false), newHeadOperand(s, "k", a.k, keys, dim, false)
	v, g := newHeadOperand(s, "v", a.v, keys, valueDim, false), newHeadOperand(s, "g", &a.c.Ins[6], queries, valueDim, false)
	dq := newHeadOperand(s, "dq", &a.c.Outs[0], queries, dim, true)
	sums, count := s.RealsOf("stats", stats), s.Uint(rows)
	mask := a.scoreMask(s, false)
	b, err := a.blocks(r, s, a.dim, column, a.keys)
	if err != nil {
		return err
	}
	groups, place := headRange{batches: a.batch, heads: a.kv * a.group}.workgroups(s, a.queries, a.Causal)
	return s.Run(r, groups, func(w *shader.Text) {
		b.Text = w
		mask.functions(w)
		b.memory()
		b.open()
		b.registers()
		b.Add(`%s  let head = place;
  let kv_head = head / %s;`, place, mask.group)
		b.Put(q.at("batch", "head"))
		b.Put(g.at("batch", "head"))
		b.Put(dq.at("batch", "head"))
		b.Put(k.at("batch", "kv_head"))
		b.Put(v.at("batch", "kv_head"))
		b.Add("  let rows0 = %s + (batch * %s + head) * %s + row0;", sums, mask.heads, queries)
		b.eachRow(fmt.Sprintf(`  let delta_$i = stats[rows0 + ty * 4u + $iu];
  let lse_$i = stats[rows0 + %s + ty * 4u + $iu];
`, count))
		b.accumulators("dq", b.vec4s())
		end := keys
		if a.Causal {
			end = fmt.Sprintf("min(%s, row0 + %du)", keys, blockSide)
		}
		scores := outerFactors{x: &q, y: &k, x0: "row0", y0: "col0", doubleBuffered: true}
		next, weights := scores, outerFactors{x: &g, y: &v, x0: "row0", y0: "col0", bounded: true, doubleBuffered: true}
		next.y0 = fmt.Sprintf("col0 + %du", blockSpan)
		b.Add(`  let end = %s;
  var col0 = 0u;`, end)
		b.fetchOuter(scores)
		b.Add("  for (; col0 < end; col0 += %du) {", blockSpan)
		b.accumulators("s", 1)
		b.accumulators("t", 1)
		b.outer("s", scores)
		b.fetchOuter(weights)
		mask.scores(b, "s", "row0", "col0")
		b.outer("t", weights)
		b.fetchAdd(&k, "col0")
		mask.drop(b, "row0", "col0")
		b.eachRow(fmt.Sprintf("  s_$i_0 = exp(s_$i_0 - lse_$i) * (t_$i_0%s - delta_$i);\n", mask.dropped()))
		b.storeBlock("s")
		b.fetchOuter(next)
		b.add("dq", &k, "col0")
		b.Add("  }")
		b.store("dq", &dq, "row0", mask.scale)
	})
}

// keyColumns computes dk and dv of a range of heads. If scores is not nil, it also stores the score gradients there.
func (a *attentionProblem) keyColumns(r *shader.Recorder, stats core.Memory, rows int, h headRange, scores *core.Memory) error {
	for column := 0; column < max(a.dim, a.valueDim); column += sliceWidth {
		if err := a.keyGradients(r, stats, rows, column, h, scores); err != nil {
			return err
		}
		scores = nil
	}
	return nil
}

// keyGradients computes up to sliceWidth columns of dk and dv. The rows of its blocks are keys and the columns queries. If kept is not nil,
// the score gradients are stored there.
func (a *attentionProblem) keyGradients(r *shader.Recorder, stats core.Memory, rows, column int, h headRange, kept *core.Memory) error {
	s := shader.New(r, "attention_backward (keys)")
	queries, keys, dim, valueDim := s.Uint(a.queries), s.Uint(a.keys), s.Uint(a.dim), s.Uint(a.valueDim)
	q, k := newHeadOperand(s, "q", a.q, queries, dim, false), newHeadOperand(s, "k", a.k, keys, dim, false)
	v, g := newHeadOperand(s, "v", a.v, keys, valueDim, false), newHeadOperand(s, "g", &a.c.Ins[6], queries, valueDim, false)
	withK, withV := s.Flag(a.c.Outs[1].Present() && column < a.dim), s.Flag(a.c.Outs[2].Present() && column < a.valueDim)
	var dk, dv headOperand
	if withK {
		dk = newHeadOperand(s, "dk", &a.c.Outs[1], keys, dim, true)
	}
	if withV {
		dv = newHeadOperand(s, "dv", &a.c.Outs[2], keys, valueDim, true)
	}
	sums, count := s.RealsOf("stats", stats), s.Uint(rows)
	mask := a.scoreMask(s, true)
	b, err := a.blocks(r, s, max(a.dim, a.valueDim), column, a.group*a.queries)
	if err != nil {
		return err
	}
	groups, place := h.workgroups(s, a.keys, false)
	var ds, ds0, dsRow string
	if s.Flag(kept != nil) {
		ds = s.RealsOf("ds", *kept)
		s.Bindings[len(s.Bindings)-1].Vec4 = true
		lines, width := a.scoreShape()
		dsRow = s.Uint(width)
		row := "row0 * " + dsRow
		if a.Causal {
			row = "folded(row0, " + dsRow + ")"
		}
		ds0 = fmt.Sprintf("%s + ((batch - %s) * %s + head - %s) * %s + %s", ds, s.Uint(h.batch), s.Uint(h.heads*a.group), s.Uint(h.head*a.group), s.Uint(lines*width), row)
	}
	if !withK && !withV {
		return nil
	}
	return s.Run(r, groups, func(w *shader.Text) {
		b.Text = w
		mask.functions(w)
		if ds != "" {
			matmul.FoldedFunc(b.Text)
		}
		b.memory()
		b.open()
		b.registers()
		b.Add("%s  let kv_head = place;", place)
		b.Put(k.at("batch", "kv_head"))
		b.Put(v.at("batch", "kv_head"))
		if withK {
			b.Put(dk.at("batch", "kv_head"))
			b.accumulators("dk", b.vec4s())
		}
		if withV {
			b.Put(dv.at("batch", "kv_head"))
			b.accumulators("dv", b.vec4s())
		}
		b.Add(`  for (var member = 0u; member < %s; member++) {
  let head = kv_head * %s + member;`, mask.group, mask.group)
		b.Put(q.at("batch", "head"))
		b.Put(g.at("batch", "head"))
		if ds != "" {
			b.Add("  let ds0 = %s;", ds0)
		}
		begin := "0u"
		if a.Causal {
			begin = "row0"
		}
		scores := outerFactors{x: &k, y: &q, x0: "row0", y0: "col0"}
		next, weights := scores, outerFactors{x: &v, y: &g, x0: "row0", y0: "col0", bounded: true}
		next.y0 = fmt.Sprintf("col0 + %du", blockSpan)
		b.Add("  var col0 = %s;", begin)
		b.fetchOuter(scores)
		b.Add("  for (; col0 < %s; col0 += %du) {", queries, blockSpan)
		b.Add(`  let query0 = col0 + tx * 4u;
  let stat0 = %s + (batch * %s + head) * %s + query0;
  var lse = real4();
  var delta = real4();`, sums, mask.heads, queries)
		for j := range 4 {
			b.Add("  if (query0 + %du < %s) { delta.%s = stats[stat0 + %du]; lse.%s = stats[stat0 + %s + %du]; }", j, queries, shader.Component(j), j, shader.Component(j), count, j)
		}
		b.accumulators("s", 1)
		b.outer("s", scores)
		mask.scores(b, "s", "row0", "col0")
		mask.drop(b, "row0", "col0")
		b.eachRow("  s_$i_0 = exp(s_$i_0 - lse);\n")
		if withV {
			name := "s"
			if mask.dropped() != "" {
				name = "u"
				b.eachRow(fmt.Sprintf("  let u_$i_0 = s_$i_0%s;\n", mask.dropped()))
			}
			b.fetchAdd(&g, "col0")
			b.storeBlock(name)
			if withK {
				b.fetchOuter(weights)
			} else {
				b.fetchOuter(next)
			}
			b.add("dv", &g, "col0")
		}
		if withK {
			if !withV {
				b.fetchOuter(weights)
			}
			b.accumulators("t", 1)
			b.outer("t", weights)
			b.fetchAdd(&q, "col0")
			b.eachRow(fmt.Sprintf("  s_$i_0 = s_$i_0 * (t_$i_0%s - delta);\n", mask.dropped()))
			if ds != "" {
				b.eachRow(fmt.Sprintf("  ds[(ds0 + (ty * 4u + $iu) * %s + query0) >> 2u] = s_$i_0;\n", dsRow))
			}
			b.storeBlock("s")
			b.fetchOuter(next)
			b.add("dk", &q, "col0")
		}
		b.Add(`  }
  }`)
		if withK {
			b.store("dk", &dk, "row0", mask.scale)
		}
		if withV {
			b.store("dv", &dv, "row0", "1.0")
		}
	})
}
