package gpu

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

func init() {
	register("attention", attentionCall)
	register("attention_backward", attentionBackwardCall)
}

// scoreBytes is how much memory the scores of a part of the heads may take: attention goes part by part.
const scoreBytes = 256 << 20

// An attentionProblem is scaled dot product attention of q [batch, heads, queries, dim] with k and v [batch, kv heads, keys,
// dim]; a group of query heads shares a key head.
type attentionProblem struct {
	c                               *core.Call
	q, k, v, mask                   *core.Operand
	batch, kv, group, queries, keys int
	dim, valueDim                   int
	causal                          bool
	scale, dropout                  float64
}

func newAttention(c *core.Call) *attentionProblem {
	q, k, v := &c.Ins[0], &c.Ins[1], &c.Ins[2]
	a := &attentionProblem{
		c: c, q: q, k: k, v: v, batch: q.Shape[0], kv: k.Shape[1], queries: q.Shape[2], keys: k.Shape[2], dim: q.Shape[3],
		valueDim: v.Shape[3], causal: c.Ints[0] != 0, scale: c.Floats[0], dropout: c.Floats[1],
	}
	if a.kv > 0 {
		a.group = q.Shape[1] / a.kv
	}
	if c.Ins[3].Present() {
		a.mask = &c.Ins[3]
	}
	return a
}

// A part is some of the problem's heads: whole batches, or some key heads of one batch with their groups.
type part struct{ batch, batches, kv, kvs int }

func (p part) heads(a *attentionProblem) int { return p.batches * p.kvs * a.group }

// parts divides the problem so that the scores of each fit.
func (a *attentionProblem) parts(limit int) []part {
	limit = min(limit, scoreBytes)
	each := 4 * a.group * a.queries * max(a.keys, 1) // of a key head
	var list []part
	if kvs := max(limit/max(each, 1), 1); kvs < a.kv {
		for b := range a.batch {
			for h := 0; h < a.kv; h += kvs {
				list = append(list, part{b, 1, h, min(kvs, a.kv-h)})
			}
		}
		return list
	}
	batches := max(limit/max(each*a.kv, 1), 1)
	for b := 0; b < a.batch; b += batches {
		list = append(list, part{b, min(batches, a.batch-b), 0, a.kv})
	}
	return list
}

// A heads is a factor of a product for each head of a part: an operand of the problem, or scores.
type heads struct {
	o                *core.Operand
	batch, kv, group int // strides
	row, col         int
}

// of returns an operand [batch, heads, length, dim] of the problem as the heads of a part. shared says that it has key heads.
func (a *attentionProblem) of(o *core.Operand, p part, shared, transposed bool) heads {
	shifted := *o
	h := heads{o: &shifted, batch: o.Strides[0], kv: o.Strides[1], row: o.Strides[2], col: o.Strides[3]}
	if len(o.Strides) == 4 && o.Shape[3] == 1 {
		h.col = 1
	}
	if !shared {
		h.kv, h.group = o.Strides[1]*a.group, o.Strides[1]
	}
	shifted.Offset += p.batch*h.batch + p.kv*h.kv
	if transposed {
		h.row, h.col = h.col, h.row
	}
	return h
}

// scores returns a part's matrix of queries and keys for each head.
func (a *attentionProblem) scores(m core.Memory, p part, transposed bool) heads {
	n := a.queries * a.keys
	h := heads{o: &core.Operand{Memory: m, DType: core.Float32}, batch: p.kvs * a.group * n, kv: a.group * n, group: n, row: a.keys, col: 1}
	if transposed {
		h.row, h.col = h.col, h.row
	}
	return h
}

// multiply computes out = alpha x y for each head of a part. Where out has key heads, the groups are summed.
func (a *attentionProblem) multiply(r *recorder, p part, out, x, y heads, m, n, k int, alpha float64, summed bool, causal causality) error {
	t := product{
		m: m, n: n, k: k, out: out.o, a: x.o, b: y.o, alpha: alpha,
		ar: x.row, ac: x.col, br: y.row, bc: y.col, cr: out.row, cc: out.col,
	}
	if a.causal {
		t.causal = causal
	}
	t.batch = layout{count: p.batches * p.kvs, strides: make([][]int, 3)}
	t.batch.push(p.batches, out.batch, x.batch, y.batch)
	t.batch.push(p.kvs, out.kv, x.kv, y.kv)
	if m == 0 || n == 0 || t.batch.count == 0 || a.group == 0 {
		return nil
	}
	if !summed {
		t.batch.count *= a.group
		t.batch.push(a.group, out.group, x.group, y.group)
		return t.run(r)
	}
	for g := range a.group {
		xo, yo := *x.o, *y.o
		xo.Offset, yo.Offset = xo.Offset+g*x.group, yo.Offset+g*y.group
		t.a, t.b = &xo, &yo
		if g > 0 {
			t.beta = 1
		}
		if err := t.run(r); err != nil {
			return err
		}
	}
	return nil
}

// rowShader begins a shader over the rows of a part's scores.
func (a *attentionProblem) rowShader(s *shader, p part, width int) (head, visible, dropped string) {
	head = line{p.heads(a) * a.queries, a.keys, 1}.open(s, width)
	queries, kvs, group := s.uint(a.queries), s.uint(p.kvs), s.uint(a.group)
	batch0, head0, allHeads := s.uint(p.batch), s.uint(p.kv*a.group), s.uint(a.kv*a.group)
	head += fmt.Sprintf(`  let query = group %% %s;
  let part_head = group / %s;
  let batch = %s + part_head / (%s * %s);
  let head = %s + part_head %% (%s * %s);
  let row = (batch * %s + head) * %s + query;
`, queries, queries, batch0, kvs, group, head0, kvs, group, allHeads, queries)
	visible = "v"
	if s.flag(a.mask != nil) {
		strides := make([]string, 4)
		for i, n := range a.mask.Strides {
			strides[i] = s.uint(n)
		}
		if s.flag(a.mask.DType == core.Bool) {
			at := s.in("mask", a.mask, expr.F32, expr.Logic)
			head += fmt.Sprintf("  let mask_row = %s + batch * %s + head * %s + query * %s;\n", at, strides[0], strides[1], strides[2])
			visible = "select(-" + infinity + ", v, ld_mask(mask_row + j * " + strides[3] + "))"
		} else {
			at := s.in("mask", a.mask, expr.F32, expr.Number)
			head += fmt.Sprintf("  let mask_row = %s + batch * %s + head * %s + query * %s;\n", at, strides[0], strides[1], strides[2])
			visible = "v + ld_mask(mask_row + j * " + strides[3] + ")"
		}
	}
	if s.flag(a.causal) {
		// Products with tiles of up to 256 rows look no further.
		head = strings.Replace(head, "  let n = ", "  let all_keys = ", 1)
		head = strings.Replace(head, "  let first = (group / step) * n * step", "  let first = (group / step) * all_keys * step", 1)
		head += "  let n = min(all_keys, (query / 256u + 1u) * 256u);\n"
		visible = "select(" + visible + ", -" + infinity + ", j > query)"
	}
	dropped = "1.0"
	if s.flag(a.dropout > 0) {
		keep := 1 - a.dropout
		scale := 0.0
		if keep > 0 {
			scale = 1 / keep
		}
		seed, offset, limit, by := s.long(a.c.Ints[1]), s.long(a.c.Ints[2]), s.long(keepLimit(keep)), s.float(scale)
		padded := s.uint((a.keys + 3) / 4 * 4)
		// The words of a row are in blocks of four keys.
		head += fmt.Sprintf("  let words = plait_add_i64(%s, plait_wide(row, %s / 4u));\n  let seed = %s;\n  let limit = %s;\n", offset, padded, seed, limit)
		dropped = "kept(seed, words, limit, j, " + by + ")"
	}
	return head, visible, dropped
}

const keptSource = `fn kept(seed: vec2<u32>, words: vec2<u32>, limit: vec2<u32>, j: u32, scale: f32) -> f32 {
  var w = plait_philox(seed, plait_add_i64(words, vec2<u32>(j / 4u, 0u)));
  return select(0.0, scale, limit.y > 0u || w[j & 3u] < limit.x);
}
`

// attentionCall: o, lse = f(q, k, v, mask) with ints causal, seed, offset and floats scale, dropout. lse are the logarithms of
// the rows' sums of exponentials; a query that no key takes part in gets 0 and an lse of +inf.
func attentionCall(r *recorder, c *core.Call) error {
	a := newAttention(c)
	if c.Outs[0].Numel() == 0 && c.Outs[1].Numel() == 0 {
		return nil
	}
	list := a.parts(r.device.limits.Binding)
	scores, err := r.temp(4 * max(list[0].heads(a)*a.queries*a.keys, 1))
	if err != nil {
		return err
	}
	for _, p := range list {
		s1 := a.scores(scores, p, false)
		if err := a.multiply(r, p, s1, a.of(a.q, p, false, false), a.of(a.k, p, true, true), a.queries, a.keys, a.dim, a.scale, false, lowerOut); err != nil {
			return err
		}
		if err := a.weights(r, p, scores); err != nil {
			return err
		}
		if err := a.multiply(r, p, a.of(&c.Outs[0], p, false, false), s1, a.of(a.v, p, true, false), a.queries, a.valueDim, a.keys, 1, false, lowerLeft); err != nil {
			return err
		}
	}
	return nil
}

// weights makes scores weights, in place, and writes the lse of their rows.
func (a *attentionProblem) weights(r *recorder, p part, scores core.Memory) error {
	s := newShader(r, "attention")
	x, lse := s.floatsOf("x", scores), s.out("lse", &a.c.Outs[1], expr.F32, expr.Number)
	width := rowWidth(a.keys)
	head, visible, dropped := a.rowShader(s, p, width)
	return s.run(r, p.heads(a)*a.queries, func() string {
		return keptSource + together("most", "f32", "select(a, b, b > a || plait_isnan_f32(b))", width) + wholeSum(width) + head +
			"  var m = -" + infinity + ";\n" +
			along(width, "var v = x["+x+" + at]; v = "+visible+"; x["+x+" + at] = v; m = select(m, v, v > m || plait_isnan_f32(v));") +
			"  let most = whole_most(lane, m);\n  let none = most == -" + infinity + ";\n  let safe = select(most, 0.0, none);\n  var t = 0.0;\n" +
			along(width, "t = t + plait_exp_f32(x["+x+" + at] - safe);") +
			"  let total = whole_sum(lane, t);\n" +
			along(width, "var w = plait_exp_f32(x["+x+" + at] - safe) / total; w = select(w, 0.0, none); x["+x+" + at] = w * "+dropped+";") +
			"  if (lane == 0u) { st_lse(" + lse + " + row, select(safe + plait_log_f32(total), " + infinity + ", none)); }\n}\n"
	})
}

// attentionBackwardCall: dq, dk, dv = f(q, k, v, mask, o, lse, do). Outputs may be absent.
func attentionBackwardCall(r *recorder, c *core.Call) error {
	a := newAttention(c)
	lse, do := &c.Ins[5], &c.Ins[6]
	if a.batch*a.kv*a.group*a.queries*a.keys == 0 {
		for i := range c.Outs {
			if o := c.Outs[i]; o.Present() && o.Numel() > 0 {
				zero := core.Call{Op: c.Op, Outs: []core.Operand{o}, Ins: []core.Operand{{IsNumber: true}}}
				if err := copyCall(r, &zero); err != nil {
					return err
				}
			}
		}
		return nil
	}
	list := a.parts(r.device.limits.Binding)
	size := 4 * list[0].heads(a) * a.queries * a.keys
	scores, err := r.temp(size)
	if err != nil {
		return err
	}
	slopes, err := r.temp(size)
	if err != nil {
		return err
	}
	for _, p := range list {
		w, d := a.scores(scores, p, false), a.scores(slopes, p, false)
		q, k, v, g := a.of(a.q, p, false, false), a.of(a.k, p, true, false), a.of(a.v, p, true, true), a.of(do, p, false, false)
		steps := []func() error{
			func() error {
				return a.multiply(r, p, w, q, a.of(a.k, p, true, true), a.queries, a.keys, a.dim, a.scale, false, lowerOut)
			},
			func() error { return a.multiply(r, p, d, g, v, a.queries, a.keys, a.valueDim, 1, false, lowerOut) },
			func() error { return a.slopes(r, p, scores, slopes, lse) },
		}
		if o := &c.Outs[0]; o.Present() {
			steps = append(steps, func() error {
				return a.multiply(r, p, a.of(o, p, false, false), d, k, a.queries, a.dim, a.keys, a.scale, false, lowerLeft)
			})
		}
		if o := &c.Outs[1]; o.Present() {
			steps = append(steps, func() error {
				return a.multiply(r, p, a.of(o, p, true, false), a.scores(slopes, p, true), q, a.keys, a.dim, a.queries, a.scale, true, upperLeft)
			})
		}
		if o := &c.Outs[2]; o.Present() {
			steps = append(steps, func() error {
				return a.multiply(r, p, a.of(o, p, true, false), a.scores(scores, p, true), g, a.keys, a.valueDim, a.queries, 1, true, upperLeft)
			})
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
	}
	return nil
}

// slopes makes scores the weights after dropout and the gradients of weights, in slopes, those of scores.
func (a *attentionProblem) slopes(r *recorder, p part, scores, slopes core.Memory, lse *core.Operand) error {
	s := newShader(r, "attention_backward")
	x, d, l := s.floatsOf("x", scores), s.floatsOf("d", slopes), s.in("lse", lse, expr.F32, expr.Number)
	width := rowWidth(a.keys)
	head, visible, dropped := a.rowShader(s, p, width)
	return s.run(r, p.heads(a)*a.queries, func() string {
		return keptSource + wholeSum(width) + head + "  let lse = ld_lse(" + l + " + row);\n  var t = 0.0;\n" +
			along(width, "var v = x["+x+" + at]; v = "+visible+"; let w = plait_exp_f32(v - lse); let k = "+dropped+
				"; let g = d["+d+" + at] * k; t = t + w * g; x["+x+" + at] = w; d["+d+" + at] = g;") +
			"  let total = whole_sum(lane, t);\n" +
			along(width, "let w = x["+x+" + at]; d["+d+" + at] = w * (d["+d+" + at] - total); x["+x+" + at] = w * "+dropped+";") + "}\n"
	})
}
