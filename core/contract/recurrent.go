package contract

import "github.com/plait-ml/plait/core"

// core/cpu/kernel/recurrent/c/recurrent.h describes the operands. acts are the activations of the gates.
var (
	// LSTMSteps runs an LSTM over the time steps of x, which holds the input's part of the gates.
	LSTMSteps = declare(Contract{Name: "lstm_steps", Outs: "y acts c", Ins: "x h0 w c0", Ints: "reverse"})
	// GRUSteps runs a GRU in the same way.
	GRUSteps = declare(Contract{Name: "gru_steps", Outs: "y acts", Ins: "x h0 w bias?", Ints: "reverse"})
	// LSTMStepsBackward writes the gradient of x and, in carry, the gradient of the initial state.
	LSTMStepsBackward = declare(Contract{Name: "lstm_steps_backward", Outs: "dx carry", Ins: "acts y h0 w dy? c c0 dc?", Ints: "reverse"})
	// GRUStepsBackward also writes ds, the gradients of the products of previous states and w.
	GRUStepsBackward = declare(Contract{Name: "gru_steps_backward", Outs: "dx carry ds", Ins: "acts y h0 w dy?", Ints: "reverse"})
)

// Reverse reports whether the steps run from the last to the first.
func Reverse(c *core.Call) bool { return c.Ints[0] != 0 }
