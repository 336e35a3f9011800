package tensor

import (
	"fmt"
	"slices"

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
	core.Underived(func() { y = forward(x) })
	if y.Err() != nil {
		return y
	}
	if m := core.CurrentMode(); m.GradEnabled() && x.RequiresGrad() {
		n := core.NewNode(m, name, moveDeriv, x)
		if err := n.Problem(); err != nil {
			n.Release()
			return core.ErrorTensor(err)
		}
		n.Any = backward
		n.AttachLast(y, 0)
	}
	if !x.HasTangent() {
		return y
	}
	for _, l := range x.TangentLevels(core.CurrentMode()) {
		var v *core.Tensor // a move is linear
		core.WithMode(func(m core.Mode) core.Mode { return m.Below(l) }, func() { v = moved(name, op.Tangent(x, l), forward, backward) })
		if v.Err() != nil {
			return v
		}
		y.SetBaseTangent(l, v)
	}
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

// done returns out after a collective that fills it from x.
func done(w *collective.Work, out, x *core.Tensor) *core.Tensor {
	err := w.Err()
	if err == nil {
		return out
	}
	// The program gets the error now, and not once more: that of this rank, too, if the ranks' inputs have failed alike.
	s := core.CurrentContext().Stream(out.Device())
	core.TakeReported(s, err)
	if memory := x.Storage(); memory != nil && memory.Err() != nil {
		core.TakeReported(s, memory.Err())
	}
	return core.ErrorTensor(err)
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
		return done(g.AllReduce(y, reductions[c]), y, x)
	}, func(x *core.Tensor) *core.Tensor { return share(g, x) })
}

// share returns the gradient of one rank's part of a pending tensor for x, that of the whole: x itself. All ranks use this one gradient, so in
// second derivatives what it gets from them is summed. The part of a mean has the gradient of the whole too, not a part of that: see [Own] and
// [Local].
func share(g *collective.Group, x *core.Tensor) *core.Tensor {
	if core.CurrentMode().GradEnabled() && x.RequiresGrad() {
		return divided(g, x)
	}
	return itself(x)
}

// times is x itself, whose gradient is multiplied by a factor.
func times(name string, x *core.Tensor, factor float64) *core.Tensor {
	return move(name, x, func(x *core.Tensor) *core.Tensor { return x.Alias(false) },
		func(x *core.Tensor) *core.Tensor { return op.Mul(x, core.Num(factor)) })
}

// differentiable fails for combinations through which no gradient passes.
func differentiable(name string, x *core.Tensor, c core.Combination) error {
	if c != core.Sums && c != core.Means && (core.CurrentMode().GradEnabled() && x.RequiresGrad() || x.HasTangent()) {
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
	v division
}

func (j *joining) backward(x *core.Tensor) *core.Tensor { return kept(j.g, x, j.d, j.v) }

// joinedAndDivided is divided for the result of a joining: in place of a sum on all ranks, of which each keeps a part, it is a reduce-scatter.
// It returns nil for other tensors, and for one with hooks, which want the gradient of the whole.
func joinedAndDivided(g *collective.Group, x *core.Tensor) *core.Tensor {
	meta := x.AutogradMeta()
	if meta == nil || x.HasTangent() {
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
	n.Any = func(x *core.Tensor) *core.Tensor { return scattered(g, x, core.Sums, j.d, j.v) }
	n.AttachLast(y, 0)
	return y
}

// forDim returns the group with a purpose that says which dimension of which tensor it exchanges: ranks whose tensors have other shapes get an error,
// although their parts may have as many elements.
func forDim(g *collective.Group, d int, whole []int) *collective.Group {
	purpose := fmt.Sprintf("dimension %d of a tensor of shape %v", d, whole)
	if before := g.Purpose(); before != "" {
		purpose += " for " + before
	}
	return g.For(purpose)
}

// viewed returns a view of the elements of dimension d at the given positions, with two dimensions in its place if they are regular runs. It
// returns false for others.
func viewed(x *core.Tensor, d int, at []run) (*core.Tensor, bool) {
	switch len(at) {
	case 0:
		return op.Narrow(x, d, 0, 0), true
	case 1:
		return op.Narrow(x, d, at[0].start, at[0].length), true
	}
	stride, ok := regular(at)
	if !ok {
		return nil, false
	}
	off := at[0].start % stride
	from := at[0].start - off
	if off+at[0].length > stride || from+len(at)*stride > x.Size(d) {
		return nil, false
	}
	return op.Narrow(op.Unflatten(op.Narrow(x, d, from, len(at)*stride), d, len(at), stride), d+1, off, at[0].length), true
}

// taken returns the elements of dimension d at the given positions.
func taken(x *core.Tensor, d int, at []run) *core.Tensor {
	if y, ok := viewed(x, d, at); ok {
		if y.Dim() > x.Dim() {
			return op.Flatten(y, d, d+1)
		}
		return y
	}
	list := make([]*core.Tensor, len(at))
	for i, r := range at {
		list[i] = op.Narrow(x, d, r.start, r.length)
	}
	return op.Cat(list, d)
}

// joined joins the ranks' parts of dimension d to a contiguous tensor.
func joined(parts []*core.Tensor, d int, v division) *core.Tensor {
	if pieces := v.pieces(); pieces > 1 {
		var list []*core.Tensor
		for r, runs := range v.parts {
			if len(runs) > 0 {
				list = append(list, op.Unflatten(parts[r], d, pieces, runs[0].length))
			}
		}
		return op.Flatten(op.Cat(list, d+1), d, d+1)
	}
	type source struct {
		to   int
		part *core.Tensor
	}
	var list []source
	for r, runs := range v.parts {
		before := 0
		for _, p := range runs {
			list = append(list, source{p.start, op.Narrow(parts[r], d, before, p.length)})
			before += p.length
		}
	}
	if len(list) == 0 {
		return op.Narrow(parts[0], d, 0, 0)
	}
	slices.SortFunc(list, func(a, b source) int { return a.to - b.to })
	all := make([]*core.Tensor, len(list))
	for i, s := range list {
		all[i] = s.part
	}
	return op.Cat(all, d)
}

// kept returns the calling rank's part of dimension d: from replicated to sharded.
func kept(g *collective.Group, x *core.Tensor, d int, v division) *core.Tensor {
	return move("shard", x, func(x *core.Tensor) *core.Tensor {
		return fresh(taken(x, d, v.parts[g.Rank()]))
	}, func(x *core.Tensor) *core.Tensor { return gathered(g, x, d, v) })
}

// gathered joins the ranks' parts of dimension d: from sharded to replicated.
func gathered(g *collective.Group, x *core.Tensor, d int, v division) *core.Tensor {
	return moved("all_gather", x, func(x *core.Tensor) *core.Tensor {
		shape := slices.Clone(x.Shape())
		shape[d] = v.n
		x, whole := op.Contiguous(x), empty(x, shape)
		if t := failed(x, whole); t != nil {
			return t
		}
		outs := make([]*core.Tensor, g.Size())
		for i, at := range v.parts {
			var ok bool
			if outs[i], ok = viewed(whole, d, at); !ok || !outs[i].Contiguous() && !g.InPlace(outs[i]) {
				return gatheredApart(forDim(g, d, shape), x, d, v)
			}
		}
		return done(forDim(g, d, shape).AllGather(outs, x), whole, x)
	}, &joining{g, d, v})
}

// gatheredApart returns the result of gathered where parts cannot be written in their places: they are joined as soon as all are here.
func gatheredApart(g *collective.Group, x *core.Tensor, d int, v division) *core.Tensor {
	outs := make([]*core.Tensor, g.Size())
	for i, at := range v.parts {
		shape := slices.Clone(x.Shape())
		shape[d] = count(at)
		outs[i] = empty(x, shape)
	}
	if t := failed(outs...); t != nil {
		return t
	}
	if y := done(g.AllGather(outs, x), outs[0], x); y.Err() != nil {
		return y
	}
	return joined(outs, d, v)
}

// scattered returns the calling rank's part of dimension d of the combination: from pending to sharded.
func scattered(g *collective.Group, x *core.Tensor, c core.Combination, d int, v division) *core.Tensor {
	if err := differentiable("redistribute", x, c); err != nil {
		return core.ErrorTensor(err)
	}
	return move("reduce_scatter", x, func(x *core.Tensor) *core.Tensor {
		x = op.Contiguous(x)
		ins := make([]*core.Tensor, g.Size())
		for i, at := range v.parts {
			var ok bool
			if ins[i], ok = viewed(x, d, at); !ok {
				ins[i] = taken(x, d, at)
			}
		}
		shape := slices.Clone(x.Shape())
		shape[d] = count(v.parts[g.Rank()])
		out := empty(x, shape)
		if t := failed(append(ins, out)...); t != nil {
			return t
		}
		return done(forDim(g, d, x.Shape()).ReduceScatter(out, ins, reductions[c]), out, x)
	}, func(x *core.Tensor) *core.Tensor { return share(g, gathered(g, x, d, v)) })
}

// exchanged shards dimension to instead of dimension from, as the ranks divide them.
func exchanged(g *collective.Group, x *core.Tensor, from, to int, v, w division) *core.Tensor {
	return move("all_to_all", x, func(x *core.Tensor) *core.Tensor {
		sizes := make([]int, g.Size())
		for i := range sizes {
			sizes[i] = count(v.parts[i])
		}
		own := count(w.parts[g.Rank()])
		outs := sent(g, x, to, w.parts, func(shape []int, i int) { shape[from], shape[to] = sizes[i], own })
		if t := failed(outs...); t != nil {
			return t
		}
		return joined(outs, from, v)
	}, func(x *core.Tensor) *core.Tensor { return exchanged(g, x, to, from, w, v) })
}

// rearranged gives the ranks other parts of dimension d than those that they have. Together these are the same elements.
func rearranged(g *collective.Group, x *core.Tensor, d int, have, want [][]run) *core.Tensor {
	return move("all_to_all", x, func(x *core.Tensor) *core.Tensor {
		me := g.Rank()
		give, take := make([][]run, len(have)), make([][]run, len(have))
		for i := range have {
			_, give[i] = meet(have[me], want[i])
			_, take[i] = meet(want[me], have[i])
		}
		outs := sent(g, x, d, give, func(shape []int, i int) { shape[d] = count(take[i]) })
		if t := failed(outs...); t != nil {
			return t
		}
		return joined(outs, d, division{n: count(want[me]), parts: take})
	}, func(x *core.Tensor) *core.Tensor { return rearranged(g, x, d, want, have) })
}

// sent sends each rank the elements of dimension d at the given positions, and returns what the ranks send, of which size sets the shapes.
func sent(g *collective.Group, x *core.Tensor, d int, give [][]run, size func(shape []int, i int)) []*core.Tensor {
	ins, outs := make([]*core.Tensor, g.Size()), make([]*core.Tensor, g.Size())
	for i := range ins {
		ins[i] = op.Contiguous(taken(x, d, give[i]))
		shape := append([]int(nil), x.Shape()...)
		size(shape, i)
		outs[i] = empty(x, shape)
	}
	if t := failed(append(slices.Clone(ins), outs...)...); t != nil {
		return []*core.Tensor{t}
	}
	if y := done(g.AllToAll(outs, ins), outs[0], x); y.Err() != nil {
		return []*core.Tensor{y}
	}
	return outs
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
	}
	return move("pend", x, func(x *core.Tensor) *core.Tensor {
		if g.Rank() == 0 || c == core.Means {
			return x.Alias(false)
		}
		return zeros(x, x.Shape())
	}, func(x *core.Tensor) *core.Tensor { return once(g, x) })
}

// shares returns the ranks' shares of a sum: from a pending mean to a pending sum. The parts of both have the gradient of the whole.
func shares(g *collective.Group, x *core.Tensor) *core.Tensor {
	return move("pend", x, func(x *core.Tensor) *core.Tensor { return op.Mul(x, core.Num(1/float64(g.Size()))) }, itself)
}

// once is x itself, the gradient of a pending tensor, for all ranks together: in second derivatives, which sum over the ranks what comes back
// for such a gradient (see share), one rank gives it.
func once(g *collective.Group, x *core.Tensor) *core.Tensor {
	return move("once", x, func(x *core.Tensor) *core.Tensor { return x.Alias(false) },
		func(x *core.Tensor) *core.Tensor { return pending(g, x, core.Sums) })
}
