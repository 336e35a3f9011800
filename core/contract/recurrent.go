package contract

import "github.com/plait-ml/plait/core"

// core/cpu/kernel/recurrent/c/recurrent.h says what the operands hold. acts are the values of the gates.
var (
	// LSTMSteps runs an LSTM over the steps of x, the input's part of its gates.
	LSTMSteps = declare(Contract{Name: "lstm_steps", Outs: "y acts c", Ins: "x h0 w c0", Ints: "reverse"})
	// GRUSteps runs a GRU.
	GRUSteps = declare(Contract{Name: "gru_steps", Outs: "y acts", Ins: "x h0 w bias?", Ints: "reverse"})
	// LSTMStepsBackward writes the gradients of x and, in carry, of the first state.
	LSTMStepsBackward = declare(Contract{Name: "lstm_steps_backward", Outs: "dx carry", Ins: "acts y h0 w dy? c c0 dc?", Ints: "reverse"})
	// GRUStepsBackward writes, besides, in ds the gradients of the products with the former states.
	GRUStepsBackward = declare(Contract{Name: "gru_steps_backward", Outs: "dx carry ds", Ins: "acts y h0 w dy?", Ints: "reverse"})
)

// Reverse returns the attribute of these kernels: steps run from the last to the first.
func Reverse(c *core.Call) bool { return c.Ints[0] != 0 }
