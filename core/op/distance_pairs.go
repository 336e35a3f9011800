package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

const (
	// fewRows is the number of rows up to which Euclidean distances are computed from the differences of elements.
	fewRows = 25
	// pairElements is how many differences of elements a gradient that is recorded stores at a time.
	pairElements = 1 << 22
)

// How [CDist] computes Euclidean distances: from the inner products of rows, for many rows, always or never.
const (
	productsIfMany = "use_mm_for_euclid_dist_if_necessary"
	products       = "use_mm_for_euclid_dist"
	noProducts     = "donot_use_mm_for_euclid_dist"
)

// Gradients of distances by differences x, which are NaN where x is. All elements that equal the largest have the whole gradient.
var (
	pairs1Grad   = elementwise("pairs1_grad", "g, x", "where(isnan(x), x, g * sign(x))", "where(isnan(x), x, grad * sign(x))", "")
	pairsMaxGrad = elementwise("pairs_max_grad", "g, x, norm", "where(isnan(abs(x) - norm), abs(x) - norm, where(abs(x) - norm == 0, g * sign(x), 0))",
		"where(isnan(abs(x) - norm), abs(x) - norm, where(abs(x) - norm == 0, grad * sign(x), 0))", "", "")
)

// CDistOptions are the options of [CDist].
type CDistOptions struct {
	// ComputeMode says when Euclidean distances are computed from the inner products of rows, which is faster, but less exact for rows that
	// are close to each other: "use_mm_for_euclid_dist_if_necessary" (the default), with more than 25 rows; "use_mm_for_euclid_dist", always;
	// or "donot_use_mm_for_euclid_dist", never.
	ComputeMode string
}

// CDist returns the p-norm of the difference of each row of x [*, n, m] with each of y [*, k, m], of shape [*, n, k]; the
// leading dimensions broadcast. The largest difference, for an infinite p, is that of those that are not NaN. It never stores the differences of all pairs.
func CDist(x, y *core.Tensor, p float64, o CDistOptions) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "cdist", x, y, p, o)
	}
	op := begin("cdist", &x, &y)
	op.matrices(x, y)
	op.floating("the input", x)
	if op.err == nil && x.Size(-1) != y.Size(-1) {
		op.failf(core.ShapeError, "last dimensions differ, got %s", shapes(x, y))
	}
	op.normOrder(p)
	switch o.ComputeMode {
	case "", productsIfMany, products, noProducts:
	default:
		op.failf(core.ValueError, "compute_mode must be one of %s, %s and %s, got %q", productsIfMany, products, noProducts, o.ComputeMode)
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
	n, k := x.Size(-2), y.Size(-2)
	var out *core.Tensor
	many := max(n, k) > fewRows && o.ComputeMode != noProducts || o.ComputeMode == products
	if p == 2 && many && core.Numel(batch)*n*k*x.Size(-1) > 0 && x.DType().Size() >= 4 {
		out = op.scope(func() []*core.Tensor { return []*core.Tensor{pairProducts(x.Detach(), y.Detach())} })[0]
		op.check(out.Err())
	} else {
		out = op.out(x.DType(), append(slices.Clone(batch), n, k))
		rows := func(t *core.Tensor) *core.Tensor {
			return op.dense(op.own(op.repeated(t, append(slices.Clone(batch), t.Size(-2), t.Size(-1)))))
		}
		op.pairNorms(out, rows(x), rows(y), p, false)
	}
	if op.err != nil {
		return op.fail()
	}
	if op.grad {
		node := op.node(pairsDeriv, x, y).Save(x, y).SaveOutput(out, 0)
		node.Floats = []float64{p}
		op.attach(node, out)
	}
	return op.done(out)
}

// PDist returns the p-norm of the difference of each row of x [*, n, m] with each later one, of shape [*, n * (n - 1) / 2].
func PDist(x *core.Tensor, p float64) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "pdist", x, p)
	}
	op := begin("pdist", &x)
	op.matrices(x, x)
	op.floating("the input", x)
	op.normOrder(p)
	if op.err != nil {
		return op.fail()
	}
	n := x.Size(-2)
	out := op.out(x.DType(), append(slices.Clone(x.Shape()[:x.Dim()-2]), n*(n-1)/2))
	rows := op.dense(x)
	op.pairNorms(out, rows, rows, p, true)
	if op.err != nil {
		return op.fail()
	}
	if op.grad {
		node := op.node(laterPairsDeriv, x).Save(x).SaveOutput(out, 0)
		node.Floats = []float64{p}
		op.attach(node, out)
	}
	return op.done(out)
}

// normOrder fails if p is not the order of a norm.
func (op *opContext) normOrder(p float64) {
	if op.err == nil && !(p >= 0) {
		op.failf(core.ValueError, "the norm's order must not be negative, got %v", p)
	}
}

// pairNorms launches the kernel for contiguous rows x and y of one batch.
func (op *opContext) pairNorms(out, x, y *core.Tensor, p float64, triangle bool) {
	if op.err != nil || out.Numel() == 0 {
		return
	}
	lead := x.Dim() - 2
	c := op.call(contract.PairNorms).Out(out).In(op.stacked(x, lead)).In(op.stacked(y, lead))
	c.Work = x.Numel() * y.Size(-2)
	op.launch(contract.PairAttrs{Triangle: triangle, P: p}.AddTo(c))
}

// stacked returns t with its first dims dimensions as one. It is a copy if they are several and t is not contiguous.
func (op *opContext) stacked(t *core.Tensor, dims int) *core.Tensor {
	if dims > 1 {
		t = op.dense(t)
	}
	if op.err != nil {
		return t
	}
	rest := t.Shape()[dims:]
	shape, strides := append([]int{core.Numel(t.Shape()[:dims])}, rest...), append([]int{core.Numel(rest)}, t.Strides()[dims:]...)
	if dims == 1 {
		strides[0] = t.Strides()[0]
	}
	return op.own(core.WrapTensor(op.mode, t.Storage(), t.DType(), shape, strides, t.Offset()))
}

// pairProducts returns the distances of all pairs of rows: the roots of x.x + y.y - 2 x.y, which are one product.
func pairProducts(x, y *core.Tensor) *core.Tensor {
	squares := func(t *core.Tensor) *core.Tensor { return Sum(Mul(t, t), []int{-1}, true) }
	xs, ys := squares(x), squares(y)
	left := Cat([]*core.Tensor{Mul(x, core.Num(-2)), xs, OnesLike(xs, TensorOptions{})}, -1)
	right := Cat([]*core.Tensor{y, OnesLike(ys, TensorOptions{}), ys}, -1)
	return SqrtInPlace(ReluInPlace(MatMul(left, Transpose(right, -2, -1))))
}

// inParts returns fn of ranges of x's rows, joined along the rows. fn stores each elements for a row.
func inParts(x *core.Tensor, fn func(part *core.Tensor, first, rows int) *core.Tensor, each int) *core.Tensor {
	n := x.Size(-2)
	step := max(pairElements/max(each, 1), 1)
	var parts []*core.Tensor
	for first := 0; first == 0 || first < n; first += step {
		rows := min(step, n-first)
		parts = append(parts, core.RunScope(func() []*core.Tensor { return []*core.Tensor{fn(Narrow(x, -2, first, rows), first, rows)} })...)
	}
	return Cat(parts, -2)
}

// pairsDeriv is the derivative of [CDist].
func pairsDeriv(ctx *core.BackwardContext) {
	x, y, out, g, p := ctx.Saved(0), ctx.Saved(1), ctx.Saved(2), ctx.Grad(), ctx.Node.Floats[0]
	if ctx.Failed() {
		return
	}
	for i, own := range []*core.Tensor{x, y} {
		if !ctx.Needs(i) {
			continue
		}
		other := y
		if i == 1 {
			other, out, g = x, Transpose(out, -2, -1), Transpose(g, -2, -1)
		}
		ctx.Set(i, sumTo(pairsGradient(ctx, own, other, out, g, p), ctx.InputShape(i)))
	}
}

// oneKernel reports whether gradients of distances are those of the kernel, which is on CPUs and cannot be differentiated.
func oneKernel(ctx *core.BackwardContext, x *core.Tensor) bool {
	return !ctx.CreateGraph() && x.Device().HostAccessible()
}

// pairNormsGrad returns the gradient of the rows own, given those of the distances out to the rows other. The batch of own is that of out.
func pairNormsGrad(ctx *core.BackwardContext, own, other, out, g *core.Tensor, p float64, triangle bool) *core.Tensor {
	op := begin(ctx.Node.Name+"_backward").with(own, other, out, g)
	batch := own.Shape()[:own.Dim()-2]
	if !triangle {
		batch = out.Shape()[:out.Dim()-2]
	}
	dx := op.out(own.DType(), append(slices.Clone(batch), own.Size(-2), own.Size(-1)))
	if op.err != nil {
		return op.fail()
	}
	if out.Numel() == 0 || p == 0 {
		op.fill(dx, core.Num(0))
		return op.done(dx)
	}
	if dx.Numel() == 0 {
		return op.done(dx)
	}
	rows := func(t *core.Tensor) *core.Tensor {
		return op.stacked(op.dense(op.own(op.repeated(t, append(slices.Clone(batch), t.Size(-2), t.Size(-1))))), len(batch))
	}
	dy, y, x, z := op.stacked(g, len(batch)), op.stacked(out, len(batch)), rows(own), rows(other)
	to := op.stacked(dx, len(batch))
	if op.err != nil {
		return op.fail()
	}
	c := op.call(contract.PairNormsGrad).Out(to).In(dy).In(y).In(x).In(z)
	c.Work = dx.Numel() * other.Size(-2)
	op.launch(contract.PairAttrs{Triangle: triangle, P: p}.AddTo(c))
	return op.done(dx)
}

// laterPairsDeriv is the derivative of [PDist]: that of all pairs, whose distances and gradients are symmetric.
func laterPairsDeriv(ctx *core.BackwardContext) {
	x := ctx.Saved(0)
	if x.Err() != nil {
		return
	}
	if oneKernel(ctx, x) {
		ctx.Set(0, pairNormsGrad(ctx, x, x, ctx.Saved(1), ctx.Grad(), ctx.Node.Floats[0], true))
		return
	}
	n := x.Size(-2)
	square := append(slices.Clone(x.Shape()[:x.Dim()-1]), n)
	later := Triu(Full([]int{n, n}, core.BoolNum(true), TensorOptions{Device: x.Device()}), 1)
	all := func(t *core.Tensor) *core.Tensor {
		upper := MaskedScatter(zerosFor(x, x.DType(), square), later, t)
		return Add(upper, Transpose(upper, -2, -1))
	}
	ctx.Set(0, pairsGradient(ctx, x, x, all(ctx.Saved(1)), all(ctx.Grad()), ctx.Node.Floats[0]))
}

// pairsGradient returns the gradient of the rows own, given those of the distances out to the rows other. With weights w for pairs, it is the
// sum of w * (own - other) over other, for p = 2 and many pairs by products. A distance of 0 has no gradient.
func pairsGradient(ctx *core.BackwardContext, own, other, out, g *core.Tensor, p float64) *core.Tensor {
	if err := firstBroken(own, other, out, g); err != nil {
		return err
	}
	if oneKernel(ctx, own) {
		return pairNormsGrad(ctx, own, other, out, g, p, false)
	}
	if p == 2 && out.Numel()*own.Size(-1) > pairElements {
		same := Eq(out, core.Num(0))
		w := Where(same, core.Num(0), Div(g, Where(same, core.Num(1), out)))
		middle := Mean(other, []int{-2}, true) // what all rows have in common would cost digits
		return Sub(Mul(Sub(own, middle), Sum(w, []int{-1}, true)), MatMul(w, Sub(other, middle)))
	}
	batch := out.Shape()[:out.Dim()-2]
	full := func(t *core.Tensor) *core.Tensor {
		return Expand(t, append(slices.Clone(batch), t.Size(-2), t.Size(-1))...)
	}
	own, other = full(own), full(other)
	return inParts(own, func(part *core.Tensor, first, rows int) *core.Tensor {
		d := Sub(Unsqueeze(part, -2), Unsqueeze(other, -3))
		if d.Err() != nil {
			return d
		}
		norm, gs := Unsqueeze(Narrow(out, -2, first, rows), -1), Unsqueeze(Narrow(g, -2, first, rows), -1)
		var each *core.Tensor
		switch {
		case p == 0:
			return ZerosLike(part, TensorOptions{})
		case p == 1:
			each = pairs1Grad.apply(nil, Expand(gs, d.Shape()...), d)
		case p == 2:
			each = norm2Grad.apply(nil, Expand(gs, d.Shape()...), d, Expand(norm, d.Shape()...))
		case math.IsInf(p, 1):
			each = pairsMaxGrad.apply(nil, Expand(gs, d.Shape()...), d, Expand(norm, d.Shape()...))
		default:
			each = normGrad.apply([]float64{p}, Expand(gs, d.Shape()...), d, Expand(norm, d.Shape()...))
		}
		return Sum(each, []int{-2}, false)
	}, core.Numel(batch)*other.Size(-2)*other.Size(-1))
}
