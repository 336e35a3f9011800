package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// AttentionOptions are the optional arguments of [ScaledDotProductAttention].
type AttentionOptions struct {
	// Mask broadcasts to the shape of the scores [..., L, S]. A bool mask says with true which keys take part, a
	// floating-point one is added to the scores.
	Mask *core.Tensor
	// DropoutP is the probability with which a weight is dropped.
	DropoutP float64
	// Causal hides from query i all keys after the i-th.
	Causal bool
	// Scale multiplies the scores; 0 stands for 1/sqrt(E).
	Scale float64
	// EnableGQA allows fewer key and value heads than query heads: each serves as many neighbouring query heads.
	EnableGQA bool
}

// drawnHeads say for which part of a tensor dropout draws its numbers, so that they are those of the whole.
type drawnHeads struct {
	batch, heads int // of the whole
	first        int // head of the part, among the heads of the whole
	stack        int // element of the batch with which the part begins
}

// ScaledDotProductAttention returns softmax(query key^T scale + mask) value for query [..., L, E], key [..., S, E] and
// value [..., S, Ev], whose leading dimensions broadcast; the last of these are the heads. The scores are never stored.
// Queries that no key takes part in get 0.
//
// Vaswani et al.: Attention is all you need, 2017; Dao, Fu, Ermon, Rudra, Re: FlashAttention, 2022.
func ScaledDotProductAttention(query, key, value *core.Tensor, o AttentionOptions) *core.Tensor {
	parts := distributed(query, key, value, o.Mask)
	if o.DropoutP > 0 {
		parts = drawnIn(parts)
	}
	if parts != nil {
		return handOn(parts, "scaled_dot_product_attention", query, key, value, o)
	}
	return attentionOf(query, key, value, o, nil)
}

// attentionOf is attention of ordinary tensors, which are a part of others if part is not nil.
func attentionOf(query, key, value *core.Tensor, o AttentionOptions, part *drawnHeads) *core.Tensor {
	op := begin("scaled_dot_product_attention", &query, &key, &value, optional(&o.Mask))
	for _, t := range []*core.Tensor{query, key, value} {
		op.floatTensor(t)
	}
	op.probability(o.DropoutP)
	lead := op.attentionShapes(query, key, value, o)
	if op.err != nil {
		return op.fail()
	}
	if o.Scale == 0 {
		o.Scale = 1 / math.Sqrt(float64(max(query.Size(-1), 1)))
	}
	four := func(t *core.Tensor, lead []int) bool {
		return len(lead) == 2 && slices.Equal(t.Shape()[:t.Dim()-2], lead)
	}
	if four(query, lead.query) && four(key, lead.key) && four(value, lead.key) {
		return op.passOn(attend(query, key, value, o.Mask, o, part))
	}
	return op.compose(func() *core.Tensor {
		// The kernel takes [batch, heads, length, dim]: leading dimensions but the last become the batch.
		q, k, v := headsOf(query, lead.query), headsOf(key, lead.key), headsOf(value, lead.key)
		mask := o.Mask
		if mask != nil && mask.Dim() > 0 && len(lead.query) != 2 {
			full := append(slices.Clone(lead.query), query.Size(-2), key.Size(-2))
			mask = headsOf(Expand(mask, full...), lead.query)
		}
		out := attend(q, k, v, mask, o, part)
		return Reshape(out, append(slices.Clone(lead.query), query.Size(-2), value.Size(-1))...)
	})
}

// leading are the leading dimensions of queries and keys after broadcasting.
type leading struct{ query, key []int }

// attentionShapes checks that the arguments fit and broadcasts their leading dimensions.
func (op *opContext) attentionShapes(q, k, v *core.Tensor, o AttentionOptions) (l leading) {
	if op.err != nil {
		return l
	}
	if min(q.Dim(), k.Dim(), v.Dim()) < 2 {
		op.failf(core.ShapeError, "want at least two dimensions, got %s", shapes(q, k, v))
		return l
	}
	if q.DType() != k.DType() || q.DType() != v.DType() {
		op.failf(core.DTypeError, "query, key and value must have one dtype, got %v, %v and %v", q.DType(), k.DType(), v.DType())
	}
	if q.Size(-1) != k.Size(-1) || k.Size(-2) != v.Size(-2) {
		op.failf(core.ShapeError, "query [..., L, E], key [..., S, E] and value [..., S, Ev] do not fit, got %s", shapes(q, k, v))
	}
	if op.err != nil {
		return l
	}
	of := func(t *core.Tensor) []int { return t.Shape()[:t.Dim()-2] }
	if o.EnableGQA {
		if min(q.Dim(), k.Dim(), v.Dim()) < 3 {
			op.failf(core.ShapeError, "grouped heads need at least three dimensions, got %s", shapes(q, k, v))
			return l
		}
		hq, hk, hv := q.Size(-3), k.Size(-3), v.Size(-3)
		if hk != hv || hk == 0 || hq%hk != 0 {
			op.failf(core.ShapeError, "%d query heads do not divide into groups for %d key and %d value heads", hq, hk, hv)
			return l
		}
		outer := func(t *core.Tensor) []int { return t.Shape()[:t.Dim()-3] }
		batch, err := core.Broadcast(op.name, outer(q), outer(k), outer(v))
		op.check(err)
		l.query, l.key = append(slices.Clone(batch), hq), append(slices.Clone(batch), hk)
	} else {
		batch, err := core.Broadcast(op.name, of(q), of(k), of(v))
		op.check(err)
		l.query, l.key = batch, batch
	}
	if o.Mask != nil && op.err == nil {
		if o.Causal {
			op.failf(core.ValueError, "got a mask and causal, want at most one of them")
		}
		if d := o.Mask.DType(); d != core.Bool && d != q.DType() && (d != core.Float32 || q.DType() == core.Float64) {
			op.failf(core.DTypeError, "the mask must be bool or of the query's dtype %v, got %v", q.DType(), d)
		}
		full := append(slices.Clone(l.query), q.Size(-2), k.Size(-2))
		if got, err := core.Broadcast(op.name, o.Mask.Shape(), full); err != nil || !slices.Equal(got, full) {
			op.failf(core.ShapeError, "a mask of shape %v does not broadcast to the scores %v", o.Mask.Shape(), full)
		}
	}
	return l
}

// headsOf returns t, broadcast to the leading dimensions lead, as [batch, heads, length, dim].
func headsOf(t *core.Tensor, lead []int) *core.Tensor {
	t = Expand(t, append(slices.Clone(lead), t.Size(-2), t.Size(-1))...)
	switch len(lead) {
	case 0:
		return Reshape(t, 1, 1, t.Size(-2), t.Size(-1))
	case 2:
		return t
	}
	heads := lead[len(lead)-1]
	return Reshape(t, core.Numel(lead[:len(lead)-1]), heads, t.Size(-2), t.Size(-1))
}

// attend is attention of four-dimensional tensors; the mask may be nil, and so may part.
func attend(q, k, v, mask *core.Tensor, o AttentionOptions, part *drawnHeads) *core.Tensor {
	op := begin("scaled_dot_product_attention").with(q, k, v, mask)
	if op.err != nil {
		return op.fail()
	}
	info := &attentionInfo{o: o, drawn: drawnHeads{batch: q.Size(0), heads: q.Size(1)}}
	if o.DropoutP > 0 {
		if part != nil {
			info.drawn = *part
		}
		d := info.drawn
		blocks := q.Size(2) * ((k.Size(2) + 3) / 4) // of four words, for a head
		info.seed, info.offset = op.drawWords(4 * blocks * d.heads * d.batch)
		info.offset += uint64((d.stack*d.heads + d.first) * blocks)
	}
	in := op.attentionInputs(q, k, v, mask)
	batch, heads, queries, dim := q.Size(0), q.Size(1), q.Size(2), v.Size(3)
	out := op.headsInside(q.DType(), []int{batch, heads, queries, dim})
	lse := op.temp(statType(q.DType()), batch, heads, queries)
	if op.err != nil {
		return op.fail()
	}
	c := in.call(op.call(contract.Attention).Out(out).Out(lse), info)
	c.Work = max(c.Work, 2*productWork(q.DType(), batch*heads*queries*k.Size(2)*(q.Size(3)+dim)))
	op.launch(c)
	if op.grad {
		n := op.node(attentionDeriv, q, k, v, mask).Save(q, k, v, mask).SaveOutput(out, 0).Save(lse)
		n.Any = info
		op.attach(n, out)
	}
	return op.done(out)
}

// headsInside allocates a tensor of shape [batch, heads, length, dim] whose heads lie inside the length, so that a projection
// of the joined heads reads it as it is.
func (op *opContext) headsInside(d core.DType, s []int) *core.Tensor {
	memory := op.alloc(d, []int{s[0], s[2], s[1], s[3]})
	if op.err != nil {
		return nil
	}
	t := core.WrapTensor(op.mode, memory.Storage(), d, s, []int{s[1] * s[2] * s[3], s[3], s[1] * s[3], 1}, 0)
	memory.Release()
	return op.returns(t)
}

// attentionInfo is what a node of attention remembers.
type attentionInfo struct {
	o            AttentionOptions
	drawn        drawnHeads
	seed, offset uint64 // of the first head
}

// attentionInputs are the kernel's operands, of which some may be copies.
type attentionInputs struct {
	q, k, v, mask *core.Tensor
}

// attentionInputs brings the inputs into a layout that the kernel takes: vectors contiguous, the mask expanded.
func (op *opContext) attentionInputs(q, k, v, mask *core.Tensor) (in attentionInputs) {
	in.q, in.k, in.v = op.rows(q), op.rows(k), op.rows(v)
	if mask != nil && op.err == nil {
		shape := []int{q.Size(0), q.Size(1), q.Size(2), k.Size(2)}
		strides := make([]int, 4)
		for i := range mask.Dim() {
			if j := 4 - mask.Dim() + i; mask.Size(i) == shape[j] {
				strides[j] = mask.Strides()[i]
			}
		}
		in.mask = op.own(core.WrapTensor(op.mode, mask.Storage(), mask.DType(), shape, strides, mask.Offset()))
	}
	return in
}

// rows returns t, or a contiguous copy if the elements of its last dimension do not lie side by side.
func (op *opContext) rows(t *core.Tensor) *core.Tensor {
	if op.err != nil || t.Strides()[3] == 1 || t.Size(3) <= 1 {
		return t
	}
	return op.dense(t)
}

func (in *attentionInputs) call(c *core.Call, info *attentionInfo) *core.Call {
	c.In(in.q).In(in.k).In(in.v).In(in.mask)
	return contract.AttentionAttrs{Causal: info.o.Causal, Seed: int64(info.seed), Offset: int64(info.offset), Heads: int64(info.drawn.heads), Scale: info.o.Scale,
		Dropout: info.o.DropoutP}.AddTo(c)
}

func attentionDeriv(ctx *core.BackwardContext) {
	info := ctx.Node.Any.(*attentionInfo)
	q, k, v, mask, out, lse := ctx.Saved(0), ctx.Saved(1), ctx.Saved(2), ctx.Saved(3), ctx.Saved(4), ctx.Saved(5)
	if ctx.CreateGraph() || ctx.Needs(3) {
		attentionComposite(ctx, info, q, k, v, mask)
		return
	}
	op := begin("scaled_dot_product_attention_backward").with(q, k, v, mask, out, lse, ctx.Grad())
	if op.err != nil {
		ctx.Fail(op.err)
		return
	}
	in := op.attentionInputs(q, k, v, mask)
	g := op.rows(ctx.Grad())
	grads := op.attentionGrads(ctx, q, k, v)
	if op.err != nil {
		ctx.Fail(op.err)
		return
	}
	c := in.call(op.call(contract.AttentionBackward).Out(grads[0]).Out(grads[1]).Out(grads[2]), info).In(out).In(lse).In(g)
	c.Work = max(c.Work, 4*productWork(q.DType(), lse.Numel()*k.Size(2)*(q.Size(3)+v.Size(3))))
	op.launch(c)
	setGrads(ctx, grads[:]...)
}

// attentionGrads allocates the gradients of the inputs of d's node that are wanted.
func (op *opContext) attentionGrads(ctx *core.BackwardContext, inputs ...*core.Tensor) (grads [3]*core.Tensor) {
	var parts [3]*core.Tensor
	for i, t := range inputs {
		if ctx.Needs(i) && (t.Strides()[3] == 1 || t.Size(3) == 1) { // vectors that the kernel can write
			parts[i] = t
		}
	}
	op.gradsOfParts(ctx, parts[:], grads[:])
	for i, t := range inputs {
		switch {
		case !ctx.Needs(i) || grads[i] != nil:
		case t.Strides()[1] < t.Strides()[2]: // the input came from joined heads: its gradient goes there
			grads[i] = op.headsInside(ctx.InputDType(i), ctx.InputShape(i))
		default:
			grads[i] = op.out(ctx.InputDType(i), ctx.InputShape(i))
		}
	}
	return grads
}

// attentionComposite sets the gradients by operations that can be differentiated again; it stores the scores. With weights
// p = softmax(s), s = q k^T scale + mask, and what dropout keeps r: dp = (do v^T) r, ds = p (dp - sum(dp p)).
func attentionComposite(ctx *core.BackwardContext, info *attentionInfo, q, k, v, mask *core.Tensor) {
	for _, t := range []*core.Tensor{q, k, v, mask} {
		if t != nil && t.Err() != nil {
			return // d has failed
		}
	}
	dtype := statType(q.DType())
	batch, heads, queries, keys := q.Size(0), q.Size(1), q.Size(2), k.Size(2)
	kv := k.Size(1)
	group := heads / max(kv, 1)
	grouped := func(t *core.Tensor) *core.Tensor {
		return Reshape(castTo(t, dtype), batch, kv, t.Size(1)/max(kv, 1), t.Size(2), t.Size(3))
	}
	q5, k5, v5, g := grouped(q), grouped(k), grouped(v), grouped(ctx.Grad())
	s := Mul(MatMul(q5, Transpose(k5, -2, -1)), core.Num(info.o.Scale))
	s = Reshape(s, batch, heads, queries, keys)
	var hidden *core.Tensor
	if mask != nil && mask.DType() == core.Bool {
		hidden = LogicalNot(mask)
	} else if mask != nil {
		s = Add(s, castTo(mask, dtype))
	}
	if info.o.Causal {
		hidden = Gt(Reshape(countTo(s, keys), 1, keys), Reshape(countTo(s, queries), queries, 1))
	}
	if hidden != nil {
		s = Where(hidden, core.Num(math.Inf(-1)), s)
	}
	// Rows without a key have no softmax: their weights are 0.
	p := s
	if s.Numel() > 0 {
		alone, zero := Eq(Amax(s, []int{-1}, true), core.Num(math.Inf(-1))), core.Num(0)
		p = Where(alone, zero, Softmax(Where(alone, zero, s), -1))
	}
	r := p
	var keep *core.Tensor
	if info.o.DropoutP > 0 {
		keep = attentionKeep(p, info)
		r = Mul(p, keep)
	}
	five := []int{batch, kv, group, queries, keys}
	dp := Reshape(MatMul(g, Transpose(v5, -2, -1)), batch, heads, queries, keys)
	if keep != nil {
		dp = Mul(dp, keep)
	}
	ds := Mul(p, Sub(dp, Sum(Mul(dp, p), []int{-1}, true)))
	ds5 := Mul(Reshape(ds, five...), core.Num(info.o.Scale))
	set := func(i int, t *core.Tensor, shape []int) {
		ctx.Set(i, castTo(Reshape(sumTo(t, shape), ctx.InputShape(i)...), ctx.InputDType(i)))
	}
	if ctx.Needs(0) {
		set(0, MatMul(ds5, k5), q5.Shape())
	}
	if ctx.Needs(1) {
		set(1, MatMul(Transpose(ds5, -2, -1), q5), k5.Shape())
	}
	if ctx.Needs(2) {
		set(2, MatMul(Transpose(Reshape(r, five...), -2, -1), g), v5.Shape())
	}
	if ctx.Needs(3) {
		ctx.Set(3, castTo(sumTo(ds, ctx.InputShape(3)), ctx.InputDType(3)))
	}
}

// countTo returns 0, 1, ..., n-1 on the device of t.
func countTo(t *core.Tensor, n int) *core.Tensor {
	return Arange(core.IntNum(0), core.IntNum(int64(n)), core.IntNum(1), TensorOptions{Device: t.Device()})
}

// attentionKeep returns the factors by which dropout multiplied the weights p, of shape [batch, heads, queries, keys].
func attentionKeep(p *core.Tensor, info *attentionInfo) *core.Tensor {
	heads, keys := p.Size(1), p.Size(3)
	op := begin("scaled_dot_product_attention").with(p)
	op.grad = false
	// From the first head of the whole on, so that the heads of the elements of the batch follow each other.
	padded := op.out(p.DType(), []int{p.Size(0), info.drawn.heads, p.Size(2), (keys + 3) / 4 * 4})
	if op.err != nil {
		return op.fail()
	}
	offset := info.offset - uint64(info.drawn.first*p.Size(2)*((keys+3)/4))
	op.launch(contract.DropoutAttrs{Seed: int64(info.seed), Offset: int64(offset), P: info.o.DropoutP, Scale: keepScale(info.o.DropoutP)}.
		AddTo(op.call(contract.Dropout).Out(padded).In(nil)))
	return Narrow(Narrow(op.done(padded), 3, 0, keys), 1, info.drawn.first, heads)
}

func init() {
	qkv := func(q, k, v T, o AttentionOptions) []any { return []any{q, k, v, o} }
	register("attention",
		Row{Name: "scaled_dot_product_attention", Func: ScaledDotProductAttention,
			Doc: "softmax(query key^T scale + mask) value, without storing the scores.",
			Args: []Arg{{Name: "query", Doc: "[..., L, E]"}, {Name: "key", Doc: "[..., S, E]"}, {Name: "value", Doc: "[..., S, Ev]"},
				{Name: "attn_mask", Field: "Mask", Optional: true, Doc: "bool (true takes part) or added to the scores"},
				{Name: "dropout_p", Field: "DropoutP", Default: 0.0, Doc: "the probability of a weight being dropped"},
				{Name: "is_causal", Field: "Causal", Default: false, Doc: "hide keys after the query"},
				{Name: "scale", Field: "Scale", Default: 0.0, Doc: "factor of the scores; 0 stands for 1/sqrt(E)"},
				{Name: "enable_gqa", Field: "EnableGQA", Default: false, Doc: "allow fewer key than query heads"}},
			Samples: []Sample{
				{Name: "plain", Args: qkv(Shaped(2, 2, 3, 4), Shaped(2, 2, 5, 4), Shaped(2, 2, 5, 4), AttentionOptions{}), Loose: 4},
				{Name: "causal", Args: qkv(Shaped(1, 2, 4, 3), Shaped(1, 2, 4, 3), Shaped(1, 2, 4, 5), AttentionOptions{Causal: true}), Loose: 4},
				{Name: "3-d", Args: qkv(Shaped(2, 3, 4), Shaped(2, 5, 4), Shaped(2, 5, 2), AttentionOptions{Scale: 0.7}), Loose: 4},
				{Name: "2-d", Args: qkv(Shaped(3, 4), Shaped(5, 4), Shaped(5, 2), AttentionOptions{}), Loose: 4},
				{Name: "grouped", Args: qkv(Shaped(2, 4, 3, 2), Shaped(2, 2, 3, 2), Shaped(2, 2, 3, 3), AttentionOptions{EnableGQA: true}), Loose: 4},
				{Name: "broadcast", Args: qkv(Shaped(2, 2, 3, 4), Shaped(1, 2, 5, 4), Shaped(2, 1, 5, 4), AttentionOptions{}), Loose: 4},
				{Name: "no keys", Args: qkv(Shaped(1, 1, 3, 2), Shaped(1, 1, 0, 2), Shaped(1, 1, 0, 2), AttentionOptions{})},
			}},
	)
}
