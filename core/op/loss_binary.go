package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

var (
	// As in PyTorch, logarithms stay above -100, and the gradient's divisor above 1e-12.
	bceOp = elementwise("binary_cross_entropy", "x, t", "-(t*max(log(x), -100) + (1 - t)*max(log1p(-x), -100))",
		"grad*(x - t)/max((1 - x)*x, 1e-12)", "grad*(max(log1p(-x), -100) - max(log(x), -100))")
	bceLogitsOp = elementwise("binary_cross_entropy_with_logits", "x, t", "max(x, 0) - x*t + log1p(exp(-abs(x)))",
		"grad*(sigmoid(x) - t)", "-grad*x")
	// With u = log(1 + exp(-x)): (1 - t)*x + (1 + (w - 1)*t)*u.
	bceWeightedOp = elementwise("bce_with_logits_pos_weight", "x, t, w",
		"u = max(-x, 0) + log1p(exp(-abs(x))); (1 - t)*x + (1 + (w - 1)*t)*u",
		"grad*(1 - t - (1 + (w - 1)*t)*sigmoid(-x))",
		"u = max(-x, 0) + log1p(exp(-abs(x))); grad*((w - 1)*u - x)",
		"u = max(-x, 0) + log1p(exp(-abs(x))); grad*t*u")

	klDivOp    = elementwise("kl_div", "x, t", "where(t == 0, 0, t*(log(t) - x))", "-grad*t", "where(t == 0, 0, grad*(log(t) + 1 - x))")
	klDivLogOp = elementwise("kl_div_log_target", "x, t", "exp(t)*(t - x)", "-grad*exp(t)", "grad*exp(t)*(t - x + 1)")

	softMarginOp = elementwise("soft_margin_loss", "x, t", "z = -t*x; max(z, 0) + log1p(exp(-abs(z)))",
		"-grad*t*sigmoid(-t*x)", "-grad*x*sigmoid(-t*x)")
	// t*log(sigmoid(x)) + (1 - t)*log(sigmoid(-x)), negated, is that of binary cross entropy with logits.

	hingeEmbeddingOp = elementwise("hinge_embedding_loss", "x, t; margin",
		"where(t != 1, max(margin - x, 0), 0) + where(t != -1, x, 0)",
		"grad*(where(t != -1, 1, 0) - where(t != 1, where(margin - x > 0, 1, 0), 0))", "")
	marginRankingOp = elementwise("margin_ranking_loss", "x, y, t; margin", "max(t*(y - x) + margin, 0)",
		"where(t*(y - x) + margin > 0, -grad*t, 0)", "where(t*(y - x) + margin > 0, grad*t, 0)",
		"where(t*(y - x) + margin > 0, grad*(y - x), 0)")
)

// BCEOptions are the optional arguments of [BinaryCrossEntropy] and [BinaryCrossEntropyWithLogits].
type BCEOptions struct {
	// Weight scales the loss of each element; it broadcasts.
	Weight *core.Tensor
	// PosWeight scales the share of positive targets; it broadcasts. With logits only.
	PosWeight *core.Tensor
	// Reduction is "mean" (the default), "sum" or "none".
	Reduction string
}

// BinaryCrossEntropy returns -(t log x + (1-t) log(1-x)) for probabilities x and targets t of the same shape. Logarithms
// are kept above -100. An element of x or t outside [0, 1] is an error of execution.
func BinaryCrossEntropy(x, target *core.Tensor, o BCEOptions) *core.Tensor {
	if parts := distributed(x, target, o.Weight, o.PosWeight); parts != nil {
		return handOn(parts, "binary_cross_entropy", x, target, o)
	}
	op := begin("binary_cross_entropy", &x, &target, optional(&o.Weight), optional(&o.PosWeight))
	op.sameShape(x, target)
	if o.PosWeight != nil {
		op.failf(core.TypeError, "pos_weight goes with logits")
	}
	return lossReduction(&op, func() *core.Tensor { return weighted(probable(x, target, bceOp.apply(nil, x, target)), o.Weight) }, o.Reduction)
}

// probable returns loss, which fails unless all elements of x and of target are in [0, 1].
func probable(x, target, loss *core.Tensor) *core.Tensor {
	op := begin("binary_cross_entropy").with(x, target, loss)
	for i, t := range []*core.Tensor{x, target} {
		if dense := op.dense(t); op.err == nil && t.DType().IsFloat() {
			op.launch(op.call(contract.CheckProbabilities).Out(loss).In(dense).Int(int64([...]contract.LossOperand{contract.LossInput, contract.LossTarget}[i])))
		}
	}
	return op.done(loss)
}

// BinaryCrossEntropyWithLogits returns [BinaryCrossEntropy] of sigmoid(x), computed so that no x overflows.
func BinaryCrossEntropyWithLogits(x, target *core.Tensor, o BCEOptions) *core.Tensor {
	if parts := distributed(x, target, o.Weight, o.PosWeight); parts != nil {
		return handOn(parts, "binary_cross_entropy_with_logits", x, target, o)
	}
	op := begin("binary_cross_entropy_with_logits", &x, &target, optional(&o.Weight), optional(&o.PosWeight))
	op.sameShape(x, target)
	return lossReduction(&op, func() *core.Tensor {
		if o.PosWeight != nil {
			return weighted(bceWeightedOp.apply(nil, x, target, o.PosWeight), o.Weight)
		}
		return weighted(bceLogitsOp.apply(nil, x, target), o.Weight)
	}, o.Reduction)
}

// sameShape fails unless x is a floating-point tensor and target has its shape.
func (op *opContext) sameShape(x, target *core.Tensor) {
	op.floatTensor(x)
	if op.err == nil && (target.IsNumber() || !slices.Equal(x.Shape(), target.Shape())) {
		op.failf(core.ShapeError, "target and input must have one shape, got %s", shapes(target, x))
	}
}

// weighted multiplies e by a weight, unless that is nil, and lets go of e.
func weighted(e, weight *core.Tensor) *core.Tensor {
	if weight == nil {
		return e
	}
	return compose("mul", func() *core.Tensor {
		r := Mul(e, weight)
		e.Release()
		return r
	})
}

// KLDiv returns target*(log(target) - x) for log-probabilities x, with logTarget for logarithms of the target: the
// Kullback-Leibler divergence of the target from the input. The reduction "batchmean" divides the sum by x's first size,
// the others are those of [MSELoss].
func KLDiv(x, target *core.Tensor, reduction string, logTarget bool) *core.Tensor {
	if parts := distributed(x, target); parts != nil {
		return handOn(parts, "kl_div", x, target, reduction, logTarget)
	}
	e := klDivOp
	if logTarget {
		e = klDivLogOp
	}
	op := begin("kl_div", &x, &target)
	op.floatTensor(x)
	if reduction != "batchmean" {
		return lossReduction(&op, func() *core.Tensor { return e.apply(nil, x, target) }, reduction)
	}
	if op.err == nil && x.Dim() == 0 {
		op.failf(core.ShapeError, "batchmean wants a batch dimension, got a 0-d input")
	}
	return op.compose(func() *core.Tensor {
		return Div(Sum(e.apply(nil, x, target), nil, false), core.Num(float64(x.Size(0))))
	})
}

// SoftMarginLoss returns log(1 + exp(-target*x)) for targets 1 and -1, reduced as in [MSELoss].
func SoftMarginLoss(x, target *core.Tensor, reduction string) *core.Tensor {
	if parts := distributed(x, target); parts != nil {
		return handOn(parts, "soft_margin_loss", x, target, reduction)
	}
	return pairLoss(softMarginOp, nil, x, target, reduction)
}

// MultiLabelSoftMarginLoss returns [BinaryCrossEntropyWithLogits] for each element, times weight, averaged over the last
// dimension, then reduced as in [MSELoss].
func MultiLabelSoftMarginLoss(x, target *core.Tensor, weight *core.Tensor, reduction string) *core.Tensor {
	if parts := distributed(x, target, weight); parts != nil {
		return handOn(parts, "multilabel_soft_margin_loss", x, target, weight, reduction)
	}
	op := begin("multilabel_soft_margin_loss", &x, &target, optional(&weight))
	op.sameShape(x, target)
	if op.err == nil && x.Dim() == 0 {
		op.failf(core.ShapeError, "got an input of shape %v, want [..., C]", x.Shape())
	}
	return lossReduction(&op, func() *core.Tensor {
		return compose("multilabel_soft_margin_loss", func() *core.Tensor {
			return Mean(weighted(bceLogitsOp.apply(nil, x, target), weight), []int{-1}, false)
		})
	}, reduction)
}

// HingeEmbeddingLoss returns x where the target is 1 and max(0, margin - x) where it is -1, reduced as in [MSELoss]. Of an input of
// integers, for which the margin must be a whole number, the elements and their sum are integers, which have no mean.
func HingeEmbeddingLoss(x, target *core.Tensor, margin float64, reduction string) *core.Tensor {
	if parts := distributed(x, target); parts != nil {
		return handOn(parts, "hinge_embedding_loss", x, target, margin, reduction)
	}
	op := begin("hinge_embedding_loss", &x, &target)
	op.tensors(x, target)
	if op.err != nil || x.DType().IsFloat() {
		return op.pairLoss(hingeEmbeddingOp, []float64{margin}, x, target, reduction)
	}
	op.countable("the input", x)
	if margin != math.Trunc(margin) {
		op.failf(core.DTypeError, "got margin = %v for an input of %v, want a whole number, or a floating-point input", margin, x.DType())
	}
	return lossReduction(&op, func() *core.Tensor {
		return compose(op.name, func() *core.Tensor {
			nothing, one := core.IntNum(0), core.IntNum(1)
			far := Maximum(Sub(core.IntNum(int64(margin)), widened(x)), nothing)
			e := Add(Where(Ne(target, one), far, nothing), Where(Ne(target, core.IntNum(-1)), x, nothing))
			return castTo(e, x.DType())
		})
	}, reduction)
}

// MarginRankingLoss returns max(0, -target*(x1 - x2) + margin) for targets 1 (x1 should rank higher) and -1, reduced as in
// [MSELoss].
func MarginRankingLoss(x1, x2, target *core.Tensor, margin float64, reduction string) *core.Tensor {
	if parts := distributed(x1, x2, target); parts != nil {
		return handOn(parts, "margin_ranking_loss", x1, x2, target, margin, reduction)
	}
	op := begin("margin_ranking_loss", &x1, &x2, &target)
	op.tensors(x1, x2, target)
	if op.err == nil && !core.ResultType(x1, x2, target).IsFloat() {
		op.countable("the first input", x1)
		op.countable("the second input", x2)
		return lossReduction(&op, func() *core.Tensor {
			return compose(op.name, func() *core.Tensor {
				d := Sub(widened(x2), widened(x1))
				return Maximum(Add(Mul(widened(target), d), core.Num(margin)), core.Num(0))
			})
		}, reduction)
	}
	return lossReduction(&op, func() *core.Tensor { return marginRankingOp.apply([]float64{margin}, x1, x2, target) }, reduction)
}
