package op

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// scatterModes are the reductions of ScatterReduce by PyTorch's names; mean is a sum that is divided.
var scatterModes = map[string]contract.ScatterMode{"sum": contract.ScatterAdd, "prod": contract.ScatterMul, "mean": contract.ScatterAdd, "amax": contract.ScatterMax, "amin": contract.ScatterMin}

// ScatterReduce returns x with values of src combined with the elements that index names in dimension dim, like
// [Scatter]: their "sum", "prod", "mean", "amax" or "amin". With includeSelf the elements of x take part; without, they
// only stay where no value goes.
func ScatterReduce(x *core.Tensor, dim int, index, src *core.Tensor, reduce string, includeSelf bool) *core.Tensor {
	if parts := distributed(x, index, src); parts != nil {
		return handOn(parts, "scatter_reduce", x, dim, index, src, reduce, includeSelf)
	}
	out, err := newScatterReduce("scatter_reduce", x, dim, index, src, reduce, includeSelf)
	if err != nil {
		return core.ErrorTensor(err)
	}
	return out.apply()
}

// ScatterReduceInPlace changes x as [ScatterReduce] does and returns it.
func ScatterReduceInPlace(x *core.Tensor, dim int, index, src *core.Tensor, reduce string, includeSelf bool) *core.Tensor {
	if parts := distributed(x, index, src); parts != nil {
		return handOn(parts, "scatter_reduce_", x, dim, index, src, reduce, includeSelf)
	}
	op := begin("scatter_reduce_", &x, &index, &src)
	return op.replace(x, func(old *core.Tensor) *core.Tensor { return ScatterReduce(old, dim, index, src, reduce, includeSelf) })
}

// A scatterReduce is one use of ScatterReduce.
type scatterReduce struct {
	name          string
	x, index, src *core.Tensor
	dim           int
	reduce        string
	includeSelf   bool
}

func newScatterReduce(name string, x *core.Tensor, dim int, index, src *core.Tensor, reduce string, includeSelf bool) (*scatterReduce, error) {
	op := begin(name, &x, &index, &src)
	if _, ok := scatterModes[reduce]; !ok {
		op.failf(core.ValueError, "unknown reduction %q, want sum, prod, mean, amax or amin", reduce)
	}
	if op.err == nil && src.IsNumber() {
		op.failf(core.TypeError, "the source must be a tensor")
	}
	if op.err != nil {
		return nil, op.err
	}
	return &scatterReduce{name, x, index, src, dim, reduce, includeSelf}, nil
}

func (s *scatterReduce) apply() *core.Tensor {
	if rank1(s.x, s.index, s.src) {
		return compose(s.name, func() *core.Tensor {
			v := *s
			v.x, v.index, v.src = atLeast(s.x, 1), atLeast(s.index, 1), atLeast(s.src, 1)
			return Reshape(v.apply(), s.x.Shape()...)
		})
	}
	op := begin(s.name).with(s.x, s.index, s.src)
	sc := scattering{name: s.name, mode: scatterModes[s.reduce]}
	s.dim = sc.check(&op, s.x, s.dim, s.index, s.src)
	if op.err == nil && s.reduce == "mean" && (s.x.DType() == core.Bool || s.x.DType() == core.Uint64) {
		op.failf(core.DTypeError, "%v has no mean", s.x.DType())
	}
	if op.err == nil && s.x.DType().IsComplex() && sc.mode != contract.ScatterAdd && sc.mode != contract.ScatterMul {
		op.failf(core.DTypeError, "%v has no %s", s.x.DType(), s.reduce)
	}
	if op.err != nil {
		return op.fail()
	}
	if s.x.DType().IsComplex() {
		return op.compose(s.complexApply)
	}
	var out *core.Tensor
	core.Underived(func() {
		out = compose(s.name, func() *core.Tensor {
			first := s.x
			if !s.includeSelf {
				first = Scatter(s.x, s.dim, s.index, s.identity())
			}
			r := (&scattering{name: s.name, mode: sc.mode}).apply(first, s.dim, s.index, s.src)
			if s.reduce == "mean" {
				r = s.divide(r, s.counts())
			}
			return r
		})
	})
	if out.Err() != nil {
		return out
	}
	if op.grad {
		n := op.node(scatterReduceDeriv, s.x, s.src).Save(s.index)
		n.Any, n.Ints = &scatterReduce{name: s.name, reduce: s.reduce, includeSelf: s.includeSelf}, []int{s.dim}
		if s.reduce == "prod" || s.reduce == "amax" || s.reduce == "amin" {
			n.Save(s.x, s.src).SaveOutput(out, 0)
		}
		op.attach(n, out)
	}
	return op.done(out)
}

// complexApply is apply for complex numbers. Products are made of one slice of the index after the other.
func (s *scatterReduce) complexApply() *core.Tensor {
	y := s.x
	if !s.includeSelf {
		y = Scatter(y, s.dim, s.index, s.identity())
	}
	if s.reduce != "prod" {
		y = ScatterAdd(y, s.dim, s.index, s.src)
		if s.reduce == "mean" {
			y = Div(y, s.counts())
		}
		return y
	}
	y = Clone(y)
	src := s.covered(s.src)
	for i := range s.index.Size(s.dim) {
		index := Narrow(s.index, s.dim, i, 1)
		p := Mul(Gather(y, s.dim, index), Narrow(src, s.dim, i, 1))
		if r := ScatterInPlace(y, s.dim, index, p); r.Err() != nil {
			return r
		}
	}
	return y
}

// identity returns the number that changes nothing when it is combined.
func (s *scatterReduce) identity() *core.Tensor {
	d := s.x.DType()
	switch {
	case s.reduce == "prod":
		return core.IntNum(1)
	case s.reduce == "sum" || s.reduce == "mean":
		return core.IntNum(0)
	case d.IsFloat() && s.reduce == "amax":
		return core.Num(math.Inf(-1))
	case d.IsFloat():
		return core.Num(math.Inf(1))
	}
	least, largest := d.Limits()
	switch {
	case s.reduce == "amax":
		return core.IntNum(least)
	case d == core.Uint64:
		return core.IntNum(-1) // which wraps around to the largest
	}
	return core.IntNum(largest)
}

// counts returns how many values make each element, at least 1.
func (s *scatterReduce) counts() *core.Tensor {
	d := s.x.DType()
	switch {
	case d.IsComplex():
		d = d.Part()
	case d.IsHalf():
		d = core.Float32 // counts past 256 are no half floats
	case d.IsInt():
		d = core.Int64
	}
	o := TensorOptions{DType: &d}
	start := OnesLike(s.x, o)
	if !s.includeSelf {
		start = Maximum(ScatterAdd(ZerosLike(s.x, o), s.dim, s.index, OnesLike(s.index, o)), start)
		return start
	}
	return ScatterAddInPlace(start, s.dim, s.index, OnesLike(s.index, o))
}

// divide returns sum / count in sum's dtype; integers are rounded down.
func (s *scatterReduce) divide(sum, count *core.Tensor) *core.Tensor {
	if sum.DType().IsFloat() {
		return To(Div(sum, count), sum.DType())
	}
	return To(FloorDivide(widened(sum), count), sum.DType())
}

func scatterReduceDeriv(ctx *core.BackwardContext) {
	s := *ctx.Node.Any.(*scatterReduce)
	s.dim, s.index = ctx.Node.Ints[0], ctx.Saved(0)
	g := ctx.Grad()
	var self, src *core.Tensor
	switch s.reduce {
	case "sum":
		self, src = g, g
	case "mean":
		s.x = g
		self = To(Div(g, s.counts()), g.DType())
		src = self
	case "prod":
		s.productDeriv(ctx)
		return
	default:
		s.extremeDeriv(ctx)
		return
	}
	s.set(ctx, self, Gather(src, s.dim, s.index))
}

// set sets the gradients: that of x, before it is known where x takes part, and that of the part of src that the index
// covers.
func (s *scatterReduce) set(ctx *core.BackwardContext, self, src *core.Tensor) {
	if ctx.Needs(0) {
		if !s.includeSelf {
			self = Scatter(self, s.dim, s.index, core.IntNum(0))
		}
		ctx.Set(0, self)
	}
	if ctx.Needs(1) {
		ctx.Set(1, padTo(src, ctx.InputShape(1)))
	}
}

// covered returns the part of src that the index covers.
func (s *scatterReduce) covered(src *core.Tensor) *core.Tensor {
	for i, n := range s.index.Shape() {
		src = Narrow(src, i, 0, n)
	}
	return src
}

// extremeDeriv shares the gradient of a largest or smallest value among all that are equal to it.
func (s *scatterReduce) extremeDeriv(ctx *core.BackwardContext) {
	g, x, src, out := ctx.Grad(), ctx.Saved(1), s.covered(ctx.Saved(2)), ctx.Saved(3)
	isSelf := To(Eq(x, out), g.DType())
	if !s.includeSelf {
		isSelf = Scatter(isSelf, s.dim, s.index, core.IntNum(0))
		// Elements where no value goes stay x's.
		touched := ScatterAdd(ZerosLike(g, TensorOptions{}), s.dim, s.index, OnesLike(src, TensorOptions{}))
		isSelf = Where(Eq(touched, core.IntNum(0)), core.Num(1), isSelf)
	}
	isSrc := To(Eq(src, Gather(out, s.dim, s.index)), g.DType())
	share := Div(g, ScatterAdd(isSelf, s.dim, s.index, isSrc))
	if ctx.Needs(0) {
		ctx.Set(0, Mul(isSelf, share))
	}
	if ctx.Needs(1) {
		ctx.Set(1, padTo(Mul(isSrc, Gather(share, s.dim, s.index)), ctx.InputShape(1)))
	}
}

// productDeriv computes the products of all factors but one, also where some are zero.
func (s *scatterReduce) productDeriv(ctx *core.BackwardContext) {
	x, src, out := ctx.Saved(1), ctx.Saved(2), ctx.Saved(3)
	if ctx.Failed() {
		return
	}
	d := statType(x.DType()) // products of others that halves cannot hold may have a gradient that they can
	g := castTo(ctx.Grad(), d)
	x, src = castTo(x, d), s.covered(castTo(src, d))
	one := core.Num(1)
	product := func(x, src *core.Tensor) *core.Tensor {
		return ScatterReduce(x, s.dim, s.index, src, "prod", s.includeSelf)
	}
	if d != out.DType() {
		out = product(x, src)
	}
	var self, from *core.Tensor
	if ctx.Needs(0) {
		nonzero := Where(Eq(x, core.Num(0)), one, x)
		self = castTo(Div(Mul(g, product(nonzero, src)), nonzero), ctx.InputDType(0))
	}
	if ctx.Needs(1) {
		zero := Eq(src, core.Num(0))
		zeros := Gather(ScatterAdd(ZerosLike(x, TensorOptions{}), s.dim, s.index, To(zero, x.DType())), s.dim, s.index)
		single := LogicalAnd(zero, Eq(zeros, one)) // the only zero among the values of its element
		without := product(x, Where(single, one, src))
		from = Where(single, Gather(Mul(g, without), s.dim, s.index), Div(Gather(Mul(g, out), s.dim, s.index), Where(zero, one, src)))
		from = castTo(from, ctx.InputDType(1))
	}
	s.set(ctx, self, from)
}
