package tensor

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// move returns what forward makes of x, as one recorded operation whose derivative is backward.
func move(name string, x *core.Tensor, forward, backward func(x *core.Tensor) *core.Tensor) *core.Tensor {
	return moved(name, x, forward, backward)
}

// moved is move for a derivative that is a function, a *joining or an *ending.
func moved(name string, x *core.Tensor, forward func(x *core.Tensor) *core.Tensor, backward any) *core.Tensor {
	if err := x.Usable(name); err != nil {
		return core.ErrorTensor(err)
	}
	var y *core.Tensor
	if err := core.RefuseTangent(name, x); err != nil {
		return core.ErrorTensor(err)
	}
	core.NoGrad(func() { y = forward(x) })
	m := core.CurrentMode()
	if y.Err() != nil || !m.GradEnabled() || !x.RequiresGrad() {
		return y
	}
	n := core.NewNode(m, name, moveDeriv, x)
	if err := n.Problem(); err != nil {
		n.Release()
		return core.ErrorTensor(err)
	}
	n.Any = backward
	n.AttachLast(y, 0)
	return y
}

func moveDeriv(ctx *core.BackwardContext) {
	g := ctx.Grad()
	if g == nil {
		return
	}
	switch d := ctx.Node.Any.(type) {
	case *joining:
		ctx.Set(0, d.backward(g))
	case *ending:
		ctx.Set(0, d.backward(g))
	case func(*core.Tensor) *core.Tensor:
		ctx.Set(0, d(g))
	}
}

func itself(x *core.Tensor) *core.Tensor { return x.Alias(true) }

// done returns out after a collective that fills it.
func done(w *collective.Work, out *core.Tensor) *core.Tensor {
	if err := w.Err(); err != nil {
		return core.ErrorTensor(err)
	}
	return out
}

// failed returns the first tensor of the list that carries an error, or nil.
func failed(list ...*core.Tensor) *core.Tensor {
	for _, t := range list {
		if t.Err() != nil {
			return t
		}
	}
	return nil
}

// empty returns an uninitialised tensor of x's dtype on its device.
func empty(x *core.Tensor, shape []int) *core.Tensor {
	d := x.DType()
	return op.EmptyWith(shape, op.TensorOptions{DType: &d, Device: x.Device()})
}

// zeros is empty with zeros.
func zeros(x *core.Tensor, shape []int) *core.Tensor {
	d := x.DType()
	return op.ZerosWith(shape, op.TensorOptions{DType: &d, Device: x.Device()})
}

var reductions = map[core.Combination]collective.ReduceOp{core.Sums: collective.Sum, core.Means: collective.Avg, core.Products: collective.Product,
	core.Maxima: collective.Max, core.Minima: collective.Min}

// fresh returns a contiguous copy of x, which a collective may change.
func fresh(x *core.Tensor) *core.Tensor {
	y := empty(x, x.Shape())
	if y.Err() != nil {
		return y
	}
	return op.CopyInPlace(y, x)
}

// combined returns the combination of the ranks' tensors: from pending to replicated.
func combined(g *collective.Group, x *core.Tensor, c core.Combination) *core.Tensor {
	if err := differentiable("redistribute", x, c); err != nil {
		return core.ErrorTensor(err)
	}
	return move("all_reduce", x, func(x *core.Tensor) *core.Tensor {
		y := fresh(x)
		if y.Err() != nil {
			return y
		}
		return done(g.AllReduce(y, reductions[c]), y)
	}, share(g, c))
}

// share returns the derivative of a combination for one rank's tensor. All ranks use one gradient of the combination, so in second
// derivatives what it gets from them is summed.
func share(g *collective.Group, c core.Combination) func(x *core.Tensor) *core.Tensor {
	return func(x *core.Tensor) *core.Tensor {
		if core.CurrentMode().GradEnabled() && x.RequiresGrad() {
			x = divided(g, x)
		}
		if c != core.Means {
			return itself(x)
		}
		return op.Div(x, core.Num(float64(g.Size())))
	}
}

// differentiable fails for combinations through which no gradient passes.
func differentiable(name string, x *core.Tensor, c core.Combination) error {
	if c != core.Sums && c != core.Means && core.CurrentMode().GradEnabled() && x.RequiresGrad() {
		return core.Errorf(core.NotImplemented, name, "no gradient passes through Partial(%v); detach the tensor, or use sum or avg", c)
	}
	return nil
}

// divided is x itself, of which every rank uses another part, or for another purpose: its gradient is the sum of the ranks'. If x was joined
// of the ranks' parts, each rank gets its part of the sum at once.
func divided(g *collective.Group, x *core.Tensor) *core.Tensor {
	if y := joinedAndDivided(g, x); y != nil {
		return y
	}
	return move("divide", x, func(x *core.Tensor) *core.Tensor { return x.Alias(false) },
		func(x *core.Tensor) *core.Tensor { return combined(g, x, core.Sums) })
}

// A joining is the derivative of a joining of the ranks' parts of dimension d.
type joining struct {
	g *collective.Group
	d int
}

func (j *joining) backward(x *core.Tensor) *core.Tensor { return kept(j.g, x, j.d) }

// joinedAndDivided is divided for the result of a joining: in place of a sum on all ranks, of which each keeps a part, it is a reduce-scatter.
// It returns nil for other tensors, and for one with hooks, which want the gradient of the whole.
func joinedAndDivided(g *collective.Group, x *core.Tensor) *core.Tensor {
	meta := x.AutogradMeta()
	if meta == nil {
		return nil
	}
	e := meta.Edge()
	defer e.Node.Release()
	j, ok := e.Node.Any.(*joining)
	if !ok || j.g != g || e.Node.HasHooks() {
		return nil
	}
	below := e.Node.Edges()
	if len(below) != 1 || below[0].Node == nil {
		return nil
	}
	part, err := below[0].Node.Placeholder(below[0].Index)
	if err != nil {
		return core.ErrorTensor(err)
	}
	defer part.Release()
	m := core.CurrentMode()
	var y *core.Tensor
	core.NoGrad(func() { y = x.Alias(false) })
	n := core.NewNode(m, "all_gather", moveDeriv, part)
	if err := n.Problem(); err != nil {
		n.Release()
		return core.ErrorTensor(err)
	}
	n.Any = func(x *core.Tensor) *core.Tensor { return scattered(g, x, core.Sums, j.d) }
	n.AttachLast(y, 0)
	return y
}

// kept returns the calling rank's part of dimension d: from replicated to sharded.
func kept(g *collective.Group, x *core.Tensor, d int) *core.Tensor {
	n := x.Size(d)
	return move("shard", x, func(x *core.Tensor) *core.Tensor {
		start, length := chunk(n, g.Size(), g.Rank())
		return fresh(op.Narrow(x, d, start, length))
	}, func(x *core.Tensor) *core.Tensor { return gathered(g, x, d, n) })
}

// gathered joins the ranks' parts of dimension d, of n elements: from sharded to replicated.
func gathered(g *collective.Group, x *core.Tensor, d, n int) *core.Tensor {
	return moved("all_gather", x, func(x *core.Tensor) *core.Tensor {
		x = padded(x, d, n, g.Size())
		if x.Err() != nil {
			return x
		}
		if d == 0 {
			shape := append([]int{x.Size(0) * g.Size()}, x.Shape()[1:]...)
			out := empty(x, shape)
			if out.Err() != nil {
				return out
			}
			return op.Narrow(done(g.AllGatherInto(out, x), out), 0, 0, n)
		}
		outs := make([]*core.Tensor, g.Size())
		for i := range outs {
			outs[i] = empty(x, x.Shape())
		}
		if t := failed(outs...); t != nil {
			return t
		}
		if err := g.AllGather(outs, x).Err(); err != nil {
			return core.ErrorTensor(err)
		}
		return op.Narrow(op.Cat(outs, d), d, 0, n)
	}, &joining{g, d})
}

// padded returns a contiguous part of dimension d, of n elements in the whole, with as many elements as the first of k ranks has.
func padded(x *core.Tensor, d, n, k int) *core.Tensor {
	_, first := chunk(n, k, 0)
	if more := first - x.Size(d); more > 0 {
		shape := append([]int(nil), x.Shape()...)
		shape[d] = more
		fill := zeros(x, shape)
		if fill.Err() != nil {
			return fill
		}
		x = op.Cat([]*core.Tensor{x, fill}, d)
	}
	return op.Contiguous(x)
}

// scattered returns the calling rank's part of dimension d of the combination: from pending to sharded.
func scattered(g *collective.Group, x *core.Tensor, c core.Combination, d int) *core.Tensor {
	if err := differentiable("redistribute", x, c); err != nil {
		return core.ErrorTensor(err)
	}
	n, k := x.Size(d), g.Size()
	return move("reduce_scatter", x, func(x *core.Tensor) *core.Tensor {
		ins := make([]*core.Tensor, k)
		for i := range ins {
			start, length := chunk(n, k, i)
			ins[i] = padded(op.Narrow(x, d, start, length), d, n, k)
		}
		if t := failed(ins...); t != nil {
			return t
		}
		out := empty(x, ins[0].Shape())
		if out.Err() != nil {
			return out
		}
		_, length := chunk(n, k, g.Rank())
		return op.Narrow(done(g.ReduceScatter(out, ins, reductions[c]), out), d, 0, length)
	}, func(x *core.Tensor) *core.Tensor { return share(g, c)(gathered(g, x, d, n)) })
}

// exchanged shards dimension to instead of dimension from, of n elements.
func exchanged(g *collective.Group, x *core.Tensor, from, to, n int) *core.Tensor {
	m, k := x.Size(to), g.Size()
	return move("all_to_all", x, func(x *core.Tensor) *core.Tensor {
		ins, outs := make([]*core.Tensor, k), make([]*core.Tensor, k)
		_, own := chunk(m, k, g.Rank())
		for i := range ins {
			start, length := chunk(m, k, i)
			ins[i] = op.Contiguous(op.Narrow(x, to, start, length))
			shape := append([]int(nil), x.Shape()...)
			_, shape[from] = chunk(n, k, i)
			shape[to] = own
			outs[i] = empty(x, shape)
		}
		if t := failed(append(ins, outs...)...); t != nil {
			return t
		}
		if err := g.AllToAll(outs, ins).Err(); err != nil {
			return core.ErrorTensor(err)
		}
		return op.Cat(outs, from)
	}, func(x *core.Tensor) *core.Tensor { return exchanged(g, x, to, from, m) })
}

// pending returns x on rank 0 and what adds nothing to it on the others: from replicated to pending.
func pending(g *collective.Group, x *core.Tensor, c core.Combination) *core.Tensor {
	if c != core.Sums { // combined with itself, x is x
		if c == core.Products {
			return core.ErrorTensor(core.Errorf(core.NotImplemented, "redistribute", "to Partial(product) from another placement"))
		}
		if c != core.Means {
			return x.Alias(true)
		}
		return move("pend", x, func(x *core.Tensor) *core.Tensor { return x.Alias(false) },
			func(x *core.Tensor) *core.Tensor { return op.Mul(x, core.Num(float64(g.Size()))) })
	}
	return move("pend", x, func(x *core.Tensor) *core.Tensor {
		if g.Rank() == 0 {
			return x.Alias(false)
		}
		return zeros(x, x.Shape())
	}, itself)
}
