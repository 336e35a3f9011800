package op

import "github.com/plait-ml/plait/core"

// The derivatives of recurrent layers made of operations that can be differentiated again, step by step. They also take
// gradients with respect to the values of the gates, which only such derivatives make. They compute in the dtype of
// these values, also where the states are of bfloat16.

// backwards calls step for every step from the one that ran last, with the one of states, given by step, before it.
func (r recurrence) backwards(first *core.Tensor, states []*core.Tensor, step func(t int, before *core.Tensor)) {
	n := len(states)
	for i := n - 1; i >= 0; i-- {
		t, prev := i, i-1
		if r.reverse {
			t, prev = n-1-i, n-i
		}
		before := first
		if i > 0 {
			before = states[prev]
		}
		step(t, before)
	}
}

// stepGrads splits the gradient of an output by step, and converts it to d; without one, all are nil.
func stepGrads(g *core.Tensor, steps int, d core.DType) []*core.Tensor {
	if g == nil {
		return make([]*core.Tensor, steps)
	}
	return Unbind(castTo(g, d), 0)
}

// plus returns x + y, where either may be nil for zero.
func plus(x, y *core.Tensor) *core.Tensor {
	switch {
	case x == nil:
		return y
	case y == nil:
		return x
	}
	return Add(x, y)
}

// gateGrads splits the gradient of the values of a step's gates; without one, all are nil.
func gateGrads(g *core.Tensor) []*core.Tensor {
	if g == nil {
		return make([]*core.Tensor, 4)
	}
	return Chunk(g, 4, -1)
}

// belowOne returns 1 - x*x, the derivative of tanh where it is x.
func belowOne(x *core.Tensor) *core.Tensor { return Sub(core.Num(1), Mul(x, x)) }

// slopeAt returns x - x*x, the derivative of the logistic function where it is x.
func slopeAt(x *core.Tensor) *core.Tensor { return Sub(x, Mul(x, x)) }

func lstmDifferentiably(ctx *core.BackwardContext, r recurrence, h0, c0, w, y, acts, c *core.Tensor) {
	steps, d, state := y.Size(0), acts.DType(), y.DType()
	h0, w, y = castTo(h0, d), castTo(w, d), castTo(y, d)
	values, cells := Unbind(acts, 0), Unbind(c, 0)
	dy, dacts, dcells := stepGrads(ctx.GradAt(0), steps, d), stepGrads(ctx.GradAt(1), steps, d), stepGrads(ctx.GradAt(2), steps, d)
	zero := fullLike(h0, 0, h0.DType(), h0.Shape())
	dx := make([]*core.Tensor, steps)
	dh, carry := zero, zero
	r.backwards(c0, cells, func(t int, before *core.Tensor) {
		v, extra := Chunk(values[t], 4, -1), gateGrads(dacts[t])
		in, forget, cell, out := v[0], v[1], v[2], v[3]
		tanh := Tanh(cells[t])
		dh = plus(dh, dy[t])
		dc := plus(Add(carry, Mul(Mul(dh, out), belowOne(tanh))), dcells[t])
		dx[t] = Cat([]*core.Tensor{
			Mul(plus(Mul(dc, cell), extra[0]), slopeAt(in)),
			Mul(plus(Mul(dc, before), extra[1]), slopeAt(forget)),
			Mul(plus(Mul(dc, in), extra[2]), belowOne(cell)),
			Mul(plus(Mul(dh, tanh), extra[3]), slopeAt(out)),
		}, -1)
		carry, dh = Mul(dc, forget), product("matmul", dx[t], w, plainForms[0])
	})
	all := Stack(dx, 0)
	ctx.Set(0, castTo(all, state))
	ctx.Set(1, castTo(dh, state))
	ctx.Set(2, carry)
	if ctx.Needs(3) {
		ctx.Set(3, castTo(r.weightGrad(all, h0, y), state))
	}
}

func gruDifferentiably(ctx *core.BackwardContext, r recurrence, h0, w, y, acts *core.Tensor) {
	steps, d, state := y.Size(0), acts.DType(), y.DType()
	h0, w, y = castTo(h0, d), castTo(w, d), castTo(y, d)
	values, states := Unbind(acts, 0), Unbind(y, 0)
	dy, dacts := stepGrads(ctx.GradAt(0), steps, d), stepGrads(ctx.GradAt(1), steps, d)
	dx, ds := make([]*core.Tensor, steps), make([]*core.Tensor, steps)
	dh, carry := fullLike(h0, 0, h0.DType(), h0.Shape()), (*core.Tensor)(nil)
	r.backwards(h0, states, func(t int, before *core.Tensor) {
		v, extra := Chunk(values[t], 4, -1), gateGrads(dacts[t])
		reset, update, next := v[0], v[1], v[2]
		dh = plus(dh, dy[t])
		dn := Mul(plus(Mul(dh, Sub(core.Num(1), update)), extra[2]), belowOne(next))
		dr := Mul(plus(Mul(dn, v[3]), extra[0]), slopeAt(reset))
		dz := Mul(plus(Mul(dh, Sub(before, next)), extra[1]), slopeAt(update))
		dx[t] = Cat([]*core.Tensor{dr, dz, dn}, -1)
		ds[t] = Cat([]*core.Tensor{dr, dz, plus(Mul(dn, reset), extra[3])}, -1)
		carry = Mul(dh, update)
		dh = Add(carry, product("matmul", ds[t], w, plainForms[0]))
	})
	r.setGRU(ctx, Stack(dx, 0), Stack(ds, 0), carry, h0, w, y, state)
}
