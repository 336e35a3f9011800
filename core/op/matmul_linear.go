package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// Linear returns x @ weightᵀ + bias for x of shape [*, in], weight [out, in] and bias [out], which may be nil. A weight of
// shape [in] gives a result without the last dimension.
func Linear(x, weight, bias *core.Tensor) *core.Tensor {
	if parts := distributed(x, weight, bias); parts != nil {
		return handOn(parts, "linear", x, weight, bias)
	}
	op := begin("linear", &x, &weight, optional(&bias))
	op.multipliable(x, weight, bias)
	op.linearShapes(x, weight, bias)
	if op.err != nil {
		return op.fail()
	}
	if x.Dim() == 1 || weight.Dim() == 1 {
		return op.compose(func() *core.Tensor { return vectorLinear(x, weight, bias) })
	}
	if x.DType().IsComplex() {
		return op.compose(func() *core.Tensor { return complexLinear(x, weight, bias) })
	}
	shape := append([]int(nil), x.Shape()...)
	shape[len(shape)-1] = weight.Size(0)
	out := op.out(op.inputType(x), shape)
	if op.err != nil {
		return op.fail()
	}
	op.multiply(out, x, weight, bias, plainForms[2], 0, false)
	if op.grad {
		n := op.node(linearDeriv, x, weight, bias)
		n.Any = plainForms[2].shared()
		saveFactors(n, x, weight)
		op.attach(n, out)
	}
	return op.done(out)
}

// complexLinear is Linear for complex numbers and a matrix of weights.
func complexLinear(x, weight, bias *core.Tensor) *core.Tensor {
	y := MatMul(x, Transpose(weight, 0, 1))
	if bias == nil {
		return y
	}
	return Add(y, bias)
}

func (op *opContext) linearShapes(x, weight, bias *core.Tensor) {
	switch {
	case op.err != nil:
	case x.Dim() == 0 || weight.Dim() == 0 || weight.Dim() > 2:
		op.failf(core.ShapeError, "want an input [*, in] and a weight [out, in], got %s", shapes(x, weight))
	case x.Size(-1) != weight.Size(-1):
		op.failf(core.ShapeError, "inner dimensions differ, got input %v and weight %v", x.Shape(), weight.Shape())
	case bias == nil:
	case weight.Dim() == 1 && bias.Dim() != 0:
		op.failf(core.ShapeError, "got bias %v, want [] for weight %v", bias.Shape(), weight.Shape())
	case weight.Dim() == 2 && (bias.Dim() != 1 || bias.Size(0) != weight.Size(0)):
		op.failf(core.ShapeError, "got bias %v, want [%d] for weight %v", bias.Shape(), weight.Size(0), weight.Shape())
	}
}

// vectorLinear is Linear if the input or the weight is a vector.
func vectorLinear(x, weight, bias *core.Tensor) *core.Tensor {
	shape := append([]int(nil), x.Shape()[:x.Dim()-1]...)
	if weight.Dim() == 2 {
		shape = append(shape, weight.Size(0))
	} else {
		weight = Reshape(weight, 1, weight.Numel())
		if bias != nil {
			bias = Reshape(bias, 1)
		}
	}
	return Reshape(Linear(rowsOf(Reshape(x, append([]int{1}, x.Shape()...)...)), weight, bias), shape...)
}

func linearDeriv(ctx *core.BackwardContext) {
	setFactorGrads(ctx, 0, ctx.Grad(), *ctx.Node.Any.(*productForm))
	if ctx.Needs(2) {
		d := parameterDType(ctx, 2, ctx.Grad())
		ctx.SetMixed(2, sumToAs(ctx.Grad(), ctx.InputShape(2), &d))
	}
}

// Bilinear returns x1 W_o x2 + bias_o for each output o: x1 is [*, in1], x2 [*, in2], weight [out, in1, in2] and bias
// [out], which may be nil; the result is [*, out].
func Bilinear(x1, x2, weight, bias *core.Tensor) *core.Tensor {
	if parts := distributed(x1, x2, weight, bias); parts != nil {
		return handOn(parts, "bilinear", x1, x2, weight, bias)
	}
	op := begin("bilinear", &x1, &x2, &weight, optional(&bias))
	op.multipliable(x1, x2, weight, bias)
	switch {
	case op.err != nil:
	case weight.Dim() != 3:
		op.failf(core.ShapeError, "got weight %v, want [out, in1, in2]", weight.Shape())
	case x1.Dim() == 0 || x2.Dim() == 0 || !slices.Equal(x1.Shape()[:x1.Dim()-1], x2.Shape()[:x2.Dim()-1]):
		op.failf(core.ShapeError, "want inputs that agree but for the last dimension, got %s", shapes(x1, x2))
	case x1.Size(-1) != weight.Size(1) || x2.Size(-1) != weight.Size(2):
		op.failf(core.ShapeError, "got inputs %s, want [*, %d] x [*, %d] for weight %v", shapes(x1, x2), weight.Size(1), weight.Size(2), weight.Shape())
	case bias != nil && (bias.Dim() != 1 || bias.Size(0) != weight.Size(0)):
		op.failf(core.ShapeError, "got bias %v, want [%d] for weight %v", bias.Shape(), weight.Size(0), weight.Shape())
	}
	if op.err != nil {
		return op.fail()
	}
	lead := x1.Shape()[:x1.Dim()-1]
	rows, outs, in1, in2 := core.Numel(lead), weight.Size(0), weight.Size(1), weight.Size(2)
	shape := append(slices.Clone(lead), outs)
	return op.compose(func() *core.Tensor {
		w := Reshape(Permute(weight, 1, 0, 2), in1, outs*in2)
		left := Reshape(product("bilinear", Reshape(x1, rows, in1), w, plainForms[0]), rows, outs, in2)
		y := Reshape(product("bilinear", left, Reshape(x2, rows, in2, 1), plainForms[0]), shape...)
		if bias != nil {
			y = Add(y, bias)
		}
		return y
	})
}
