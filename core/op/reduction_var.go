package op

import "github.com/plait-ml/plait/core"

var (
	varKernel = core.Kernel("var")
	stdKernel = core.Kernel("std")
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
	out, _ := moments("var", varKernel, x, dims, correction, keepdim, false)
	return out
}

// Std returns the square root of [Var].
func Std(x *core.Tensor, dims []int, correction float64, keepdim bool) *core.Tensor {
	out, _ := moments("std", stdKernel, x, dims, correction, keepdim, false)
	return out
}

// VarMean returns [Var] and [Mean] of x, found in one pass.
func VarMean(x *core.Tensor, dims []int, correction float64, keepdim bool) (variance, mean *core.Tensor) {
	return moments("var_mean", varKernel, x, dims, correction, keepdim, true)
}

// StdMean returns [Std] and [Mean] of x, found in one pass.
func StdMean(x *core.Tensor, dims []int, correction float64, keepdim bool) (std, mean *core.Tensor) {
	return moments("std_mean", stdKernel, x, dims, correction, keepdim, true)
}

// moments computes the spread of x and, for its derivative or if it is wanted, the mean.
func moments(name string, k core.KernelID, x *core.Tensor, dims []int, correction float64, keepdim, wantMean bool) (out, mean *core.Tensor) {
	a := beginTensor(name, x)
	a.floating("the input", x)
	r := a.reduction(x, dims, keepdim)
	if a.err != nil {
		return a.fail(), a.fail()
	}
	out = a.out(x.DType(), r.shape)
	if wantMean {
		mean = a.out(x.DType(), r.shape)
	} else if a.grad {
		mean = a.temp(x.DType(), r.shape...)
	}
	if a.err != nil {
		return a.fail(), a.fail()
	}
	c := a.call(k).Out(out)
	if mean != nil {
		c.Out(mean)
	}
	a.launch(c.In(x).Dims(r.dims).Float(correction))
	if a.grad {
		deriv := varDeriv
		if k == stdKernel {
			deriv = stdDeriv
		}
		count := float64(r.count(x))
		n := a.node(deriv, x).Save(x)
		if wantMean {
			n.SaveOutput(mean, 1)
		} else {
			n.Save(mean)
		}
		if k == stdKernel {
			n.SaveOutput(out, 0)
		}
		n.Ints, n.Floats = r.dims, []float64{count, max(count-correction, 0)}
		if wantMean {
			a.attach(n, out, mean)
		} else {
			a.attach(n, out)
		}
	}
	if !wantMean {
		return a.done(out), nil
	}
	return a.done2(out, mean)
}

func varDeriv(d *core.Derivation) { d.Set(0, momentsDeriv(d, d.GradAt(0))) }

func stdDeriv(d *core.Derivation) {
	g := d.GradAt(0)
	if g != nil {
		g = stdGrad.apply(nil, g, d.Saved(2))
	}
	d.Set(0, momentsDeriv(d, g))
}

// momentsDeriv returns the gradient of x from g, that of the variance, and that of the mean; either may be nil.
func momentsDeriv(d *core.Derivation, g *core.Tensor) *core.Tensor {
	shape, dims, count, divisor := d.InputShape(0), d.Node.Ints, d.Node.Floats[0], d.Node.Floats[1]
	var sum *core.Tensor
	if g != nil {
		x, mean := d.Saved(0), d.Saved(1)
		if d.CreateGraph() {
			mean = Mean(x, dims, g.Dim() == len(shape)) // as a function of x
		}
		scale := Mul(g, core.Num(2/divisor))
		sum = varGrad.apply(nil, x, spread(mean, shape, dims), spread(scale, shape, dims))
	}
	if d.Node.Outputs() > 1 && d.GradAt(1) != nil {
		m := spread(Div(d.GradAt(1), core.Num(count)), shape, dims)
		if sum == nil {
			return m
		}
		return Add(sum, m)
	}
	return sum
}
