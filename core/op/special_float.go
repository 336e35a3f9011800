package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// NextAfter returns the number next to x in the direction of y, elementwise, for float32 and float64.
func NextAfter(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "nextafter", x, y)
	}
	op := begin("nextafter", &x, &y)
	if op.err == nil && !y.IsNumber() && x.DType() != y.DType() {
		d := core.ResultType(x, y)
		return op.compose(func() *core.Tensor { return NextAfter(castTo(x, d), castTo(y, d)) })
	}
	op.multipliable(x, y)
	op.floating("the input", x)
	if op.err == nil && x.DType().IsHalf() {
		op.failf(core.DTypeError, "not defined for %v, want float32 or float64", x.DType())
	}
	shape := op.broadcast(x, y)
	return op.compose(func() *core.Tensor {
		in, to := op.own(Contiguous(Expand(x.Detach(), shape...))), op.own(Contiguous(Expand(y.Detach(), shape...)))
		out := op.out(x.DType(), shape)
		if op.err != nil {
			return op.fail()
		}
		op.launch(op.call(contract.NextAfter).Out(out).In(in).In(to))
		return op.done(out)
	})
}

// NextAfterInPlace replaces x by the numbers next to it in the direction of y and returns it.
func NextAfterInPlace(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "nextafter_", x, y)
	}
	return replace("nextafter_", func(x *core.Tensor) *core.Tensor { return NextAfter(x, y) }, x, y)
}

// Frexp returns mantissas, of a size in [0.5, 1) or 0, and int32 exponents with x = mantissa * 2^exponent.
func Frexp(x *core.Tensor) (mantissa, exponent *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "frexp", x)
	}
	op := begin("frexp", &x)
	op.floatTensor(x)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	if x.DType().IsHalf() {
		out := core.RunScope(func() []*core.Tensor {
			mantissa, exponent := Frexp(castTo(x, core.Float32))
			return []*core.Tensor{castTo(mantissa, x.DType()), exponent}
		})
		return out[0], out[1]
	}
	in := op.dense(x)
	mantissa, exponent = op.outLike(x), op.out(core.Int32, x.Shape())
	if op.err != nil {
		return op.fail(), op.fail()
	}
	op.launch(op.call(contract.Frexp).Out(mantissa).Out(exponent).In(in))
	if op.grad {
		op.attach(op.node(frexpDeriv, x).Save(exponent), mantissa)
	}
	return op.done2(mantissa, exponent)
}

// frexpDeriv is exact but where 2^exponent is beyond the dtype.
func frexpDeriv(ctx *core.BackwardContext) {
	exponent := ctx.Saved(0)
	if !ctx.Failed() {
		ctx.Set(0, Mul(ctx.Grad(), Exp2(castTo(Neg(exponent), ctx.InputDType(0)))))
	}
}

func init() {
	doubles := []core.DType{core.Float32}
	register("special",
		Row{Name: "nextafter", Func: NextAfter, InPlace: NextAfterInPlace, Args: inputAnd(Arg{Name: "other"}), Memory: true, NoGrad: "it is a step to a neighbour",
			Doc: "The next number of the dtype in the direction of other.", Samples: []Sample{{Args: []any{Shaped(3, 4), Shaped(4)}, DTypes: doubles}}},
		Row{Name: "frexp", Func: Frexp, Args: inputAnd(), Memory: true, Doc: "Mantissas, of a size in [0.5, 1) or 0, and int32 exponents: input = mantissa * 2^exponent. Floating-point only.",
			Samples: []Sample{{Args: []any{Between(1.1, 1.9, 3, 2)}}, {Name: "small", Args: []any{Between(-0.24, -0.13, 4)}}}},
	)
}
