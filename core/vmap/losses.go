package vmap

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// lossRules are those of losses: the losses of elements first, and then their sum or mean.
func lossRules(add func(r rule, names string)) {
	reduced := func(elements rule) rule {
		return func(u *use) []*core.Tensor {
			reduction, none := op.ReductionOf(u.Args)
			if reduction == "none" {
				return elements(u)
			}
			each := op.Call(u.Op, none)[0]
			if each.Err() != nil {
				return []*core.Tensor{each}
			}
			switch reduction {
			case "", "mean":
				return []*core.Tensor{op.Mean(each, nil, false)}
			case "sum":
				return []*core.Tensor{op.Sum(each, nil, false)}
			case "batchmean":
				if u.tensors[0].Dim() == 0 {
					return nil
				}
				return []*core.Tensor{op.Div(op.Sum(each, nil, false), core.Num(float64(u.tensors[0].Size(0))))}
			}
			return nil
		}
	}
	elements := func(u *use) []*core.Tensor { // some want shapes that are equal, and not only broadcast
		all, n := u.all(), u.rank()
		for i, t := range all {
			if u.given(i) {
				all[i] = widened(t, n)
			}
		}
		return u.call(all)
	}
	add(reduced(elements), `mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy binary_cross_entropy_with_logits soft_margin_loss
		poisson_nll_loss hinge_embedding_loss margin_ranking_loss`)
	add(reduced(func(u *use) []*core.Tensor {
		if u.tensors[0].Dim() < 1 {
			return nil
		}
		return elements(u)
	}), "triplet_margin_loss")
	add(reduced(func(u *use) []*core.Tensor {
		x := u.tensors[0]
		if x.Dim() < 1 || u.tensors[1].Dim() != x.Dim() {
			return nil
		}
		if v := u.tensors[2]; v.Dim() != x.Dim() && v.IsNumber() || v.Dim() != x.Dim() {
			return nil
		}
		return u.call(u.all())
	}), "gaussian_nll_loss")
	add(reduced(func(u *use) []*core.Tensor {
		switch u.tensors[0].Dim() {
		case 1:
			return u.call(u.all())
		case 2:
			return u.folded(u.Args, u.all())
		}
		return nil
	}), "cosine_embedding_loss multilabel_margin_loss")
	classes := func(u *use) []*core.Tensor {
		x := u.tensors[0]
		if x.Dim() == 0 || len(u.tensors) > 2 && u.tensors[2] != nil && u.batched[2] {
			return nil
		}
		two := &use{u.Application, u.Level, u.tensors[:2], u.whole[:2], u.batched[:2]}
		all := append(two.all(), u.tensors[2:]...)
		if x.Dim() == 1 {
			return u.call(all)
		}
		n := x.Size(0)
		for i := range 2 {
			if all[i] = op.Flatten(all[i], 0, 1); all[i].Err() != nil {
				return all[i : i+1]
			}
		}
		out := u.Call(op.Replaced(u.Args, all))[0]
		return []*core.Tensor{u.with(op.Unflatten(out, 0, u.size, n))}
	}
	add(reduced(classes), "multi_margin_loss multilabel_soft_margin_loss")
	add(func(u *use) []*core.Tensor {
		reduction, none := op.ReductionOf(u.Args)
		if reduction == "none" {
			return classes(u)
		}
		each := op.Call(u.Op, none)[0]
		if each.Err() != nil {
			return []*core.Tensor{each}
		}
		sum := op.Sum(each, nil, false)
		target, o := u.tensors[1], argument[op.CrossEntropyOptions](u, 2)
		switch {
		case reduction == "sum":
			return []*core.Tensor{sum}
		case target.DType().IsFloat():
			return []*core.Tensor{op.Div(sum, core.Num(float64(each.Numel())))}
		}
		ignored := -100
		if o.IgnoreIndex != nil {
			ignored = *o.IgnoreIndex
		}
		counted := op.Ne(target, core.IntNum(int64(ignored)))
		weights := op.To(counted, each.DType())
		if o.Weight != nil {
			at := op.Where(counted, target, core.IntNum(0))
			weights = op.Mul(weights, op.Reshape(op.IndexSelect(o.Weight, 0, op.Reshape(at, -1)), target.Shape()...))
		}
		return []*core.Tensor{op.Div(sum, op.Sum(weights, nil, false))}
	}, "cross_entropy nll_loss")
	add(composed(temporal), "ctc_loss")
}

// temporal is for ctc_loss: the parts are more samples, whose lengths repeat.
func temporal(u *use) *core.Tensor {
	x, targets, o := u.tensors[0], u.tensors[1], argument[op.CTCOptions](u, 4)
	steps, labels := argument[[]int](u, 2), argument[[]int](u, 3)
	n, padded := 1, targets.Dim() == 2
	switch {
	case x.Dim() == 3:
		n = x.Size(1)
	case x.Dim() != 2 || padded:
		return nil
	}
	if targets.IsNumber() || targets.Dim() != 1 && !padded || padded && targets.Size(0) != n || len(steps) != n || len(labels) != n {
		return nil
	}
	if sum := total(labels); !padded && x.Dim() == 3 && sum != targets.Size(0) {
		return nil
	}
	all := u.all()
	if x.Dim() == 2 {
		all[0] = op.Transpose(all[0], 0, 1) // [t, batch, classes]; the targets have a row for each part
	} else {
		all[0] = op.Flatten(op.Transpose(all[0], 0, 1), 1, 2)
		all[1] = op.Flatten(all[1], 0, 1)
	}
	for _, t := range all {
		if t.Err() != nil {
			return t
		}
	}
	none := o
	none.Reduction = "none"
	loss := op.CTCLoss(all[0], all[1], slices.Repeat(steps, u.size), slices.Repeat(labels, u.size), none)
	if loss.Err() != nil {
		return loss
	}
	whole := op.Unflatten(loss, 0, u.size, n)
	switch o.Reduction {
	case "sum":
		return u.with(op.Sum(whole, []int{1}, false))
	case "none":
		if x.Dim() == 2 {
			whole = op.Squeeze(whole, 1)
		}
		return u.with(whole)
	case "", "mean":
		shares := make([]float64, n)
		for i, s := range labels {
			shares[i] = 1 / float64(max(s, 1)*n)
		}
		return u.with(op.Sum(op.Mul(whole, op.FloatsLike(whole, shares, n)), []int{1}, false))
	}
	return nil
}

func total(list []int) int {
	sum := 0
	for _, n := range list {
		sum += n
	}
	return sum
}
