package op

import "github.com/plait-ml/plait/core"

// complexLSTMSteps is lstmSteps of operations on complex numbers, step by step.
func complexLSTMSteps(gates, h, c, w *core.Tensor, reverse bool) (states, cells *core.Tensor) {
	ys, cs := make([]*core.Tensor, gates.Size(0)), make([]*core.Tensor, gates.Size(0))
	for _, t := range walk(len(ys), reverse) {
		g := Chunk(Add(Select(gates, 0, t), Linear(h, w, nil)), 4, -1)
		if g[0].Err() != nil {
			return g[0], g[0]
		}
		c = Add(Mul(Sigmoid(g[1]), c), Mul(Sigmoid(g[0]), Tanh(g[2])))
		h = Mul(Sigmoid(g[3]), Tanh(c))
		ys[t], cs[t] = h, c
	}
	return Stack(ys, 0), Stack(cs, 0)
}

// complexGRUSteps is gruSteps of operations on complex numbers, step by step.
func complexGRUSteps(gates, h, w, bias *core.Tensor, reverse bool) *core.Tensor {
	ys := make([]*core.Tensor, gates.Size(0))
	for _, t := range walk(len(ys), reverse) {
		in, own := Chunk(Select(gates, 0, t), 3, -1), Chunk(Linear(h, w, bias), 3, -1)
		if own[0].Err() != nil {
			return own[0]
		}
		reset, update := Sigmoid(Add(in[0], own[0])), Sigmoid(Add(in[1], own[1]))
		fresh := Tanh(Add(in[2], Mul(reset, own[2])))
		h = Add(fresh, Mul(update, Sub(h, fresh)))
		ys[t] = h
	}
	return Stack(ys, 0)
}

// walk returns the numbers of n steps in the order in which they are run.
func walk(n int, reverse bool) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
		if reverse {
			order[i] = n - 1 - i
		}
	}
	return order
}
