package op

import "github.com/plait-ml/plait/core"

// cosineEps keeps the cosine embedding loss away from a division by 0.
const cosineEps = 1e-12

// CosineEmbeddingLoss returns 1 - cos(x1, x2) for targets 1 and max(0, cos(x1, x2) - margin) for targets -1, reduced as in
// [MSELoss]. x1 and x2 are [N, D] with targets [N], or [D] with one target.
func CosineEmbeddingLoss(x1, x2, target *core.Tensor, margin float64, reduction string) *core.Tensor {
	if parts := distributed(x1, x2, target); parts != nil {
		return handOn(parts, "cosine_embedding_loss", x1, x2, target, margin, reduction)
	}
	op := begin("cosine_embedding_loss", &x1, &x2, &target)
	op.tensors(x1, x2, target)
	switch {
	case op.err != nil:
	case x1.Dim() < 1 || x1.Dim() > 2 || x2.Dim() != x1.Dim() || target.Dim() != x1.Dim()-1:
		op.failf(core.ShapeError, "want inputs [N, D] and targets [N], or [D] and one target, got %s", shapes(x1, x2, target))
	}
	return lossReduction(&op, func() *core.Tensor {
		return compose("cosine_embedding_loss", func() *core.Tensor {
			x1, x2 := widened(x1), widened(x2)
			last := []int{-1}
			square := func(t *core.Tensor) *core.Tensor { return Add(Sum(Mul(t, t), last, false), core.Num(cosineEps)) }
			cos := Div(Sum(Mul(x1, x2), last, false), Sqrt(Mul(square(x1), square(x2))))
			return cosineEmbeddingOp.apply([]float64{margin}, cos, target)
		})
	}, reduction)
}

var cosineEmbeddingOp = elementwise("cosine_embedding", "x, t; margin",
	"where(t == 1, 1 - x, 0) + where(t == -1, max(x - margin, 0), 0)",
	"grad*(where(t == -1, where(x - margin >= 0, 1, 0), 0) - where(t == 1, 1, 0))", "")

// TripletMarginOptions are the optional arguments of [TripletMarginLoss].
type TripletMarginOptions struct {
	// Margin is how much closer the positive should be; nil stands for 1.
	Margin *float64
	// P is the order of the norm; nil stands for 2.
	P *float64
	// Eps is added to the differences; nil stands for 1e-6.
	Eps *float64
	// Swap takes the negative's distance from the positive where that is smaller than from the anchor.
	Swap bool
	// Reduction is "mean" (the default), "sum" or "none".
	Reduction string
}

// valueOr returns *p, or v if p is nil.
func valueOr(p *float64, v float64) float64 {
	if p == nil {
		return v
	}
	return *p
}

// TripletMarginLoss returns max(0, margin + d(anchor, positive) - d(anchor, negative)), where d is [PairwiseDistance] along
// the last dimension.
//
// Balntas, Riba, Ponsa, Mikolajczyk: Learning local feature descriptors with triplets and shallow convolutional neural
// networks, 2016.
func TripletMarginLoss(anchor, positive, negative *core.Tensor, o TripletMarginOptions) *core.Tensor {
	if parts := distributed(anchor, positive, negative); parts != nil {
		return handOn(parts, "triplet_margin_loss", anchor, positive, negative, o)
	}
	op := begin("triplet_margin_loss", &anchor, &positive, &negative)
	op.tensors(anchor, positive, negative)
	if op.err == nil && (anchor.Dim() != positive.Dim() || anchor.Dim() != negative.Dim()) {
		op.failf(core.ShapeError, "the three inputs must have as many dimensions, got %s", shapes(anchor, positive, negative))
	}
	if margin := valueOr(o.Margin, 1); !(margin > 0) {
		op.failf(core.ValueError, "the margin must be positive, got %v", margin)
	}
	p, eps := valueOr(o.P, 2), valueOr(o.Eps, 1e-6)
	return lossReduction(&op, func() *core.Tensor {
		return compose("triplet_margin_loss", func() *core.Tensor {
			near, far := PairwiseDistance(anchor, positive, p, eps, false), PairwiseDistance(anchor, negative, p, eps, false)
			if o.Swap {
				far = Minimum(far, PairwiseDistance(positive, negative, p, eps, false))
			}
			return hingeOp.apply([]float64{valueOr(o.Margin, 1)}, near, far)
		})
	}, o.Reduction)
}

var hingeOp = elementwise("hinge", "x, y; margin", "max(x - y + margin, 0)",
	"where(x - y + margin >= 0, grad, 0)", "where(x - y + margin >= 0, -grad, 0)")

// MultiMarginOptions are the optional arguments of [MultiMarginLoss].
type MultiMarginOptions struct {
	// P is the power, 1 or 2; 0 stands for 1.
	P int
	// Margin is the distance wanted between the target's score and the others; nil stands for 1.
	Margin *float64
	// Weight [C] scales the loss of each class.
	Weight *core.Tensor
	// Reduction is "mean" (the default), "sum" or "none".
	Reduction string
}

// MultiMarginLoss returns the sum over the classes j other than the target y of max(0, margin - x[y] + x[j])^p, times y's
// weight, over the number of classes, for scores [N, C] and int64 targets [N], or [C] and one target.
func MultiMarginLoss(x, target *core.Tensor, o MultiMarginOptions) *core.Tensor {
	if parts := distributed(x, target, o.Weight); parts != nil {
		return handOn(parts, "multi_margin_loss", x, target, o)
	}
	op := begin("multi_margin_loss", &x, &target, optional(&o.Weight))
	if op.err == nil && x != nil && target != nil && x.Dim() == 1 && target.Dim() == 1 && target.Numel() == 1 {
		return op.compose(func() *core.Tensor { return MultiMarginLoss(x, Reshape(target), o) })
	}
	info := op.classLoss(x, target, CrossEntropyOptions{Weight: o.Weight, Reduction: o.Reduction})
	if o.P == 0 {
		o.P = 1
	}
	if op.err == nil && o.P != 1 && o.P != 2 {
		op.failf(core.ValueError, "the power must be 1 or 2, got %d", o.P)
	}
	if op.err == nil && x.Dim() > 2 {
		op.failf(core.ShapeError, "got scores of shape %v, want [N, C] or [C]", x.Shape())
	}
	return lossReduction(&op, func() *core.Tensor {
		return compose("multi_margin_loss", func() *core.Tensor {
			scores, y := Reshape(x, info.batch, info.classes), Reshape(target, info.batch, 1)
			margin := valueOr(o.Margin, 1)
			over := hingeOp.apply([]float64{margin}, scores, Gather(scores, 1, y))
			if o.P == 2 {
				over = Square(over)
			}
			if o.Weight != nil {
				over = Mul(over, Reshape(IndexSelect(o.Weight, 0, Reshape(target, info.batch)), info.batch, 1))
			}
			// The target's own term, margin^p, is none of the sum's.
			others := castTo(Ne(Reshape(countTo(x, info.classes), 1, info.classes), y), x.DType())
			sum := Sum(Mul(over, others), []int{1}, false)
			return Reshape(Mul(sum, core.Num(1/float64(max(info.classes, 1)))), info.shape...)
		})
	}, o.Reduction)
}
