package nn

import (
	"fmt"
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// RNNOptions are the options of [NewRNN], [NewLSTM] and [NewGRU].
type RNNOptions struct {
	Layers        int     // stacked; 0 means 1
	NoBias        bool    // leave out the biases
	BatchFirst    bool    // inputs are [n, t, in], not [t, n, in]
	Dropout       float64 // of the outputs of all layers but the last, in training
	Bidirectional bool    // run a second set of layers from the end, and join the outputs
	ProjSize      int     // of an LSTM: project the hidden state to so many features
	ReLU          bool    // of an RNN: relu in place of tanh
}

// A cell is the step of a recurrent network: from the input's part of the gates and the state, the new state.
type cell func(gates, h, c *core.Tensor, w *weights) (newH, newC *core.Tensor)

// weights are those of one layer in one direction, under PyTorch's names.
type weights struct{ ih, hh, biasIH, biasHH, hr *core.Tensor }

// recurrent is what RNN, LSTM and GRU have in common.
type recurrent struct {
	Base
	In, Hidden int
	Options    RNNOptions

	kind  string
	gates int // in the weights, each of Hidden rows
	step  cell
	err   error
	// fold says that both biases are added to the input's part of the gates.
	fold bool
}

func (r *recurrent) init(kind string, in, hidden, gates int, fold bool, step cell, o RNNOptions) {
	if o.Layers == 0 {
		o.Layers = 1
	}
	r.In, r.Hidden, r.Options, r.kind, r.gates, r.step, r.fold = in, hidden, o, kind, gates, step, fold
	switch {
	case in < 1 || hidden < 1 || o.Layers < 1:
		r.err = core.Errorf(core.ValueError, kind, "sizes must be positive, got input %d, hidden %d, layers %d", in, hidden, o.Layers)
	case o.ProjSize < 0 || o.ProjSize >= hidden || o.ProjSize > 0 && kind != "lstm":
		r.err = core.Errorf(core.ValueError, kind, "the projection must be smaller than the hidden size, and is an LSTM's only, got %d", o.ProjSize)
	}
	if r.err != nil {
		r.RegisterParameter("weight_ih_l0", core.ErrorTensor(r.err))
		return
	}
	fill := within(1 / math.Sqrt(float64(hidden)))
	for l := range o.Layers {
		if l > 0 {
			in = r.out() * r.directions()
		}
		for d := range r.directions() {
			s := suffix(l, d)
			r.RegisterParameter("weight_ih"+s, newParameter(fill, gates*hidden, in))
			r.RegisterParameter("weight_hh"+s, newParameter(fill, gates*hidden, r.out()))
			if !o.NoBias {
				r.RegisterParameter("bias_ih"+s, newParameter(fill, gates*hidden))
				r.RegisterParameter("bias_hh"+s, newParameter(fill, gates*hidden))
			}
			if o.ProjSize > 0 {
				r.RegisterParameter("weight_hr"+s, newParameter(fill, o.ProjSize, hidden))
			}
		}
	}
}

func suffix(layer, direction int) string {
	if direction == 1 {
		return fmt.Sprintf("_l%d_reverse", layer)
	}
	return fmt.Sprintf("_l%d", layer)
}

func (r *recurrent) directions() int {
	if r.Options.Bidirectional {
		return 2
	}
	return 1
}

// out returns the number of features of the hidden state that is passed on.
func (r *recurrent) out() int {
	if r.Options.ProjSize > 0 {
		return r.Options.ProjSize
	}
	return r.Hidden
}

func (r *recurrent) weights(layer, direction int) *weights {
	s := suffix(layer, direction)
	return &weights{ih: r.Registered("weight_ih" + s), hh: r.Registered("weight_hh" + s), biasIH: r.Registered("bias_ih" + s),
		biasHH: r.Registered("bias_hh" + s), hr: r.Registered("weight_hr" + s)}
}

// run applies all layers to x. h0 and c0 are the first states, [layers*directions, n, features], or nil for zeros.
func (r *recurrent) run(x, h0, c0 *core.Tensor, cells bool) (y, h, c *core.Tensor) {
	fail := func(err error) (y, h, c *core.Tensor) {
		e := core.ErrorTensor(err)
		return e, e, e
	}
	if r.err != nil {
		return fail(r.err)
	}
	if err := x.Usable(r.kind); err != nil {
		return fail(err)
	}
	switch {
	case x.Dim() == 2: // one sequence
		one := func(t *core.Tensor) *core.Tensor {
			if t == nil {
				return nil
			}
			return op.Unsqueeze(t, 1)
		}
		batch := 1
		if r.Options.BatchFirst {
			batch = 0
		}
		y, h, c = r.run(op.Unsqueeze(x, batch), one(h0), one(c0), cells)
		if y.Err() != nil {
			return y, y, y
		}
		if y, h = op.Squeeze(y, batch), op.Squeeze(h, 1); cells {
			c = op.Squeeze(c, 1)
		}
		return y, h, c
	case x.Dim() != 3 || x.Size(2) != r.In:
		return fail(core.Errorf(core.ShapeError, r.kind, "got an input of shape %v, want [.., .., %d]", x.Shape(), r.In))
	}
	if r.Options.BatchFirst {
		x = op.Transpose(x, 0, 1)
	}
	steps, n := x.Size(0), x.Size(1)
	if steps == 0 {
		return fail(core.Errorf(core.ShapeError, r.kind, "got a sequence without steps, of shape %v", x.Shape()))
	}
	total := r.Options.Layers * r.directions()
	states, err := r.states(x, h0, total, n, r.out())
	if err != nil {
		return fail(err)
	}
	memory := make([]*core.Tensor, total)
	if cells {
		if memory, err = r.states(x, c0, total, n, r.Hidden); err != nil {
			return fail(err)
		}
	}
	for l := range r.Options.Layers {
		outs := make([]*core.Tensor, r.directions())
		for d := range outs {
			k := l*len(outs) + d
			outs[d], states[k], memory[k] = r.layer(x, states[k], memory[k], r.weights(l, d), d == 1)
		}
		if x = outs[0]; len(outs) > 1 {
			x = op.Cat(outs, -1)
		}
		if l < r.Options.Layers-1 && r.Options.Dropout > 0 {
			x = op.Dropout(x, r.Options.Dropout, r.Training())
		}
	}
	if y = x; r.Options.BatchFirst {
		y = op.Transpose(y, 0, 1)
	}
	if h = op.Stack(states, 0); cells {
		c = op.Stack(memory, 0)
	}
	return y, h, c
}

// states splits a first state by layer and direction.
func (r *recurrent) states(x, first *core.Tensor, total, n, features int) ([]*core.Tensor, error) {
	if first == nil {
		d := x.DType()
		zeros := op.ZerosWith([]int{n, features}, op.TensorOptions{DType: &d, Device: x.Device()})
		out := make([]*core.Tensor, total)
		for i := range out {
			out[i] = zeros
		}
		return out, zeros.Err()
	}
	if err := first.Usable(r.kind); err != nil {
		return nil, err
	}
	if s := first.Shape(); len(s) != 3 || s[0] != total || s[1] != n || s[2] != features {
		return nil, core.Errorf(core.ShapeError, r.kind, "got a state of shape %v, want [%d %d %d]", s, total, n, features)
	}
	return op.Unbind(first, 0), nil
}

// layer runs one layer over x [t, n, in] in one direction: an op where there is one, and otherwise step by step, with the
// input's part of all gates of all steps as one product.
func (r *recurrent) layer(x, h, c *core.Tensor, w *weights, reverse bool) (y, lastH, lastC *core.Tensor) {
	switch o := (op.RecurrentOptions{Reverse: reverse}); {
	case r.kind == "lstm" && w.hr == nil:
		return op.LSTMLayer(x, h, c, w.ih, w.hh, w.biasIH, w.biasHH, o)
	case r.kind == "gru":
		y, lastH = op.GRULayer(x, h, w.ih, w.hh, w.biasIH, w.biasHH, o)
		return y, lastH, nil
	}
	bias := w.biasIH
	if bias != nil && r.fold {
		bias = op.Add(bias, w.biasHH)
	}
	gates := op.Unbind(op.Linear(x, w.ih, bias), 0)
	outs := make([]*core.Tensor, len(gates))
	for i := range gates {
		t := i
		if reverse {
			t = len(gates) - 1 - i
		}
		h, c = r.step(gates[t], h, c, w)
		if h.Err() != nil {
			return h, h, h
		}
		outs[t] = h
	}
	return op.Stack(outs, 0), h, c
}

func (r *recurrent) describe() (name, arguments string) {
	o := r.Options
	return "", fmt.Sprintf("%d, %d, num_layers=%d, batch_first=%v, dropout=%v, bidirectional=%v", r.In, r.Hidden, o.Layers, o.BatchFirst, o.Dropout, o.Bidirectional)
}

// chunks splits the gates of a step.
func chunks(x *core.Tensor, n int) []*core.Tensor {
	parts := op.Chunk(x, n, -1)
	for len(parts) < n { // an error
		parts = append(parts, parts[0])
	}
	return parts
}

func tanhCell(gates, h, _ *core.Tensor, w *weights) (newH, newC *core.Tensor) {
	return op.Tanh(op.Add(gates, op.Linear(h, w.hh, nil))), nil
}

func reluCell(gates, h, _ *core.Tensor, w *weights) (newH, newC *core.Tensor) {
	return op.Relu(op.Add(gates, op.Linear(h, w.hh, nil))), nil
}

func lstmCell(gates, h, c *core.Tensor, w *weights) (newH, newC *core.Tensor) {
	g := chunks(op.Add(gates, op.Linear(h, w.hh, nil)), 4)
	newC = op.Add(op.Mul(op.Sigmoid(g[1]), c), op.Mul(op.Sigmoid(g[0]), op.Tanh(g[2])))
	newH = op.Mul(op.Sigmoid(g[3]), op.Tanh(newC))
	if w.hr != nil {
		newH = op.Linear(newH, w.hr, nil)
	}
	return newH, newC
}

func gruCell(gates, h, _ *core.Tensor, w *weights) (newH, newC *core.Tensor) {
	x, s := chunks(gates, 3), chunks(op.Linear(h, w.hh, w.biasHH), 3)
	reset, update := op.Sigmoid(op.Add(x[0], s[0])), op.Sigmoid(op.Add(x[1], s[1]))
	next := op.Tanh(op.Add(x[2], op.Mul(reset, s[2])))
	return op.Add(next, op.Mul(update, op.Sub(h, next))), nil
}

// RNN is a recurrent network: h' = tanh(W_ih x + b_ih + W_hh h + b_hh) (Elman 1990).
type RNN struct{ recurrent }

// NewRNN returns a network from in to hidden features; all weights are uniform within 1/sqrt(hidden).
func NewRNN(in, hidden int, o RNNOptions) *RNN {
	r := &RNN{}
	step := tanhCell
	if o.ReLU {
		step = reluCell
	}
	r.init("rnn", in, hidden, 1, true, step, o)
	return r
}

// Run maps x [t, n, in] and the first state h0 [layers*directions, n, hidden], or nil for zeros, to the outputs of the last
// layer [t, n, directions*hidden] and the last state. Without n, they are of one sequence.
func (r *RNN) Run(x, h0 *core.Tensor) (y, h *core.Tensor) {
	y, h, _ = r.run(x, h0, nil, false)
	return y, h
}

// Forward is [RNN.Run] from a state of zeros, without the last state.
func (r *RNN) Forward(x *core.Tensor) *core.Tensor { y, _ := r.Run(x, nil); return y }

// LSTM is a recurrent network with long short-term memory (Hochreiter and Schmidhuber 1997; Gers et al. 2000). The gates in
// its weights are, in this order, input, forget, cell and output.
type LSTM struct{ recurrent }

// NewLSTM returns a network from in to hidden features; all weights are uniform within 1/sqrt(hidden).
func NewLSTM(in, hidden int, o RNNOptions) *LSTM {
	r := &LSTM{}
	r.init("lstm", in, hidden, 4, true, lstmCell, o)
	return r
}

// Run maps x [t, n, in] and the first states h0 and c0 [layers*directions, n, hidden], or nil for zeros, to the outputs of
// the last layer [t, n, directions*hidden] and the last states. Without n, they are of one sequence.
func (r *LSTM) Run(x, h0, c0 *core.Tensor) (y, h, c *core.Tensor) { return r.run(x, h0, c0, true) }

// Forward is [LSTM.Run] from states of zeros, without the last states.
func (r *LSTM) Forward(x *core.Tensor) *core.Tensor { y, _, _ := r.Run(x, nil, nil); return y }

// GRU is a recurrent network with gated units (Cho et al. 2014). The gates in its weights are, in this order, reset, update
// and new.
type GRU struct{ recurrent }

// NewGRU returns a network from in to hidden features; all weights are uniform within 1/sqrt(hidden).
func NewGRU(in, hidden int, o RNNOptions) *GRU {
	r := &GRU{}
	r.init("gru", in, hidden, 3, false, gruCell, o)
	return r
}

// Run maps x [t, n, in] and the first state h0 [layers*directions, n, hidden], or nil for zeros, to the outputs of the last
// layer [t, n, directions*hidden] and the last state. Without n, they are of one sequence.
func (r *GRU) Run(x, h0 *core.Tensor) (y, h *core.Tensor) {
	y, h, _ = r.run(x, h0, nil, false)
	return y, h
}

// Forward is [GRU.Run] from a state of zeros, without the last state.
func (r *GRU) Forward(x *core.Tensor) *core.Tensor { y, _ := r.Run(x, nil); return y }
