package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// Dot returns the sum of the products of the elements of two vectors of one size.
func Dot(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "dot", x, y)
	}
	return ranked("dot", x, y, 1, 1, "two vectors")
}

// VDot is [Dot] with the elements of x conjugated.
func VDot(x, y *core.Tensor) *core.Tensor {
	if parts := distributed(x, y); parts != nil {
		return handOn(parts, "vdot", x, y)
	}
	if x.Err() != nil || !x.DType().IsComplex() {
		return ranked("vdot", x, y, 1, 1, "two vectors")
	}
	op := begin("vdot", &x, &y)
	op.multipliable(x, y)
	if op.err == nil && x.Dim() == 1 && y.Dim() == 1 && x.Size(0) == y.Size(0) && hasDot(x) {
		return op.dot(x, y, true)
	}
	return op.compose(func() *core.Tensor { return Dot(Conj(x), y) })
}

// hasDot reports whether there is a kernel for dot products of vectors like x.
func hasDot(x *core.Tensor) bool {
	d := x.DType()
	return (d.IsComplex() || d == core.Float32 || d == core.Float64) && x.Device().Supports(contract.Dot)
}

// dot returns the dot product of two vectors of one dtype and size.
func (op *opContext) dot(x, y *core.Tensor, conjugate bool) *core.Tensor {
	out := op.out(x.DType(), nil)
	a, b := op.dense(x), op.dense(y)
	if op.err != nil {
		return op.fail()
	}
	c := op.call(contract.Dot).Out(out).In(a).In(b).Bool(conjugate)
	c.Work /= 4 // nothing is written
	op.launch(c)
	if op.grad {
		n := op.node(dotDeriv, x, y)
		n.Any = conjugate
		saveFactors(n, x, y)
		op.attach(n, out)
	}
	return op.done(out)
}

func dotDeriv(ctx *core.BackwardContext) {
	g, conjugate := ctx.Grad(), ctx.Node.Any.(bool)
	if ctx.Needs(0) {
		if y := ctx.Saved(1); conjugate {
			ctx.Set(0, Mul(Conj(g), y))
		} else {
			ctx.Set(0, Mul(g, Conj(y)))
		}
	}
	if ctx.Needs(1) {
		if x := ctx.Saved(0); conjugate {
			ctx.Set(1, Mul(g, x))
		} else {
			ctx.Set(1, Mul(g, Conj(x)))
		}
	}
}
