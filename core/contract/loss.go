package contract

import "github.com/plait-ml/plait/core"

// Scores have the shape [batch, classes, inner]. A target is int64 class indices, or probabilities in the scores'
// dtype. Backward kernels read lse, each sample's log-sum-exp, and total, the divisor of a mean.
var (
	// CrossEntropy writes the cross entropy of softmax(x).
	CrossEntropy = declare(Contract{Name: "cross_entropy", Outs: "loss lse total", Ins: "x target weight?",
		Ints: classLoss, Floats: "smoothing"})
	// CrossEntropyBackward writes the requested gradients.
	CrossEntropyBackward = declare(Contract{Name: "cross_entropy_backward", Outs: "dx? dtarget?", Ins: "x target weight? dloss lse total",
		Ints: classLoss, Floats: "smoothing"})
	// NLLLoss writes the negated scores of the target classes.
	NLLLoss = declare(Contract{Name: "nll_loss", Outs: "loss total", Ins: "x target weight?", Ints: classLoss})
	// NLLLossBackward writes the gradient of the scores. Only the shape of x is read.
	NLLLossBackward = declare(Contract{Name: "nll_loss_backward", Outs: "dx", Ins: "x target weight? dloss total", Ints: classLoss})
	// MultilabelMarginLoss writes the loss of each sample and its derivative by the scores, the slope. The weight is
	// always absent.
	MultilabelMarginLoss = declare(Contract{Name: "multilabel_margin_loss", Outs: "loss? slope?", Ins: "x target weight?", Ints: classLoss})
	// CheckProbabilities fails the call if an element of x is outside [0, 1]. It leaves loss as it is. x is contiguous.
	CheckProbabilities = declare(Contract{Name: "check_probabilities", Outs: "loss", Ins: "x", Ints: "operand"})
	// CTCLoss writes the loss [n] of connectionist temporal classification of the logarithms of probabilities x [t, n, classes], and
	// for its backward the forward variables [n, t, 2*labels+3], where labels is the most that a sample has. All are contiguous, of
	// float32 or float64; targets are int64.
	CTCLoss = declare(Contract{Name: "ctc_loss", Outs: "loss forward?", Ins: "x targets", Ints: "blank labels samples..."})
	// CTCLossBackward writes the gradient of x. Of x only the shape is read.
	CTCLossBackward = declare(Contract{Name: "ctc_loss_backward", Outs: "dx", Ins: "x targets dloss forward", Ints: "blank labels samples..."})
)

const classLoss = "batch classes inner reduction ignore_index"

// A LossReduction says how the losses of samples are reduced.
type LossReduction int64

// The loss reductions.
const (
	LossNone LossReduction = iota // C: PLAITK_LOSS_NONE
	LossMean                      // C: PLAITK_LOSS_MEAN
	LossSum                       // C: PLAITK_LOSS_SUM
)

// ClassLossAttrs are the attributes of the losses on classes. [CrossEntropy] also has label smoothing.
type ClassLossAttrs struct {
	Batch, Classes, Inner int
	Reduction             LossReduction
	IgnoreIndex           int64 // samples with this target have no loss
}

// SetSmoothing adds label smoothing to a call of [CrossEntropy] or its backward.
func SetSmoothing(c *core.Call, smoothing float64) *core.Call { return c.Float(smoothing) }

// Smoothing returns the label smoothing; 0 for other losses.
func Smoothing(c *core.Call) float64 {
	if len(c.Floats) == 0 {
		return 0
	}
	return c.Floats[0]
}

// A LossOperand is an operand of a loss, for error messages.
type LossOperand int64

// The operands of losses.
const (
	LossInput LossOperand = iota
	LossTarget
)

// String returns the operand's name in error messages.
func (o LossOperand) String() string { return [...]string{"input", "target"}[o] }

// CheckedOperand returns the operand that a call of [CheckProbabilities] checks.
func CheckedOperand(c *core.Call) LossOperand { return LossOperand(c.Ints[0]) }

// CTCAttrs are the attributes of [CTCLoss].
type CTCAttrs struct {
	Blank   int
	Labels  int     // the most that a sample has
	Samples []int64 // where the labels of each sample start among all targets, its steps, and its labels
}
