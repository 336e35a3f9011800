package nn

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// The losses are modules over the functions of package op, for programs that keep their loss as a value. Those that hold
// weights are moved with [ToDevice].

// A Loss compares a prediction with a target.
type Loss struct {
	Base
	// Weight scales classes or elements, PosWeight the positive targets of binary cross entropy with logits; nil means 1.
	Weight    *core.Tensor `plait:"buffer"`
	PosWeight *core.Tensor `plait:"buffer"`

	name string
	fn   func(l *Loss, x, target *core.Tensor) *core.Tensor
}

// Forward returns the loss of x against target.
func (l *Loss) Forward(x, target *core.Tensor) *core.Tensor { return l.fn(l, x, target) }

func (l *Loss) describe() (name, arguments string) { return l.name, "" }

func loss(name string, fn func(x, target *core.Tensor) *core.Tensor) *Loss {
	return &Loss{name: name, fn: func(_ *Loss, x, target *core.Tensor) *core.Tensor { return fn(x, target) }}
}

// NewCrossEntropyLoss returns [op.CrossEntropy].
func NewCrossEntropyLoss(o op.CrossEntropyOptions) *Loss {
	return &Loss{Weight: o.Weight, name: "CrossEntropyLoss", fn: func(l *Loss, x, target *core.Tensor) *core.Tensor {
		o.Weight = l.Weight
		return op.CrossEntropy(x, target, o)
	}}
}

// NewNLLLoss returns [op.NLLLoss].
func NewNLLLoss(o op.CrossEntropyOptions) *Loss {
	return &Loss{Weight: o.Weight, name: "NLLLoss", fn: func(l *Loss, x, target *core.Tensor) *core.Tensor {
		o.Weight = l.Weight
		return op.NLLLoss(x, target, o)
	}}
}

// NewBCELoss returns [op.BinaryCrossEntropy].
func NewBCELoss(o op.BCEOptions) *Loss {
	return &Loss{Weight: o.Weight, name: "BCELoss", fn: func(l *Loss, x, target *core.Tensor) *core.Tensor {
		o.Weight = l.Weight
		return op.BinaryCrossEntropy(x, target, o)
	}}
}

// NewBCEWithLogitsLoss returns [op.BinaryCrossEntropyWithLogits].
func NewBCEWithLogitsLoss(o op.BCEOptions) *Loss {
	return &Loss{Weight: o.Weight, PosWeight: o.PosWeight, name: "BCEWithLogitsLoss", fn: func(l *Loss, x, target *core.Tensor) *core.Tensor {
		o.Weight, o.PosWeight = l.Weight, l.PosWeight
		return op.BinaryCrossEntropyWithLogits(x, target, o)
	}}
}

// NewMSELoss returns [op.MSELoss]. A reduction is "mean" (also ""), "sum" or "none", here and below.
func NewMSELoss(reduction string) *Loss {
	return loss("MSELoss", func(x, t *core.Tensor) *core.Tensor { return op.MSELoss(x, t, reduction) })
}

// NewL1Loss returns [op.L1Loss].
func NewL1Loss(reduction string) *Loss {
	return loss("L1Loss", func(x, t *core.Tensor) *core.Tensor { return op.L1Loss(x, t, reduction) })
}

// NewSmoothL1Loss returns [op.SmoothL1Loss]; PyTorch's default of beta is 1.
func NewSmoothL1Loss(reduction string, beta float64) *Loss {
	return loss("SmoothL1Loss", func(x, t *core.Tensor) *core.Tensor { return op.SmoothL1Loss(x, t, reduction, beta) })
}

// NewHuberLoss returns [op.HuberLoss]; PyTorch's default of delta is 1.
func NewHuberLoss(reduction string, delta float64) *Loss {
	return loss("HuberLoss", func(x, t *core.Tensor) *core.Tensor { return op.HuberLoss(x, t, reduction, delta) })
}

// NewKLDivLoss returns [op.KLDiv].
func NewKLDivLoss(reduction string, logTarget bool) *Loss {
	return loss("KLDivLoss", func(x, t *core.Tensor) *core.Tensor { return op.KLDiv(x, t, reduction, logTarget) })
}

// NewSoftMarginLoss returns [op.SoftMarginLoss].
func NewSoftMarginLoss(reduction string) *Loss {
	return loss("SoftMarginLoss", func(x, t *core.Tensor) *core.Tensor { return op.SoftMarginLoss(x, t, reduction) })
}

// NewMultiLabelMarginLoss returns [op.MultiLabelMarginLoss].
func NewMultiLabelMarginLoss(reduction string) *Loss {
	return loss("MultiLabelMarginLoss", func(x, t *core.Tensor) *core.Tensor { return op.MultiLabelMarginLoss(x, t, reduction) })
}

// NewMultiLabelSoftMarginLoss returns [op.MultiLabelSoftMarginLoss]; weight may be nil.
func NewMultiLabelSoftMarginLoss(weight *core.Tensor, reduction string) *Loss {
	return &Loss{Weight: weight, name: "MultiLabelSoftMarginLoss", fn: func(l *Loss, x, t *core.Tensor) *core.Tensor {
		return op.MultiLabelSoftMarginLoss(x, t, l.Weight, reduction)
	}}
}

// NewMultiMarginLoss returns [op.MultiMarginLoss].
func NewMultiMarginLoss(o op.MultiMarginOptions) *Loss {
	return &Loss{Weight: o.Weight, name: "MultiMarginLoss", fn: func(l *Loss, x, t *core.Tensor) *core.Tensor {
		o.Weight = l.Weight
		return op.MultiMarginLoss(x, t, o)
	}}
}

// NewHingeEmbeddingLoss returns [op.HingeEmbeddingLoss]; PyTorch's default margin is 1.
func NewHingeEmbeddingLoss(margin float64, reduction string) *Loss {
	return loss("HingeEmbeddingLoss", func(x, t *core.Tensor) *core.Tensor { return op.HingeEmbeddingLoss(x, t, margin, reduction) })
}

// NewPoissonNLLLoss returns [op.PoissonNLLLoss].
func NewPoissonNLLLoss(o op.PoissonNLLOptions) *Loss {
	return loss("PoissonNLLLoss", func(x, t *core.Tensor) *core.Tensor { return op.PoissonNLLLoss(x, t, o) })
}

// A TripleLoss compares three tensors.
type TripleLoss struct {
	Base
	name string
	fn   func(a, b, c *core.Tensor) *core.Tensor
}

// Forward returns the loss: of an anchor against a positive and a negative example, or of two inputs against a target.
func (l *TripleLoss) Forward(a, b, c *core.Tensor) *core.Tensor { return l.fn(a, b, c) }

func (l *TripleLoss) describe() (name, arguments string) { return l.name, "" }

// NewTripletMarginLoss returns [op.TripletMarginLoss] of anchor, positive and negative.
func NewTripletMarginLoss(o op.TripletMarginOptions) *TripleLoss {
	return &TripleLoss{name: "TripletMarginLoss", fn: func(a, p, n *core.Tensor) *core.Tensor { return op.TripletMarginLoss(a, p, n, o) }}
}

// NewCosineEmbeddingLoss returns [op.CosineEmbeddingLoss] of two inputs and a target.
func NewCosineEmbeddingLoss(margin float64, reduction string) *TripleLoss {
	return &TripleLoss{name: "CosineEmbeddingLoss", fn: func(x, y, t *core.Tensor) *core.Tensor { return op.CosineEmbeddingLoss(x, y, t, margin, reduction) }}
}

// NewMarginRankingLoss returns [op.MarginRankingLoss] of two inputs and a target.
func NewMarginRankingLoss(margin float64, reduction string) *TripleLoss {
	return &TripleLoss{name: "MarginRankingLoss", fn: func(x, y, t *core.Tensor) *core.Tensor { return op.MarginRankingLoss(x, y, t, margin, reduction) }}
}

// NewGaussianNLLLoss returns [op.GaussianNLLLoss] of an input, a target and a variance; PyTorch's default of eps is 1e-6.
func NewGaussianNLLLoss(full bool, eps float64, reduction string) *TripleLoss {
	return &TripleLoss{name: "GaussianNLLLoss", fn: func(x, t, v *core.Tensor) *core.Tensor { return op.GaussianNLLLoss(x, t, v, full, eps, reduction) }}
}
