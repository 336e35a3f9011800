package vmap

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// recurrentRules are those of recurrent layers. Parts with the same weights are more of the things of a batch. With weights of their own, the
// steps are taken one after another, each for all parts, or where there are more steps than parts, the parts.
func recurrentRules(add func(r rule, names string)) {
	add(recurrent(4, 3), "lstm_layer")
	add(recurrent(3, 2), "gru_layer")
}

// recurrent is the rule of layers with so many gates, of which the input and the states are the first tensors, and the rest weights.
func recurrent(gates, states int) rule {
	return func(u *use) []*core.Tensor {
		x, weights := u.tensors[0], u.tensors[states:]
		if x.Dim() != 3 || x.Size(0) == 0 || weights[0].Dim() != 2 || weights[1].Dim() != 2 {
			return nil
		}
		inner := make([]int, states)
		for i := range inner {
			inner[i] = i
		}
		if u.only(inner...) {
			return u.sameWeights(states)
		}
		hidden := weights[1].Size(1)
		wide := weights[0].Size(0) == gates*hidden && weights[1].Size(0) == gates*hidden && weights[0].Size(1) == x.Size(2)
		for _, t := range u.tensors[1:states] {
			wide = wide && (t == nil || t.Dim() == 2 && t.Size(0) == x.Size(1) && t.Size(1) == hidden)
		}
		for _, t := range weights[2:] {
			wide = wide && (t == nil || t.Dim() == 1 && t.Size(0) == gates*hidden)
		}
		for _, t := range u.tensors {
			wide = wide && (t == nil || t.DType() == x.DType() && t.DType().IsFloat())
		}
		if !wide || core.CurrentMode().Autocasting() {
			return nil
		}
		if x.Size(0) > u.size {
			return u.loop()
		}
		return u.ownWeights(states, hidden)
	}
}

// sameWeights calls a recurrent layer with the batch beside dimension 1 of its input, and 0 of its states.
func (u *use) sameWeights(states int) []*core.Tensor {
	n := u.tensors[0].Size(1)
	tensors := append((&use{u.Application, u.Level, u.tensors[:states], u.whole[:states], u.batched[:states]}).all(), u.tensors[states:]...)
	tensors[0] = op.Flatten(op.Transpose(tensors[0], 0, 1), 1, 2)
	for i, t := range tensors[1:states] {
		if t != nil {
			tensors[i+1] = op.Flatten(t, 0, 1)
		}
	}
	for _, t := range tensors {
		if t != nil && t.Err() != nil {
			return []*core.Tensor{t}
		}
	}
	out := u.Call(op.Replaced(u.Args, tensors))
	for i, t := range out {
		if t.Err() != nil {
			return []*core.Tensor{t}
		}
		if i > 0 {
			out[i] = op.Unflatten(t, 0, u.size, n)
		} else {
			out[i] = op.Transpose(op.Unflatten(t, 1, u.size, n), 0, 1)
		}
	}
	return u.results(out)
}

// ownWeights runs a recurrent layer whose weights differ from part to part.
func (u *use) ownWeights(states, hidden int) []*core.Tensor {
	all := u.all()
	x, d := u.tensors[0], u.tensors[0].DType()
	working := d
	if d.IsHalf() {
		working = core.Float32
	}
	in := make([]*core.Tensor, len(all))
	for i, t := range all {
		if t != nil {
			in[i] = op.To(t, working)
		}
	}
	turned := func(t *core.Tensor) *core.Tensor { return op.Transpose(t, 1, 2) }
	bias := func(t *core.Tensor, dims int) *core.Tensor { return widened(t, dims) }
	wih, whh, bih, bhh := in[states], turned(in[states+1]), in[states+2], in[states+3]
	gates := op.MatMul(in[0], op.Unsqueeze(turned(wih), 1)) // [batch, t, n, gates]
	if bih != nil {
		gates = op.Add(gates, bias(bih, 3))
	}
	if gates.Err() != nil {
		return []*core.Tensor{gates}
	}
	first := make([]*core.Tensor, states-1)
	for i := range first {
		if first[i] = in[i+1]; first[i] == nil {
			first[i] = op.ZerosWith([]int{u.size, x.Size(1), hidden}, op.TensorOptions{DType: &working, Device: gates.Device()})
		}
	}
	recurrent := func(h *core.Tensor) *core.Tensor {
		y := op.MatMul(h, whh)
		if bhh != nil {
			y = op.Add(y, bias(bhh, 2))
		}
		return y
	}
	steps := op.Unbind(gates, 1)
	outs := make([]*core.Tensor, len(steps))
	reverse := argument[op.RecurrentOptions](u, len(u.Args)-1).Reverse
	for i := range steps {
		t := i
		if reverse {
			t = len(steps) - 1 - i
		}
		if states == 3 {
			v := op.Chunk(op.Add(steps[t], recurrent(first[0])), 4, -1)
			if v[0].Err() != nil {
				return v[:1]
			}
			first[1] = op.Add(op.Mul(op.Sigmoid(v[1]), first[1]), op.Mul(op.Sigmoid(v[0]), op.Tanh(v[2])))
			first[0] = op.Mul(op.Sigmoid(v[3]), op.Tanh(first[1]))
		} else {
			v, r := op.Chunk(steps[t], 3, -1), op.Chunk(recurrent(first[0]), 3, -1)
			if v[0].Err() != nil {
				return v[:1]
			}
			if r[0].Err() != nil {
				return r[:1]
			}
			update := op.Sigmoid(op.Add(v[1], r[1]))
			next := op.Tanh(op.Add(v[2], op.Mul(op.Sigmoid(op.Add(v[0], r[0])), r[2])))
			first[0] = op.Add(next, op.Mul(update, op.Sub(first[0], next)))
		}
		outs[t] = first[0]
	}
	out := []*core.Tensor{op.To(op.Stack(outs, 1), d)}
	for _, t := range first {
		out = append(out, op.To(t, d))
	}
	return u.results(out)
}
