package op

import "github.com/plait-ml/plait/core"

var sumKernel = core.Kernel("sum")

// sumType returns the dtype of sums and products of elements of dtype d.
func sumType(d core.DType) core.DType {
	if d.IsFloat() {
		return d
	}
	return core.Int64
}

// Sum returns the sum of x over dims, or over all dimensions if there are none; integers and bools give int64. The
// dimensions are left out of the result's shape, or have size 1 if keepdim is set. The sum of nothing is 0.
func Sum(x *core.Tensor, dims []int, keepdim bool) *core.Tensor {
	a := begin("sum", x)
	r := a.reduction(x, dims, keepdim)
	if a.err != nil {
		return a.fail()
	}
	out := a.reduce(sumKernel, x, r, sumType(x.DType()))
	if a.err != nil {
		return a.fail()
	}
	if a.grad {
		n := a.node(sumDeriv, x)
		n.Ints = r.dims
		a.attach(n, out)
	}
	return a.done(out)
}

func sumDeriv(d *core.Derivation) { d.Set(0, spread(d.Grad(), d.InputShape(0), d.Node.Ints)) }
