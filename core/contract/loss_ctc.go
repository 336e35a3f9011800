package contract

var (
	// CTCLoss writes the loss [n] of connectionist temporal classification of the logarithms of probabilities x [t, n, classes], and
	// for its backward the forward variables [n, t, 2*labels+3], where labels is the most that a sample has. All are contiguous, of
	// float32 or float64; targets are int64.
	CTCLoss = declare(Contract{Name: "ctc_loss", Outs: "loss forward?", Ins: "x targets", Ints: "blank labels samples..."})
	// CTCLossBackward writes the gradient of x. Of x only the shape is read.
	CTCLossBackward = declare(Contract{Name: "ctc_loss_backward", Outs: "dx", Ins: "x targets dloss forward", Ints: "blank labels samples..."})
)

// CTCAttrs are the attributes of [CTCLoss].
type CTCAttrs struct {
	Blank   int
	Labels  int     // the most that a sample has
	Samples []int64 // where the labels of each sample start among all targets, its steps, and its labels
}
