package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// RecurrentOptions are the options of [LSTMLayer] and [GRULayer].
type RecurrentOptions struct {
	// Reverse runs the steps from the last to the first.
	Reverse bool
}

// LSTMLayer runs one layer of long short-term memory in one direction over x [t, n, in] from the states h0 and c0
// [n, hidden], which may be nil for zeros. The weights are wih [4*hidden, in] and whh [4*hidden, hidden], with the gates
// input, forget, cell and output in this order; the biases [4*hidden] may be nil. It returns the states of all steps, y
// [t, n, hidden], and those after the last step. float16 and bfloat16 are computed in float32; on CPUs the states that
// enter the next step are rounded to bfloat16, as the result is.
//
// Hochreiter, Schmidhuber: Long short-term memory, 1997; Gers, Schmidhuber, Cummins: Learning to forget, 2000.
func LSTMLayer(x, h0, c0, wih, whh, bih, bhh *core.Tensor, o RecurrentOptions) (y, h, c *core.Tensor) {
	if parts := distributed(x, h0, c0, wih, whh, bih, bhh); parts != nil {
		return handOn3(parts, "lstm_layer", x, h0, c0, wih, whh, bih, bhh, o)
	}
	op := begin("lstm_layer", &x, optional(&h0), optional(&c0), &wih, &whh, optional(&bih), optional(&bhh))
	op.recurrent(4, x, h0, c0, wih, whh, bih, bhh)
	if op.err != nil {
		return op.fail(), op.fail(), op.fail()
	}
	out := op.scope(func() []*core.Tensor {
		bias := bih
		switch {
		case bias == nil:
			bias = bhh
		case bhh != nil:
			bias = Add(bih, bhh)
		}
		d := stateType(x)
		gates := castTo(Linear(x, wih, bias), d)
		cell := castTo(firstState(c0, x, whh), stepType(d))
		y, cells := lstmSteps(gates, castTo(firstState(h0, x, whh), d), cell, castTo(whh, d), o.Reverse)
		if y.Err() != nil {
			return []*core.Tensor{y, y, y}
		}
		last := lastStep(y, o.Reverse)
		y = castTo(y, x.DType())
		return []*core.Tensor{y, Clone(Select(y, 0, last)), castTo(Select(cells, 0, last), x.DType())}
	})
	return out[0], out[1], out[2]
}

// GRULayer runs one layer of gated recurrent units in one direction over x [t, n, in] from the state h0 [n, hidden], which
// may be nil for zeros. The weights are wih [3*hidden, in] and whh [3*hidden, hidden], with the gates reset, update and new
// in this order; the biases [3*hidden] may be nil. The reset gate scales the recurrent part of the new gate, with its bias.
// It returns the states of all steps, y [t, n, hidden], and the one after the last step. float16 and bfloat16 are computed
// as in [LSTMLayer].
//
// Cho et al.: Learning phrase representations using RNN encoder-decoder for statistical machine translation, 2014.
func GRULayer(x, h0, wih, whh, bih, bhh *core.Tensor, o RecurrentOptions) (y, h *core.Tensor) {
	if parts := distributed(x, h0, wih, whh, bih, bhh); parts != nil {
		return handOn2(parts, "gru_layer", x, h0, wih, whh, bih, bhh, o)
	}
	op := begin("gru_layer", &x, optional(&h0), &wih, &whh, optional(&bih), optional(&bhh))
	op.recurrent(3, x, h0, nil, wih, whh, bih, bhh)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	out := op.scope(func() []*core.Tensor {
		d := stateType(x)
		bias := bhh
		if bias != nil {
			bias = castTo(bias, stepType(d))
		}
		y := gruSteps(castTo(Linear(x, wih, bih), d), castTo(firstState(h0, x, whh), d), castTo(whh, d), bias, o.Reverse)
		if y.Err() != nil {
			return []*core.Tensor{y, y}
		}
		last := lastStep(y, o.Reverse)
		y = castTo(y, x.DType())
		return []*core.Tensor{y, Clone(Select(y, 0, last))}
	})
	return out[0], out[1]
}

// recurrent checks the operands of a recurrent layer, of which c0 may be nil.
func (op *opContext) recurrent(gates int, x, h0, c0, wih, whh, bih, bhh *core.Tensor) {
	op.multipliable(x, h0, c0, wih, whh, bih, bhh)
	op.inexact("the input", x)
	switch {
	case op.err != nil:
		return
	case x.Dim() != 3 || x.Size(0) == 0:
		op.failf(core.ShapeError, "got an input of shape %v, want [t, n, in] with at least one step", x.Shape())
	case whh.Dim() != 2 || whh.Size(0) != gates*whh.Size(1):
		op.failf(core.ShapeError, "got recurrent weights of shape %v, want [%d*hidden, hidden]", whh.Shape(), gates)
	case wih.Dim() != 2 || wih.Size(0) != whh.Size(0) || wih.Size(1) != x.Size(2):
		op.failf(core.ShapeError, "got input weights of shape %v, want [%d %d]", wih.Shape(), whh.Size(0), x.Size(2))
	}
	if op.err != nil {
		return
	}
	state := []int{x.Size(1), whh.Size(1)}
	for _, t := range []*core.Tensor{h0, c0} {
		if op.err == nil && t != nil && !slices.Equal(t.Shape(), state) {
			op.failf(core.ShapeError, "got a first state of shape %v, want %v", t.Shape(), state)
		}
	}
	for _, t := range []*core.Tensor{bih, bhh} {
		if op.err == nil && t != nil && !slices.Equal(t.Shape(), whh.Shape()[:1]) {
			op.failf(core.ShapeError, "got a bias of shape %v, want %v", t.Shape(), whh.Shape()[:1])
		}
	}
}

// stateType returns the dtype of the states of a layer on x, and of its gates and recurrent weights: that in which steps
// are computed, or bfloat16, which the kernels of CPUs read and write.
func stateType(x *core.Tensor) core.DType {
	if x.DType() == core.BFloat16 && x.Device().Kind() == "cpu" {
		return core.BFloat16
	}
	return stepType(x.DType())
}

// stepType returns the dtype in which the steps of layers on d are computed, and which their cells have.
func stepType(d core.DType) core.DType {
	if d.IsComplex() {
		return d
	}
	return statType(d)
}

// firstState returns first, or zeros if it is nil.
func firstState(first, x, whh *core.Tensor) *core.Tensor {
	if first != nil {
		return first
	}
	return fullLike(x, 0, x.DType(), []int{x.Size(1), whh.Size(1)})
}

// lastStep returns the index of the step that is run last.
func lastStep(y *core.Tensor, reverse bool) int {
	if reverse {
		return 0
	}
	return y.Size(0) - 1
}

// A recurrence is a walk over the steps of a recurrent layer. Its node has the outputs y [t, n, hidden], the states; acts
// [t, n, 4*hidden], the values of the gates and, of a GRU, the recurrent part of the new one; and, of an LSTM, the cells.
type recurrence struct {
	reverse bool
	gates   int
}

// recurrenceWork is how much more a step costs than going through its operands once.
const recurrenceWork = 16

// gateValues allocates the tensor of acts, of one step if no derivative will want more.
func (op *opContext) gateValues(gates *core.Tensor, hidden int) *core.Tensor {
	if op.err != nil {
		return nil
	}
	shape := []int{gates.Size(0), gates.Size(1), 4 * hidden}
	if !op.grad {
		shape = shape[1:]
	}
	return op.temp(stepType(gates.DType()), shape...)
}

// lstmSteps runs an LSTM whose input's part of the gates is given; it returns states and cells [t, n, hidden].
func lstmSteps(gates, h0, c0, w *core.Tensor, reverse bool) (y, c *core.Tensor) {
	if isComplex(gates) {
		return complexLSTMSteps(gates, h0, c0, w, reverse)
	}
	op := begin("lstm_layer").with(gates, h0, c0, w)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	x, h, s := op.dense(gates), op.dense(h0), op.dense(c0)
	hidden := w.Size(1)
	shape := []int{gates.Size(0), gates.Size(1), hidden}
	y, c = op.out(gates.DType(), shape), op.out(c0.DType(), shape)
	acts := op.gateValues(gates, hidden)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	call := op.call(contract.LSTMSteps).Out(y).Out(acts).Out(c).In(x).In(h).In(w).In(s).Bool(reverse)
	call.Work *= recurrenceWork
	op.launch(call)
	if op.grad {
		n := op.node(lstmDeriv, gates, h0, c0, w).Save(h0, c0, w).SaveOutput(y, 0).SaveOutput(acts, 1).SaveOutput(c, 2)
		n.Any = recurrence{reverse: reverse, gates: 4}
		op.attach(n, y, acts, c)
	}
	return op.done2(y, c)
}

// gruSteps runs a GRU whose input's part of the gates is given; it returns the states [t, n, hidden].
func gruSteps(gates, h0, w, bias *core.Tensor, reverse bool) *core.Tensor {
	if isComplex(gates) {
		return complexGRUSteps(gates, h0, w, bias, reverse)
	}
	op := begin("gru_layer").with(gates, h0, w, bias)
	if op.err != nil {
		return op.fail()
	}
	x, h, b := op.dense(gates), op.dense(h0), op.dense(bias)
	hidden := w.Size(1)
	y := op.out(gates.DType(), []int{gates.Size(0), gates.Size(1), hidden})
	acts := op.gateValues(gates, hidden)
	if op.err != nil {
		return op.fail()
	}
	call := op.call(contract.GRUSteps).Out(y).Out(acts).In(x).In(h).In(w).In(b).Bool(reverse)
	call.Work *= recurrenceWork
	op.launch(call)
	if op.grad {
		n := op.node(gruDeriv, gates, h0, w, bias).Save(h0, w).SaveOutput(y, 0).SaveOutput(acts, 1)
		n.Any = recurrence{reverse: reverse, gates: 3}
		op.attach(n, y, acts)
	}
	return op.done(y)
}

// former returns the states before each of the steps.
func (r recurrence) former(first, y *core.Tensor) *core.Tensor {
	first, rest := Unsqueeze(first, 0), y.Size(0)-1
	if r.reverse {
		return Cat([]*core.Tensor{Narrow(y, 0, 1, rest), first}, 0)
	}
	return Cat([]*core.Tensor{first, Narrow(y, 0, 0, rest)}, 0)
}

// firstGates returns the gradients ds [t, n, gates] of the step that ran first.
func (r recurrence) firstGates(ds *core.Tensor) *core.Tensor {
	if r.reverse {
		return Select(ds, 0, ds.Size(0)-1)
	}
	return Select(ds, 0, 0)
}

// weightGrad returns the gradient of the recurrent weights from that of their products with the former states.
func (r recurrence) weightGrad(ds, h0, y *core.Tensor) *core.Tensor {
	return product("matmul", rowsOf(ds), rowsOf(r.former(h0, y)), plainForms[1])
}

func lstmDeriv(ctx *core.BackwardContext) {
	r := ctx.Node.Any.(recurrence)
	h0, c0, w, y, acts, c := ctx.Saved(0), ctx.Saved(1), ctx.Saved(2), ctx.Saved(3), ctx.Saved(4), ctx.Saved(5)
	if ctx.Failed() {
		return
	}
	if ctx.CreateGraph() || ctx.GradAt(1) != nil {
		lstmDifferentiably(ctx, r, h0, c0, w, y, acts, c)
		return
	}
	op := begin("lstm_layer_backward").with(acts, y, c, h0, c0, w, ctx.GradAt(0), ctx.GradAt(2))
	if op.err != nil {
		ctx.Fail(op.err)
		return
	}
	h, s, dy, dc := op.dense(h0), op.dense(c0), op.dense(ctx.GradAt(0)), op.dense(ctx.GradAt(2))
	dx, carry := op.out(y.DType(), acts.Shape()), op.out(c0.DType(), h0.Shape())
	if op.err != nil {
		ctx.Fail(op.err)
		return
	}
	call := op.call(contract.LSTMStepsBackward).Out(dx).Out(carry).In(acts).In(y).In(h).In(w).In(dy).In(c).In(s).In(dc).Bool(r.reverse)
	call.Work *= recurrenceWork
	op.launch(call)
	ctx.Set(0, dx)
	if ctx.Needs(1) {
		ctx.Set(1, product("matmul", r.firstGates(dx), w, plainForms[0]))
	}
	if ctx.Needs(2) {
		ctx.Set(2, carry)
	}
	if ctx.Needs(3) {
		ctx.Set(3, r.weightGrad(dx, h0, y))
	}
}

func gruDeriv(ctx *core.BackwardContext) {
	r := ctx.Node.Any.(recurrence)
	h0, w, y, acts := ctx.Saved(0), ctx.Saved(1), ctx.Saved(2), ctx.Saved(3)
	if ctx.Failed() {
		return
	}
	if ctx.CreateGraph() || ctx.GradAt(1) != nil {
		gruDifferentiably(ctx, r, h0, w, y, acts)
		return
	}
	op := begin("gru_layer_backward").with(acts, y, h0, w, ctx.GradAt(0))
	if op.err != nil {
		ctx.Fail(op.err)
		return
	}
	h, dy := op.dense(h0), op.dense(ctx.GradAt(0))
	shape := []int{y.Size(0), y.Size(1), w.Size(0)}
	dx, carry, ds := op.out(y.DType(), shape), op.out(acts.DType(), h0.Shape()), op.out(y.DType(), shape)
	if op.err != nil {
		ctx.Fail(op.err)
		return
	}
	call := op.call(contract.GRUStepsBackward).Out(dx).Out(carry).Out(ds).In(acts).In(y).In(h).In(w).In(dy).Bool(r.reverse)
	call.Work *= recurrenceWork
	op.launch(call)
	r.setGRU(ctx, dx, ds, carry, h0, w, y, y.DType())
}

// setGRU sets the gradients of a GRU's inputs, whose states are of dtype d, from those of its gates' parts and of the first
// state beside them.
func (r recurrence) setGRU(ctx *core.BackwardContext, dx, ds, carry, h0, w, y *core.Tensor, d core.DType) {
	ctx.Set(0, castTo(dx, d))
	if ctx.Needs(1) {
		ctx.Set(1, castTo(Add(carry, product("matmul", r.firstGates(ds), w, plainForms[0])), d))
	}
	if ctx.Needs(2) {
		ctx.Set(2, castTo(r.weightGrad(ds, h0, y), d))
	}
	if ctx.Needs(3) {
		ctx.Set(3, castTo(sumTo(ds, ctx.InputShape(3)), carry.DType()))
	}
}
