package op

import (
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

var (
	varGrad = elementwise("var_grad", "x, mean, scale", "(x - mean) * scale", "grad*scale", "-grad*scale", "grad*(x - mean)")
	stdGrad = elementwise("std_grad", "g, std", "where(std == 0, 0, g/(2*std))",
		"where(std == 0, 0, grad/(2*std))", "where(std == 0, 0, -grad*out/std)")
)

// Var returns the variance of x, which must be floating point, over dims, or over all dimensions if there are none: the
// sum of squared deviations from the mean divided by the number of elements less the correction (1 for a sample, 0 for a
// whole population). It is NaN where nothing is left to divide by.
func Var(x *core.Tensor, dims []int, correction float64, keepdim bool) *core.Tensor {
	if x.Err() == nil && x.DType().IsComplex() {
		out, _ := complexMoments("var", x, dims, correction, keepdim, false)
		return out
	}
	if parts := distributed(x); parts != nil {
		return handOn(parts, "var", x, dims, correction, keepdim)
	}
	out, _ := moments("var", contract.Var, x, dims, correction, keepdim, false)
	return out
}

// Std returns the square root of [Var].
func Std(x *core.Tensor, dims []int, correction float64, keepdim bool) *core.Tensor {
	if x.Err() == nil && x.DType().IsComplex() {
		out, _ := complexMoments("std", x, dims, correction, keepdim, false)
		return out
	}
	if parts := distributed(x); parts != nil {
		return handOn(parts, "std", x, dims, correction, keepdim)
	}
	out, _ := moments("std", contract.Std, x, dims, correction, keepdim, false)
	return out
}

// VarMean returns [Var] and [Mean] of x, found in one pass.
func VarMean(x *core.Tensor, dims []int, correction float64, keepdim bool) (variance, mean *core.Tensor) {
	if x.Err() == nil && x.DType().IsComplex() {
		return complexMoments("var_mean", x, dims, correction, keepdim, true)
	}
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "var_mean", x, dims, correction, keepdim)
	}
	return moments("var_mean", contract.Var, x, dims, correction, keepdim, true)
}

// StdMean returns [Std] and [Mean] of x, found in one pass.
func StdMean(x *core.Tensor, dims []int, correction float64, keepdim bool) (std, mean *core.Tensor) {
	if x.Err() == nil && x.DType().IsComplex() {
		return complexMoments("std_mean", x, dims, correction, keepdim, true)
	}
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "std_mean", x, dims, correction, keepdim)
	}
	return moments("std_mean", contract.Std, x, dims, correction, keepdim, true)
}

// complexMoments is moments for complex numbers, whose variance is that of their real parts plus that of their imaginary ones.
func complexMoments(name string, x *core.Tensor, dims []int, correction float64, keepdim, wantMean bool) (out, mean *core.Tensor) {
	out = compose(name, func() *core.Tensor {
		v := Add(Var(Real(x), dims, correction, keepdim), Var(Imag(x), dims, correction, keepdim))
		if strings.HasPrefix(name, "std") {
			zero := Eq(v, core.IntNum(0)) // where the root has no derivative
			return Where(zero, v, Sqrt(Where(zero, core.IntNum(1), v)))
		}
		return v
	})
	if wantMean && out.Err() == nil {
		return out, Mean(x, dims, keepdim)
	}
	return out, out
}

// moments computes the spread of x and, for its derivative or if it is wanted, the mean.
func moments(name string, k core.KernelID, x *core.Tensor, dims []int, correction float64, keepdim, wantMean bool) (out, mean *core.Tensor) {
	op := begin(name, &x)
	op.floating("the input", x)
	r := op.reduction(x, dims, keepdim)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	out = op.out(x.DType(), r.shape)
	if wantMean {
		mean = op.out(x.DType(), r.shape)
	} else if op.grad && !x.DType().IsHalf() {
		mean = op.temp(x.DType(), r.shape...)
	}
	if op.err != nil {
		return op.fail(), op.fail()
	}
	c := op.call(k).Out(out)
	if mean != nil {
		c.Out(mean)
	}
	op.launch(c.In(x).Dims(r.dims).Float(correction))
	if op.grad {
		deriv := varDeriv
		if k == contract.Std {
			deriv = stdDeriv
		}
		count := float64(r.count(x))
		n := op.node(deriv, x).Save(x)
		switch {
		case x.DType().IsHalf():
			n.Save(nil) // deviations from a rounded mean have its error, so the derivative finds the mean again
		case wantMean:
			n.SaveOutput(mean, 1)
		default:
			n.Save(mean)
		}
		if k == contract.Std {
			n.SaveOutput(out, 0)
		}
		n.Ints, n.Floats = r.dims, []float64{count, max(count-correction, 0)}
		if wantMean {
			op.attach(n, out, mean)
		} else {
			op.attach(n, out)
		}
	}
	if !wantMean {
		return op.done(out), nil
	}
	return op.done2(out, mean)
}

func varDeriv(ctx *core.BackwardContext) { ctx.Set(0, momentsDeriv(ctx, ctx.GradAt(0))) }

func stdDeriv(ctx *core.BackwardContext) {
	g := ctx.GradAt(0)
	if g != nil {
		g = stdGrad.apply(nil, g, ctx.Saved(2))
	}
	ctx.Set(0, momentsDeriv(ctx, g))
}

// momentsDeriv returns the gradient of x from g, that of the variance, and that of the mean; either may be nil.
func momentsDeriv(ctx *core.BackwardContext, g *core.Tensor) *core.Tensor {
	shape, dims, count, divisor := ctx.InputShape(0), ctx.Node.Ints, ctx.Node.Floats[0], ctx.Node.Floats[1]
	var sum *core.Tensor
	if g != nil {
		x, mean := ctx.Saved(0), ctx.Saved(1)
		if ctx.Failed() {
			return nil
		}
		x = castTo(x, statType(x.DType()))
		if mean == nil || ctx.CreateGraph() {
			mean = Mean(x, dims, g.Dim() == len(shape)) // as a function of x
		}
		scale := Mul(castTo(g, x.DType()), core.Num(2/divisor))
		sum = castTo(varGrad.apply(nil, x, spread(mean, shape, dims), spread(scale, shape, dims)), ctx.InputDType(0))
	}
	if ctx.Node.Outputs() > 1 && ctx.GradAt(1) != nil {
		m := spread(Div(ctx.GradAt(1), core.Num(count)), shape, dims)
		if sum == nil {
			return m
		}
		return Add(sum, m)
	}
	return sum
}
