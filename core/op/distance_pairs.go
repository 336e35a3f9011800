package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
)

const (
	// fewRows is the number of rows up to which the distances of all pairs are computed from the differences of their elements.
	fewRows = 25
	// pairElements is how many differences of elements are stored at a time.
	pairElements = 1 << 22
)

// CDist returns the p-norm of the difference of each row of x [*, n, m] with each of y [*, k, m], of shape [*, n, k]; the
// leading dimensions broadcast. For p = 2 and more than 25 rows it is computed from the inner products of rows, which is
// less exact for rows that are close to each other. It never stores the differences of all pairs.
func CDist(x, y *core.Tensor, p float64) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "cdist", x, y, p)
	}
	op := begin("cdist", &x, &y)
	op.matrices(x, y)
	op.floating("the input", x)
	if op.err == nil && x.Size(-1) != y.Size(-1) {
		op.failf(core.ShapeError, "last dimensions differ, got %s", shapes(x, y))
	}
	if op.err == nil && !(p >= 0) {
		op.failf(core.ValueError, "the norm's order must not be negative, got %v", p)
	}
	var batch []int
	if op.err == nil {
		var err error
		batch, err = core.Broadcast(op.name, x.Shape()[:x.Dim()-2], y.Shape()[:y.Dim()-2])
		op.check(err)
	}
	if op.err != nil {
		return op.fail()
	}
	n, k, m := x.Size(-2), y.Size(-2), x.Size(-1)
	all := core.Numel(batch) * n * k * m
	products := p == 2 && max(n, k) > fewRows && all > 0 && x.DType().Size() >= 4
	if !products && all <= pairElements {
		return op.compose(func() *core.Tensor { return pairNorms(x, y, p) })
	}
	out := op.scope(func() []*core.Tensor {
		u, v := x.Detach(), y.Detach()
		if products {
			return []*core.Tensor{pairProducts(u, v)}
		}
		return []*core.Tensor{inParts(u, func(part *core.Tensor, _, _ int) *core.Tensor { return pairNorms(part, v, p) }, core.Numel(batch)*k*m)}
	})[0]
	if op.check(out.Err()); op.err != nil {
		return op.fail()
	}
	if op.grad {
		node := op.node(pairsDeriv, x, y).Save(x, y).SaveOutput(out, 0)
		node.Floats = []float64{p}
		op.attach(node, out)
	}
	return op.done(out)
}

// pairNorms returns the norms of the differences of all pairs of rows, which it stores.
func pairNorms(x, y *core.Tensor, p float64) *core.Tensor {
	return VectorNorm(Sub(Unsqueeze(x, -2), Unsqueeze(y, -3)), p, []int{-1}, ReduceOptions{})
}

// pairProducts returns the distances of all pairs of rows: the roots of x.x + y.y - 2 x.y.
func pairProducts(x, y *core.Tensor) *core.Tensor {
	squares := func(t *core.Tensor) *core.Tensor { return Sum(Mul(t, t), []int{-1}, true) }
	sums := Add(squares(x), Transpose(squares(y), -2, -1))
	return Sqrt(Relu(Sub(sums, Mul(MatMul(x, Transpose(y, -2, -1)), core.Num(2)))))
}

// inParts returns fn of ranges of x's rows, joined along the rows. fn stores each elements for a row.
func inParts(x *core.Tensor, fn func(part *core.Tensor, first, rows int) *core.Tensor, each int) *core.Tensor {
	n := x.Size(-2)
	step := max(pairElements/max(each, 1), 1)
	var parts []*core.Tensor
	for first := 0; first < n; first += step {
		rows := min(step, n-first)
		parts = append(parts, core.RunScope(func() []*core.Tensor { return []*core.Tensor{fn(Narrow(x, -2, first, rows), first, rows)} })...)
	}
	return Cat(parts, -2)
}

// pairsDeriv is the derivative of [CDist]. With weights w for pairs, the gradient of x is the sum of w * (x - y) over y, for p = 2 by
// products. A distance of 0 has no gradient.
func pairsDeriv(ctx *core.BackwardContext) {
	x, y, out, g, p := ctx.Saved(0), ctx.Saved(1), ctx.Saved(2), ctx.Grad(), ctx.Node.Floats[0]
	if p == 2 {
		w := Where(Eq(out, core.Num(0)), core.Num(0), Div(g, out))
		gradient := func(w, own, other *core.Tensor, shape []int) *core.Tensor {
			return sumTo(Sub(Mul(own, Sum(w, []int{-1}, true)), MatMul(w, other)), shape)
		}
		if ctx.Needs(0) {
			ctx.Set(0, gradient(w, x, y, ctx.InputShape(0)))
		}
		if ctx.Needs(1) {
			ctx.Set(1, gradient(Transpose(w, -2, -1), y, x, ctx.InputShape(1)))
		}
		return
	}
	side := func(own, other, out, g *core.Tensor, shape []int) *core.Tensor {
		batch := out.Shape()[:out.Dim()-2]
		full := func(t *core.Tensor) *core.Tensor {
			return Expand(t, append(slices.Clone(batch), t.Size(-2), t.Size(-1))...)
		}
		own, other = full(own), full(other)
		parts := inParts(own, func(part *core.Tensor, first, rows int) *core.Tensor {
			d := Sub(Unsqueeze(part, -2), Unsqueeze(other, -3))
			norm, gs := Unsqueeze(Narrow(out, -2, first, rows), -1), Unsqueeze(Narrow(g, -2, first, rows), -1)
			var each *core.Tensor
			switch {
			case p == 0:
				return ZerosLike(part, TensorOptions{})
			case p == 1:
				each = Mul(gs, Sign(d))
			case math.IsInf(p, 1):
				each = Mul(shareAmong(Abs(d), norm, Squeeze(gs, -1), []int{d.Dim() - 1}), Sign(d))
			default:
				each = normGrad.apply([]float64{p}, Expand(gs, d.Shape()...), d, Expand(norm, d.Shape()...))
			}
			return Sum(each, []int{-2}, false)
		}, core.Numel(batch)*other.Size(-2)*other.Size(-1))
		return sumTo(parts, shape)
	}
	if ctx.Needs(0) {
		ctx.Set(0, side(x, y, out, g, ctx.InputShape(0)))
	}
	if ctx.Needs(1) {
		ctx.Set(1, side(y, x, Transpose(out, -2, -1), Transpose(g, -2, -1), ctx.InputShape(1)))
	}
}
