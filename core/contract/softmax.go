package contract

var (
	// Softmax and LogSoftmax normalise x along a dimension.
	Softmax    = declare(Contract{Name: "softmax", Outs: "y", Ins: "x", Ints: "dim"})
	LogSoftmax = declare(Contract{Name: "log_softmax", Outs: "y", Ins: "x", Ints: "dim"})
	// SoftmaxBackward and LogSoftmaxBackward write the gradient of x from the result y and its gradient dy.
	SoftmaxBackward    = declare(Contract{Name: "softmax_backward", Outs: "dx", Ins: "y dy", Ints: "dim"})
	LogSoftmaxBackward = declare(Contract{Name: "log_softmax_backward", Outs: "dx", Ins: "y dy", Ints: "dim"})
)
