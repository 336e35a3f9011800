package op

import (
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
)

// rules holds what distribution may do to an op, by the name of its row. An op made of operations on elements needs no line here; one
// without a rule works on whole tensors.
var rules map[string]*Rule

// ruleNames lists the ops that have the same rule.
func ruleNames(r *Rule, names string) {
	for _, n := range strings.Fields(names) {
		rules[n] = r
	}
}

func init() {
	rules = map[string]*Rule{}
	ruleNames(each, `clamp celu gelu ceil floor round trunc float_power square pow heaviside ldexp isclose  logit lcm nextafter
		nan_to_num masked_fill where zeros_like ones_like full_like empty_like frexp polygamma fill_ zero_ eq_ ne_ lt_ le_ gt_ ge_ softshrink
		float_power_ lerp i0 igamma igammac xlogy polar`)
	ruleNames(linear(each), "add sub neg clone contiguous copy_ real imag complex")
	rules["to"] = &Rule{Strategies: func(u *Use) []Strategy {
		if argument[core.DType](u, 1).Differentiable() {
			return linear(each).Strategies(u)
		}
		return each.Strategies(u) // it rounds
	}}
	ruleNames(notation("...*,...*->..."), "mul")
	ruleNames(notation("...*,...->..."), "div")
	ruleNames(linear(notation("...->...P")), "view_as_real")
	ruleNames(linear(notation("...P->...")), "view_as_complex")
	rules["prelu"] = &Rule{Strategies: func(u *Use) []Strategy {
		if w := u.Tensors[1]; w.Dim() == 1 && w.Shape()[0] > 1 && u.Tensors[0].Dim() > 1 {
			return channels(1)(u)
		}
		return index(u, []string{"..."}, []string{"..."})
	}}
	rules["isin"] = notation("...,->...")
	rules["add_scaled"] = linear(each)

	// Products.
	product := func(s string) *Rule { return notation(s) }
	ruleNames(product("mk*,kn*->mn"), "mm")
	ruleNames(product("mk*,k*->m"), "mv")
	ruleNames(product("bmk*,bkn*->bmn"), "bmm")
	ruleNames(product("k*,k*->"), "dot vdot")
	ruleNames(product("m*,n*->mn"), "outer")
	rules["matmul"] = &Rule{Strategies: func(u *Use) []Strategy {
		left, right, out := "...mk*", "...kn*", "...mn"
		if u.Tensors[0].Dim() == 1 {
			left, out = "k*", strings.ReplaceAll(out, "m", "")
		}
		if u.Tensors[1].Dim() == 1 {
			right, out = "k*", strings.ReplaceAll(out, "n", "")
		}
		return index(u, []string{left, right}, []string{out})
	}}
	rules["linear"] = &Rule{Strategies: func(u *Use) []Strategy {
		weight, out := "nk*", "...n"
		if u.Tensors[1].Dim() == 1 {
			weight, out = "k*", "..."
		}
		return index(u, []string{"...k*", weight, "n+"}, []string{out})
	}}
	ruleNames(addedProduct("mn", "mk*", "kn*"), "addmm")
	ruleNames(addedProduct("bmn", "bmk*", "bkn*"), "baddbmm")
	ruleNames(addedProduct("m", "mk*", "k*"), "addmv")
	ruleNames(addedProduct("mn", "m*", "n*"), "addr")
	rules["einsum"] = &Rule{Strategies: einsumStrategies}
	ruleNames(product("...n*,...n*->..."), "inner")

	// Sums and other combinations.
	sumOver := without(1, func(u *Use) bool { return argument[ReduceOptions](u, 2).KeepDim })
	rules["sum"] = linear(combining(sumOver, 1, core.Sums))
	rules["mean"] = &Rule{Strategies: linear(sumOver).Strategies, Compose: meanOfParts}
	plain := without(1, flag(2))
	choosing := without(1, func(u *Use) bool { return argument[ChoiceOptions](u, 2).KeepDim })
	rules["amax"] = combining(choosing, 1, core.Maxima)
	rules["amin"] = combining(choosing, 1, core.Minima)
	rules["all"] = plain
	rules["any"] = plain
	rules["argmax"] = plain
	rules["argmin"] = plain
	rules["max"] = plain
	rules["min"] = plain
	rules["median"] = choosing
	rules["nanmedian"] = choosing
	rules["mode"] = plain
	rules["nanmean"] = plain
	rules["nansum"] = plain
	rules["count_nonzero"] = combining(without(1, func(*Use) bool { return false }), 1, core.Sums)
	rules["logsumexp"] = &Rule{Strategies: plain.Strategies, Compose: logSumExpOfParts}
	rules["prod"] = sumOver
	rules["kthvalue"] = without(2, flag(3))
	moments := without(1, flag(3))
	rules["var"] = &Rule{Strategies: moments.Strategies, Compose: varOfParts("var")}
	rules["std"] = &Rule{Strategies: moments.Strategies, Compose: varOfParts("std")}
	rules["var_mean"] = &Rule{Strategies: moments.Strategies, Compose: varOfParts("var_mean")}
	rules["std_mean"] = &Rule{Strategies: moments.Strategies, Compose: varOfParts("std_mean")}
	normOver := without(2, func(u *Use) bool { return argument[ReduceOptions](u, 3).KeepDim })
	ruleNames(&Rule{Strategies: normOver.Strategies, Compose: normOfParts}, "norm vector_norm linalg_vector_norm")

	// Ops along a dimension.
	rules["softmax"] = &Rule{Strategies: worksAlong(1).Strategies, Compose: softmaxOfParts}
	rules["log_softmax"] = &Rule{Strategies: worksAlong(1).Strategies, Compose: softmaxOfParts}
	ruleNames(worksAlong(1), "softmin cumprod logcumsumexp cummax cummin sort argsort glu")
	rules["cumsum"] = linear(worksAlong(1))
	ruleNames(linear(worksAlong(1)), "flip")
	rules["roll"] = linear(worksAlong(2))
	rules["topk"] = worksAlong(2)
	ruleNames(worksAlong(2), "diff normalize")
	ruleNames(linear(last(2)), "tril triu")
	ruleNames(linear(last(3)), "pixel_shuffle pixel_unshuffle")
	ruleNames(last(2), `linalg_cholesky linalg_inv linalg_qr linalg_svd linalg_eigh linalg_pinv matrix_power matrix_exp linalg_cholesky_ex
		linalg_matrix_exp linalg_lu_factor_ex linalg_eig geqrf linalg_ldl_factor_ex`)
	ruleNames(dims(func(_ *Use, shape []int) []int {
		to := same(len(shape))
		for d := max(len(shape)-2, 0); d < len(shape); d++ {
			to[d] = -1
		}
		return to
	}), "linalg_det linalg_slogdet linalg_eigvals linalg_eigvalsh linalg_svdvals linalg_matrix_norm")
	ruleNames(linear(worksAlong(2)), "fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft")
	ruleNames(linear(dims(outsideFourier)), "fft_fftn fft_ifftn fft_rfftn fft_irfftn fft_hfftn fft_ihfftn")
	ruleNames(linear(worksAlong(1)), "fft_fftshift fft_ifftshift")
	for name, signals := range map[string]int{"stft": 2, "istft": 3} {
		rules[name] = &Rule{Strategies: func(u *Use) []Strategy {
			if u.Tensors[0].Dim() != signals {
				return nil
			}
			return index(u, []string{"n", ""}, []string{"n"})
		}}
	}
	rules["cat"] = &Rule{Strategies: joined(false, 1)}
	rules["stack"] = &Rule{Strategies: joined(true, 1)}

	// Normalisation.
	rules["layer_norm"] = &Rule{Strategies: normalized}
	rules["rms_norm"] = &Rule{Strategies: normalized}
	rules["group_norm"] = notation("n,,->n")
	rules["instance_norm"] = &Rule{Strategies: func(u *Use) []Strategy {
		if argument[bool](u, 5) && u.Tensors[1] != nil {
			return nil // the running statistics, which change in place, are means over all samples
		}
		return channels(1)(u)
	}}
	rules["batch_norm"] = &Rule{Strategies: func(u *Use) []Strategy {
		if argument[bool](u, 5) {
			return index(u, []string{"Nc", "c"}, []string{"Nc"})
		}
		return index(u, []string{"nc", "c"}, []string{"nc"})
	}, Compose: batchNormOfParts}
	rules["local_response_norm"] = notation("n->n")

	// Convolutions and pools, on stacks.
	ruleNames(&Rule{Strategies: convolved}, "conv1d conv2d conv3d")
	ruleNames(&Rule{Strategies: func(u *Use) []Strategy {
		if u.Tensors[0].Dim() != u.Tensors[1].Dim() {
			return nil
		}
		return index(u, []string{"n*", "", "+"}, []string{"n"})
	}}, "conv_transpose1d conv_transpose2d conv_transpose3d")
	for _, n := range []string{"1", "2", "3"} {
		stack := &Rule{Strategies: func(u *Use) []Strategy {
			if u.Tensors[0].Dim() != int(n[0]-'0')+2 {
				return index(u, []string{"c"}, []string{"c"})
			}
			return index(u, []string{"nc"}, []string{"nc"})
		}}
		for _, family := range []string{"avg_pool", "adaptive_avg_pool", "adaptive_max_pool", "max_pool", "lp_pool", "max_unpool"} {
			rules[family+n+"d"] = stack
			rules[family+n+"d_with_indices"] = stack
		}
	}
	rules["interpolate"] = notation("nc->nc")
	rules["im2col"] = stacked(4)
	rules["col2im"] = stacked(3)
	rules["grid_sample"] = notation("n,n->n")
	rules["pad"] = &Rule{Strategies: padded}

	// Views.
	for name, r := range viewRules() {
		rules[name] = r
	}

	// Indexing.
	rules["embedding"] = &Rule{Strategies: embedded}
	rules["gather"] = &Rule{Strategies: gathered}
	rules["index_select"] = &Rule{Strategies: selected}
	rules["one_hot"] = &Rule{Strategies: func(u *Use) []Strategy {
		if argument[int](u, 1) <= 0 {
			return nil // the indices say how many classes there are
		}
		return each.Strategies(u)
	}}

	rules["scaled_dot_product_attention"] = &Rule{Strategies: attended, Placed: attendedPart}

	for name, r := range moreRules() {
		rules[name] = r
	}

	// Losses.
	ruleNames(loss(each), `mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy binary_cross_entropy_with_logits
		soft_margin_loss poisson_nll_loss hinge_embedding_loss margin_ranking_loss`)
	classes := &Rule{Strategies: func(u *Use) []Strategy {
		if u.Tensors[0].Dim() == 1 {
			return nil
		}
		return append(index(u, []string{"n", "n", ""}, []string{"n"}), likelihoods(u)...)
	}, Compose: classLossOfParts}
	ruleNames(classes, "cross_entropy nll_loss")
}

// stacked is the rule of an op on stacks, of n dimensions, whose first dimension counts what it works on one by one.
func stacked(n int) *Rule {
	return dims(func(_ *Use, shape []int) []int {
		to := make([]int, len(shape))
		for d := range to {
			to[d] = -1
		}
		if len(shape) == n {
			to[0] = 0
		}
		return to
	})
}

// embedded is for embeddings whose indices, columns or rows are divided. A rank that has some of the rows gives zeros for the other indices.
func embedded(u *Use) []Strategy {
	list := index(u, []string{"...", "Vd"}, []string{"...d"})
	o := argument[EmbeddingOptions](u, 2)
	if o.ScaleGradByFreq { // a rank counts all indices
		list = slices.DeleteFunc(list, func(s Strategy) bool { return s.In[0].Kind == core.Sharded })
	}
	if n := u.Tensors[1].Size(0); n > 1 && o.PaddingIdx == nil && !o.ScaleGradByFreq {
		list = append(list, Strategy{
			In: []core.Placement{core.Replicate(), core.Shard(0)}, Out: []core.Placement{core.Partial(core.Sums)}, Size: n,
			Local: func(args []any, start, length int) []*core.Tensor {
				indices, weight := args[0].(*core.Tensor), args[1].(*core.Tensor)
				// Zeros for rows of other ranks, taken from as many as the whole has: an index that is none is an error on each rank.
				zeros := Embedding(indices, Expand(ZerosWith([]int{1, 1}, TensorOptions{DType: new(weight.DType()), Device: weight.Device()}), n, 1), EmbeddingOptions{})
				if length == 0 {
					return []*core.Tensor{Add(nothing(weight, append(slices.Clone(indices.Shape()), weight.Size(1))), zeros)}
				}
				own, local := among(indices, start, length, inDType(Squeeze(zeros, -1), indices.DType()))
				return []*core.Tensor{MaskedFillInPlace(Embedding(local, weight, EmbeddingOptions{}), Unsqueeze(LogicalNot(own), -1), core.Num(0))}
			},
		})
	}
	return list
}

// outsideFourier returns where the dimensions of a transform over several go: those that are transformed are kept whole.
func outsideFourier(u *Use, shape []int) []int {
	s, over := argument[[]int](u, 1), argument[[]int](u, 2)
	to := same(len(shape))
	for d := range to {
		if over == nil && (s == nil || d >= len(shape)-len(s)) {
			to[d] = -1
		}
	}
	for _, d := range over {
		if d = dimOf(d, len(shape)); d >= 0 && d < len(to) {
			to[d] = -1
		}
	}
	return to
}

// nothing returns zeros of a shape, which follow from x, a part without elements: this rank takes part in the derivatives as the others do.
func nothing(x *core.Tensor, shape []int) *core.Tensor { return Expand(Sum(x, nil, false), shape...) }

// among returns which indices lie in a range of rows, and the indices counted from its start; those in other ranges are as zeros says.
func among(indices *core.Tensor, start, length int, zeros *core.Tensor) (own, local *core.Tensor) {
	own = LogicalAnd(Ge(indices, core.IntNum(int64(start))), Lt(indices, core.IntNum(int64(start+length))))
	return own, Where(own, Sub(indices, core.IntNum(int64(start))), zeros)
}

// channels returns the strategies of an op whose first tensor has its channels in dimension 1, as its other tensors have in dimension 0.
func channels(int) func(u *Use) []Strategy {
	return func(u *Use) []Strategy { return index(u, []string{"nc", "c"}, []string{"nc"}) }
}

// addedProduct returns the rule of a product to which the first tensor is added, after broadcasting.
func addedProduct(result, left, right string) *Rule {
	return &Rule{Strategies: func(u *Use) []Strategy {
		input := result
		if n := u.Tensors[0].Dim(); n < len(result) {
			input = result[len(result)-n:]
		}
		return index(u, []string{input + "+", left, right}, []string{result})
	}}
}

func einsumStrategies(u *Use) []Strategy {
	equation := strings.ReplaceAll(argument[string](u, 0), " ", "")
	left, right, ok := strings.Cut(equation, "->")
	if !ok || strings.ContainsAny(equation, ".") || equation != strings.ToLower(equation) {
		return nil
	}
	ins := strings.Split(left, ",")
	for i, s := range ins {
		if ins[i] = s + "*"; twice(s) || twice(right) {
			return nil
		}
	}
	return index(u, ins, []string{right})
}

// twice reports whether a letter occurs twice.
func twice(s string) bool {
	for i := range s {
		if strings.IndexByte(s[i+1:], s[i]) >= 0 {
			return true
		}
	}
	return false
}

// joined returns the strategies of an op that joins tensors along the dimension that argument i says, a new one or one that is there.
func joined(fresh bool, i int) func(u *Use) []Strategy {
	return func(u *Use) (list []Strategy) {
		shape := u.Tensors[0].Shape()
		n := len(shape)
		if fresh {
			n++
		}
		at := dimOf(argument[int](u, i), n)
		sum := Strategy{In: u.replicated(), Out: []core.Placement{core.Partial(core.Sums)}}
		for j := range sum.In {
			sum.In[j] = core.Partial(core.Sums)
			if u.Tensors[j].Dim() != len(shape) {
				return nil
			}
		}
		list = append(list, sum, ofMeans(sum))
		for d, size := range shape {
			if !fresh && d == at || size <= 1 {
				continue
			}
			s := Strategy{In: u.replicated(), Out: []core.Placement{core.Shard(d)}, Size: size}
			if fresh && d >= at {
				s.Out[0].Dim++
			}
			for j := range s.In {
				s.In[j] = core.Shard(d)
			}
			list = append(list, s)
		}
		return list
	}
}

// normalized is for ops that normalise the dimensions of the shape given as argument 1.
func normalized(u *Use) (list []Strategy) {
	for d, n := range u.Tensors[0].Shape()[:max(u.Tensors[0].Dim()-len(argument[[]int](u, 1)), 0)] {
		if n > 1 {
			s := Strategy{In: u.replicated(), Out: []core.Placement{core.Shard(d)}, Size: n}
			s.In[0] = core.Shard(d)
			list = append(list, s)
		}
	}
	return list
}

func convolved(u *Use) []Strategy {
	o := argument[ConvOptions](u, 3)
	switch x, w := u.Tensors[0], u.Tensors[1]; {
	case x.Dim() != w.Dim():
		return nil
	case o.Groups > 1:
		return index(u, []string{"n*", "", "+"}, []string{"n"})
	}
	return index(u, []string{"nc*", "oc*", "o+"}, []string{"no"})
}

func padded(u *Use) []Strategy {
	whole := (len(argument[[]int](u, 1)) + 1) / 2
	return last(whole).Strategies(u)
}

func gathered(u *Use) (list []Strategy) {
	x, index := u.Tensors[0], u.Tensors[1]
	at := dimOf(argument[int](u, 1), x.Dim())
	for d, n := range x.Shape() {
		if d != at && n > 1 && index.Dim() == x.Dim() && index.Shape()[d] == n {
			list = append(list, Strategy{In: []core.Placement{core.Shard(d), core.Shard(d)}, Out: []core.Placement{core.Shard(d)}, Size: n})
		}
	}
	return list
}

func selected(u *Use) (list []Strategy) {
	x := u.Tensors[0]
	at := dimOf(argument[int](u, 1), x.Dim())
	for d, n := range x.Shape() {
		if d != at && n > 1 {
			list = append(list, Strategy{In: []core.Placement{core.Shard(d), core.Replicate()}, Out: []core.Placement{core.Shard(d)}, Size: n})
		}
	}
	if n := u.Tensors[1].Numel(); u.Tensors[1].Dim() == 1 && n > 1 {
		list = append(list, Strategy{In: []core.Placement{core.Replicate(), core.Shard(0)}, Out: []core.Placement{core.Shard(at)}, Size: n})
	}
	return list
}

// attended is for attention: stacks and heads are independent, and the rows of the queries are where nothing counts them. Dropout counts
// stacks, which follow each other, and heads.
func attended(u *Use) (list []Strategy) {
	o := argument[AttentionOptions](u, 3)
	q, k, v := u.Tensors[0], u.Tensors[1], u.Tensors[2]
	if q.Dim() < 3 || k.Dim() != q.Dim() {
		return nil
	}
	drops := o.DropoutP > 0
	if outer := func(t *core.Tensor) []int { return t.Shape()[:t.Dim()-3] }; drops && !(slices.Equal(outer(q), outer(k)) && slices.Equal(outer(q), outer(v))) {
		return nil
	}
	rows := "L"
	if !o.Causal && !drops {
		rows = "l"
	}
	const heads = "h"
	own, mask := heads, "..."
	at := q.Dim() - 3
	grouped := o.EnableGQA && q.Shape()[at] != k.Shape()[at] && k.Shape()[at] > 1
	if grouped {
		own = "H" // not divided by themselves
	}
	if len(u.Tensors) > 3 && u.Tensors[3] != nil && u.Tensors[3].Dim() > 2 {
		mask += heads
	}
	for _, s := range index(u, []string{"..." + heads + rows + "E", "..." + own + "SE", "..." + own + "SV", mask + rows + "S"}, []string{"..." + heads + rows + "V"}) {
		if grouped && s.In[0] == core.Shard(at) {
			if k.Shape()[at]%u.Ranks != 0 {
				continue // the heads that share keys must lie together
			}
			s.In[1], s.In[2] = s.In[0], s.In[0]
		}
		if at := s.In[0]; drops && (at.Kind != core.Sharded || at.Dim != 0 && at.Dim != q.Dim()-3) {
			continue
		}
		list = append(list, s)
	}
	return list
}

// attendedPart is attention with dropout of a part of the heads or stacks.
func attendedPart(args []any, shape, start []int) []*core.Tensor {
	o, q := args[3].(AttentionOptions), args[0].(*core.Tensor)
	if o.DropoutP == 0 || len(shape) < 3 || slices.Equal(q.Shape(), shape) {
		return nil
	}
	lead := len(shape) - 3
	part := &drawnHeads{batch: core.Numel(shape[:lead]), heads: shape[lead], first: start[lead]}
	if lead > 0 {
		part.stack = start[0] * core.Numel(shape[1:lead])
	}
	return []*core.Tensor{attentionOf(q, args[1].(*core.Tensor), args[2].(*core.Tensor), o, part)}
}
