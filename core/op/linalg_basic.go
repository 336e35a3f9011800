package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// Trace returns the sum of the diagonal of a matrix.
func Trace(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "trace", x)
	}
	op := begin("trace", &x)
	if op.err == nil && x.Dim() != 2 {
		op.failf(core.ShapeError, "want a matrix, got %v", x.Shape())
	}
	return op.compose(func() *core.Tensor { return Sum(Diagonal(x, 0, 0, 1), nil, false) })
}

// Cross returns the cross products of vectors along dim, where x and y have size 3; their other dimensions broadcast.
func Cross(x, y *core.Tensor, dim int) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "cross", x, y, dim)
	}
	op := begin("cross", &x, &y)
	shape := op.broadcast(x, y)
	if op.err == nil {
		var err error
		dim, err = core.WrapDim(op.name, dim, len(shape))
		op.check(err)
	}
	if op.err == nil && (len(shape) == 0 || x.Size(dim-len(shape)) != 3 || y.Size(dim-len(shape)) != 3) {
		op.failf(core.ShapeError, "want size 3 along dimension %d, got %s", dim, shapes(x, y))
	}
	if op.err == nil && x.DType().IsFloat() && x.DType() == y.DType() && x.Device().HostAccessible() {
		return op.cross(x, y, shape, dim)
	}
	return op.compose(func() *core.Tensor {
		turn := func(t *core.Tensor, n int) *core.Tensor { return Roll(Expand(t, shape...), []int{-n}, []int{dim}) }
		return Sub(Mul(turn(x, 1), turn(y, 2)), Mul(turn(x, 2), turn(y, 1)))
	})
}

// cross launches the kernel, which CPUs have, for tensors of one floating dtype.
func (op *opContext) cross(x, y *core.Tensor, shape []int, dim int) *core.Tensor {
	out := op.out(x.DType(), shape)
	left, right := op.dense(op.own(op.repeated(x, shape))), op.dense(op.own(op.repeated(y, shape)))
	if op.err != nil {
		return op.fail()
	}
	op.launch(op.call(contract.LinalgCross).Out(out).In(left).In(right).Int(int64(dim)))
	if op.grad {
		n := op.node(crossDeriv, x, y).Save(x, y)
		n.Ints = []int{dim - len(shape)}
		op.attach(n, out)
	}
	return op.done(out)
}

func crossDeriv(ctx *core.BackwardContext) {
	x, y, g, dim := ctx.Saved(0), ctx.Saved(1), ctx.Grad(), ctx.Node.Ints[0]
	if ctx.Needs(0) {
		ctx.Set(0, sumTo(Cross(y, g, dim), ctx.InputShape(0)))
	}
	if ctx.Needs(1) {
		ctx.Set(1, sumTo(Cross(g, x, dim), ctx.InputShape(1)))
	}
}

// Vander returns the matrix whose columns are the powers of a vector, n of them, from the highest to 0 or, with increasing,
// from 0 on. With n < 0 there are as many as elements.
func Vander(x *core.Tensor, n int, increasing bool) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "vander", x, n, increasing)
	}
	op := begin("vander", &x)
	if op.err == nil && x.Dim() != 1 {
		op.failf(core.ShapeError, "want a vector, got shape %v", x.Shape())
	}
	if op.err != nil {
		return op.fail()
	}
	if n < 0 {
		n = x.Numel()
	}
	return op.compose(func() *core.Tensor {
		if n == 0 {
			return Narrow(Clone(Reshape(x, x.Numel(), 1)), 1, 0, 0)
		}
		column := Reshape(x, x.Numel(), 1)
		one := OnesLike(column, TensorOptions{})
		powers := CumProd(Cat([]*core.Tensor{one, Expand(column, x.Numel(), n-1)}, 1), 1)
		if !increasing {
			powers = Fliplr(powers)
		}
		return powers
	})
}

func init() {
	other := Arg{Name: "other"}
	register("linalg",
		Row{Name: "trace", Func: Trace, Args: inputAnd(), Memory: true, Doc: "The sum of the diagonal of a matrix.",
			Samples: []Sample{{Name: "square", Args: []any{Shaped(3, 3)}}, {Name: "wide", Args: []any{Shaped(2, 4)}}, {Name: "empty", Args: []any{Shaped(0, 0)}}}},
		Row{Name: "cross", Func: Cross, Args: inputAnd(other, Arg{Name: "dim", Default: -1}), Doc: "The cross products of vectors of size 3.",
			Samples: []Sample{{Args: []any{Shaped(2, 3), Shaped(2, 3), -1}}, {Name: "broadcast", Args: []any{Shaped(3, 2), Shaped(3, 1), 0}}}},
		Row{Name: "vander", Func: Vander, Args: []Arg{{Name: "x"}, {Name: "N", Default: -1}, {Name: "increasing", Default: false}}, Doc: "The powers of a vector's elements.",
			Samples: []Sample{{Loose: 4, Args: []any{Shaped(3), -1, false}}, {Name: "increasing", Loose: 4, Args: []any{Shaped(2), 4, true}}, {Name: "none", Args: []any{Shaped(3), 0, true}}}},
	)
}
