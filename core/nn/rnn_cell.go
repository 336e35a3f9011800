package nn

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// cellWeights are the parameters of a single step.
type cellWeights struct {
	WeightIH, WeightHH *core.Tensor // [gates*hidden, in] and [gates*hidden, hidden]
	BiasIH, BiasHH     *core.Tensor // [gates*hidden], or nil
}

func newCellWeights(in, hidden, gates int, o LinearOptions) cellWeights {
	fill := within(1 / math.Sqrt(float64(max(hidden, 1))))
	w := cellWeights{WeightIH: newParameter(fill, gates*hidden, in), WeightHH: newParameter(fill, gates*hidden, hidden)}
	if !o.NoBias {
		w.BiasIH, w.BiasHH = newParameter(fill, gates*hidden), newParameter(fill, gates*hidden)
	}
	return w
}

// apply makes one step with x [n, in] from h and c [n, hidden]; nil means zeros.
func (w *cellWeights) apply(step cell, fold bool, x, h, c *core.Tensor) (newH, newC *core.Tensor) {
	bias := w.BiasIH
	if bias != nil && fold {
		bias = op.Add(bias, w.BiasHH)
	}
	gates := op.Linear(x, w.WeightIH, bias)
	if gates.Err() != nil {
		return gates, gates
	}
	if h == nil || c == nil {
		d, shape := x.DType(), append([]int(nil), gates.Shape()...)
		shape[len(shape)-1] = w.WeightHH.Size(1)
		zeros := op.ZerosWith(shape, op.TensorOptions{DType: &d, Device: x.Device()})
		if h == nil {
			h = zeros
		}
		if c == nil {
			c = zeros
		}
	}
	return step(gates, h, c, &weights{hh: w.WeightHH, biasHH: w.BiasHH})
}

// RNNCell is one step of an [RNN] with tanh.
type RNNCell struct {
	Base
	cellWeights
}

// NewRNNCell returns a step from in to hidden features.
func NewRNNCell(in, hidden int, o LinearOptions) *RNNCell {
	return &RNNCell{cellWeights: newCellWeights(in, hidden, 1, o)}
}

// Step maps x [n, in] and h [n, hidden], or nil for zeros, to the next h.
func (r *RNNCell) Step(x, h *core.Tensor) *core.Tensor {
	h, _ = r.apply(tanhCell, true, x, h, nil)
	return h
}

// LSTMCell is one step of an [LSTM].
type LSTMCell struct {
	Base
	cellWeights
}

// NewLSTMCell returns a step from in to hidden features.
func NewLSTMCell(in, hidden int, o LinearOptions) *LSTMCell {
	return &LSTMCell{cellWeights: newCellWeights(in, hidden, 4, o)}
}

// Step maps x [n, in] and h and c [n, hidden], or nil for zeros, to the next h and c.
func (r *LSTMCell) Step(x, h, c *core.Tensor) (newH, newC *core.Tensor) {
	return r.apply(lstmCell, true, x, h, c)
}

// GRUCell is one step of a [GRU].
type GRUCell struct {
	Base
	cellWeights
}

// NewGRUCell returns a step from in to hidden features.
func NewGRUCell(in, hidden int, o LinearOptions) *GRUCell {
	return &GRUCell{cellWeights: newCellWeights(in, hidden, 3, o)}
}

// Step maps x [n, in] and h [n, hidden], or nil for zeros, to the next h.
func (r *GRUCell) Step(x, h *core.Tensor) *core.Tensor {
	h, _ = r.apply(gruCell, false, x, h, nil)
	return h
}
