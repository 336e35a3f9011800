package contract

import "github.com/plait-ml/plait/core"

// Scores are seen as [batch, classes, inner]. A target is class indices, int64, or probabilities, of the scores' dtype. lse
// and total are for derivatives: each sample's log-sum-exp, and what a mean divides by.
var (
	// CrossEntropy writes the cross entropy of softmax(x).
	CrossEntropy = declare(Contract{Name: "cross_entropy", Outs: "loss lse total", Ins: "x target weight?",
		Ints: classLoss, Floats: "smoothing"})
	// CrossEntropyBackward writes those gradients that are wanted.
	CrossEntropyBackward = declare(Contract{Name: "cross_entropy_backward", Outs: "dx? dtarget?", Ins: "x target weight? dloss lse total",
		Ints: classLoss, Floats: "smoothing"})
	// NLLLoss writes the negative scores of the target's classes.
	NLLLoss = declare(Contract{Name: "nll_loss", Outs: "loss total", Ins: "x target weight?", Ints: classLoss})
	// NLLLossBackward writes the gradient of the scores. Its second operand is only there for its shape.
	NLLLossBackward = declare(Contract{Name: "nll_loss_backward", Outs: "dx", Ins: "x target weight? dloss total", Ints: classLoss})
	// MultilabelMarginLoss writes the loss of each sample and the loss's slopes. There is no weight.
	MultilabelMarginLoss = declare(Contract{Name: "multilabel_margin_loss", Outs: "loss? slope?", Ins: "x target weight?", Ints: classLoss})
	// CheckProbabilities leaves loss as it is, and fails it where an element of x, which is contiguous, is not in [0, 1].
	CheckProbabilities = declare(Contract{Name: "check_probabilities", Outs: "loss", Ins: "x", Ints: "operand"})
)

const classLoss = "batch classes inner reduction ignore_index"

// A LossReduction is what becomes of the losses of samples.
type LossReduction int64

// The reductions of losses.
const (
	LossNone LossReduction = iota // C: PLAITK_LOSS_NONE
	LossMean                      // C: PLAITK_LOSS_MEAN
	LossSum                       // C: PLAITK_LOSS_SUM
)

// ClassLossAttrs are the attributes of the losses on classes; those of [CrossEntropy] have the smoothing besides.
type ClassLossAttrs struct {
	Batch, Classes, Inner int
	Reduction             LossReduction
	IgnoreIndex           int64 // the target that counts for nothing
}

// AddTo adds the attributes to a call and returns it.
func (a ClassLossAttrs) AddTo(c *core.Call) *core.Call {
	return c.Int(int64(a.Batch), int64(a.Classes), int64(a.Inner), int64(a.Reduction), a.IgnoreIndex)
}

// ClassLossOf reads the attributes of a call.
func ClassLossOf(c *core.Call) ClassLossAttrs {
	return ClassLossAttrs{int(c.Ints[0]), int(c.Ints[1]), int(c.Ints[2]), LossReduction(c.Ints[3]), c.Ints[4]}
}

// SetSmoothing adds to a call of [CrossEntropy] or its derivative how much of a target is spread over all classes.
func SetSmoothing(c *core.Call, smoothing float64) *core.Call { return c.Float(smoothing) }

// Smoothing returns that; 0 for the other losses.
func Smoothing(c *core.Call) float64 {
	if len(c.Floats) == 0 {
		return 0
	}
	return c.Floats[0]
}

// A LossOperand is one of the operands of a loss, for messages.
type LossOperand int64

// The operands of losses.
const (
	LossInput LossOperand = iota
	LossTarget
)

// String returns what messages call the operand.
func (o LossOperand) String() string { return [...]string{"input", "target"}[o] }

// CheckedOperand returns which operand a call of [CheckProbabilities] looks at, its attribute.
func CheckedOperand(c *core.Call) LossOperand { return LossOperand(c.Ints[0]) }
