// Package attention computes scaled dot product attention and its gradients block by block, without storing the score matrix (Dao et al.,
// FlashAttention, 2022).
package attention

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.Attention, attentionCall)
	kernel.Register(contract.AttentionBackward, attentionBackwardCall)
}

// An attentionProblem is scaled dot product attention of q [batch, heads, queries, dim] with k and v [batch, kv heads, keys, dim]. The
// query heads of a group share one key head.
type attentionProblem struct {
	contract.AttentionAttrs
	c                               *core.Call
	q, k, v, mask                   *core.Operand
	batch, kv, group, queries, keys int
	dim, valueDim                   int
}

func newAttention(c *core.Call) *attentionProblem {
	q, k, v := &c.Ins[0], &c.Ins[1], &c.Ins[2]
	a := &attentionProblem{
		AttentionAttrs: contract.AttentionOf(c), c: c, q: q, k: k, v: v, batch: q.Shape[0], kv: k.Shape[1], queries: q.Shape[2], keys: k.Shape[2], dim: q.Shape[3],
		valueDim: v.Shape[3],
	}
	if a.kv > 0 {
		a.group = q.Shape[1] / a.kv
	}
	if c.Ins[3].Present() {
		a.mask = &c.Ins[3]
	}
	return a
}

// sliceWidth is the number of columns of the result that one program computes. Wider results take several dispatches.
const sliceWidth = 128

// blocks begins the text of a program, whose workgroups iterate over a number of columns of scores. width is the width of the result, and
// column the first column that this program computes.
func (a *attentionProblem) blocks(r *shader.Recorder, s *shader.Builder, width, column, scores int) (*blockText, error) {
	// lavapipe ends loops after 65535 iterations. A block takes at most four products, two of which iterate along its vectors.
	products := 2*shader.Ceil(max(a.dim, a.valueDim), blockK) + 2*blockSpan/blockK
	if iterations := shader.Ceil(scores, blockSpan) * (products*(blockK+1) + 1); r.GPU.Software && iterations > 1<<16-1 {
		return nil, core.Errorf(core.NotImplemented, a.c.Op, "%d queries and %d keys are too many for %s", a.queries, a.keys, r.GPU.Name)
	}
	b := &blockText{unroll: s.Flag(!r.GPU.Software), column: s.Uint(column)}
	b.groups = s.Specialize(max(shader.Ceil(min(width-column, sliceWidth), blockSide), 1))
	if most := r.GPU.WorkgroupStorage; b.workgroupBytes() > most {
		return nil, core.Errorf(core.NotImplemented, a.c.Op, "%v has too little workgroup memory, %d bytes of %d", r.GPU, most, b.workgroupBytes())
	}
	return b, nil
}

// A headRange is a range of heads of a range of the batch.
type headRange struct{ batch, batches, head, heads int }

// workgroups adds the parameters of the range to a program. It returns the number of workgroups, and statements that define row0, batch and
// place, the number of the head. With last, the last rows come first, because they have more keys under a causal mask.
func (h headRange) workgroups(s *shader.Builder, rows int, last bool) (groups int, text string) {
	n, stack := shader.Ceil(rows, blockSide), h.batches*h.heads
	block := "group / " + s.Uint(stack)
	stackWord, headsWord, count, batch, head := s.Uint(stack), s.Uint(h.heads), s.Uint(n*stack), s.Uint(h.batch), s.Uint(h.head)
	if s.Flag(last) {
		block = s.Uint(n-1) + " - " + block
	}
	text = fmt.Sprintf("  if (group >= %s) { return; }\n  let row0 = (%s) * %du;\n  let batch = %s + group %% %s / %s;\n", count, block, blockSide, batch, stackWord, headsWord)
	return n * stack, text + fmt.Sprintf("  let place = %s + group %% %s;\n", head, headsWord)
}

// attentionCall: o, lse = f(q, k, v, mask). lse is the logarithm of the sum of the exponentials of each row of scores. A query without any
// key gets 0 and an lse of +inf.
func attentionCall(r *shader.Recorder, c *core.Call) error {
	a := newAttention(c)
	if c.Outs[0].Numel() == 0 && c.Outs[1].Numel() == 0 {
		return nil
	}
	if a.onTensorCores(r.GPU) {
		return a.tensorForward(r)
	}
	for column := 0; column == 0 || column < a.valueDim; column += sliceWidth {
		if err := a.forward(r, column); err != nil {
			return err
		}
	}
	return nil
}

// forward computes up to sliceWidth columns of the result, from the given one on.
func (a *attentionProblem) forward(r *shader.Recorder, column int) error {
	s := shader.New(r, "attention")
	heads := a.kv * a.group
	queries, keys, dim, valueDim := s.Uint(a.queries), s.Uint(a.keys), s.Uint(a.dim), s.Uint(a.valueDim)
	q, k := newHeadOperand(s, "q", a.q, queries, dim, false), newHeadOperand(s, "k", a.k, keys, dim, false)
	v, o := newHeadOperand(s, "v", a.v, keys, valueDim, false), newHeadOperand(s, "o", &a.c.Outs[0], queries, valueDim, true)
	lse := s.Out("lse", &a.c.Outs[1], expr.F32, expr.Number)
	mask := a.scoreMask(s, false)
	b, err := a.blocks(r, s, a.valueDim, column, a.keys)
	if err != nil {
		return err
	}
	groups, place := headRange{batches: a.batch, heads: heads}.workgroups(s, a.queries, a.Causal)
	return s.Run(r, groups, func(w *shader.Text) {
		b.Text = w
		mask.functions(w)
		b.memory()
		b.open()
		b.registers()
		b.Add(`%s  let head = place;
  let kv_head = head / %s;`, place, mask.group)
		b.Put(q.at("batch", "head"))
		b.Put(k.at("batch", "kv_head"))
		b.Put(v.at("batch", "kv_head"))
		b.Put(o.at("batch", "head"))
		b.accumulators("o", b.vec4s())
		b.eachRow("  var l_$i = 0.0;\n")
		b.Add("  var most = real4(-%s);", shader.Infinity) // the row maxima so far, of rows 4 li to 4 li + 3
		end := keys
		if a.Causal {
			end = fmt.Sprintf("min(%s, row0 + %du)", keys, blockSide)
		}
		scores := outerFactors{x: &q, y: &k, x0: "row0", y0: "col0", doubleBuffered: true}
		next := scores
		next.y0 = fmt.Sprintf("col0 + %du", blockSpan)
		b.Add(`  let end = %s;
  var col0 = 0u;`, end)
		b.fetchOuter(scores)
		b.Add("  for (; col0 < end; col0 += %du) {", blockSpan)
		b.accumulators("s", 1)
		b.outer("s", scores)
		b.fetchAdd(&v, "col0")
		mask.scores(b, "s", "row0", "col0")
		b.eachRow("  let m_$i = max(max(s_$i_0.x, s_$i_0.y), max(s_$i_0.z, s_$i_0.w));\n")
		b.storeRows("m")
		b.Barrier()
		b.Add(`  if (li < 16u) {
    var m = most;`)
		for t := range blockAcross {
			b.Add("    m = max(m, sh_p[%d][li]);", t)
		}
		b.Add(`    let safe = select(m, real4(), m == real4(-%s));
    sh_x[0][li] = safe;
    sh_x[1][li] = exp(most - safe);
    most = m;
  }`, shader.Infinity)
		b.Barrier()
		b.Add(`  let safe = sh_x[0][ty];
  let shrunk = sh_x[1][ty];`)
		mask.drop(b, "row0", "col0")
		b.eachRow("  s_$i_0 = exp(s_$i_0 - safe.$c);\n" +
			"  l_$i = l_$i * shrunk.$c + (s_$i_0.x + s_$i_0.y + (s_$i_0.z + s_$i_0.w));\n")
		if mask.dropped() != "" {
			b.eachRow(fmt.Sprintf("  s_$i_0 = s_$i_0%s;\n", mask.dropped()))
		}
		for h := range b.vec4s() {
			b.eachRow(fmt.Sprintf("  o_$i_%d = o_$i_%d * shrunk.$c;\n", h, h))
		}
		b.storeBlock("s")
		b.fetchOuter(next)
		b.add("o", &v, "col0")
		b.Add("  }")
		b.Barrier()
		b.storeRows("l")
		b.Barrier()
		b.Add(`  if (li < 16u) {
    var total = real4();`)
		for t := range blockAcross {
			b.Add("    total = total + sh_p[%d][li];", t)
		}
		b.Add("    sh_x[0][li] = select(1.0 / total, real4(), total == real4());")
		for i := range 4 {
			b.Add("    if (row0 + li * 4u + %du < %s) { st_lse(%s + (batch * %s + head) * %s + row0 + li * 4u + %du, select(most.%s + plait_log_f32(total.%s), %s, most.%s == -%s)); }", i, queries, lse, mask.heads, queries, i, shader.Component(i), shader.Component(i), shader.Infinity, shader.Component(i), shader.Infinity)
		}
		b.Add("  }")
		b.Barrier()
		b.Add("  let factor = sh_x[0][ty];")
		b.store("o", &o, "row0", "factor.$c")
	})
}
