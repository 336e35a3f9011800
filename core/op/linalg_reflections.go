package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// underived is the derivative of an operation that has none: to want it is an error.
func underived(ctx *core.BackwardContext) {
	ctx.Fail(core.Errorf(core.NotImplemented, ctx.Node.Name, "has no derivative, of which a gradient was wanted"))
}

// Geqrf returns the QR decomposition of matrices [*, m, n] as LAPACK has it: R [*, m, n] with the vectors v of reflections I - tau v vᴴ
// below its diagonal, and the tau [*, k], where k is the smaller of m and n. A v is 1 at its column's place on the diagonal and 0
// above. Q is the reflections' product, which [HouseholderProduct] makes and [Ormqr] multiplies by. There is no gradient.
func Geqrf(x *core.Tensor) (a, tau *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "geqrf", x)
	}
	op := begin("geqrf", &x)
	op.linalgMatrices(x, false)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	a, tau = op.outLike(x), op.out(x.DType(), append(slices.Clone(x.Shape()[:x.Dim()-2]), min(x.Size(-1), x.Size(-2))))
	if op.err != nil {
		return op.fail(), op.fail()
	}
	op.linalgLaunch(contract.LinalgGeqrf, x, nil, contract.LinalgComplexAttrs{}, a, tau)
	if op.grad {
		op.attach(op.node(underived, x), a, tau)
	}
	return op.done2(a, tau)
}

// reflections fails unless the matrices x [*, m, n] and tau [*, k] hold k reflections, as those of [Geqrf].
func (op *opContext) reflections(x, tau *core.Tensor) {
	op.linalgMatrices(x, false)
	if op.err != nil {
		return
	}
	k := 0
	if tau.Dim() > 0 {
		k = tau.Size(-1)
	}
	if tau.DType() != x.DType() || tau.Dim() != x.Dim()-1 || !slices.Equal(tau.Shape()[:tau.Dim()-1], x.Shape()[:x.Dim()-2]) || k > min(x.Size(-1), x.Size(-2)) {
		op.failf(core.ShapeError, "got reflections in %v and factors %v of %v, want [*, m, n] and [*, k] of one dtype, where k is at most m and n", x, tau.Shape(), tau.DType())
	}
}

// A reflector is a product I - V T Vᴴ of reflections, where V [*, m, k] is a unit lower triangle. T is not made: its inverse times the
// factors is 1 on the diagonal and, above it, has the products of the vectors with each other times the factors.
//
// Schreiber, Van Loan: A storage-efficient WY representation for products of Householder transformations, 1989.
type reflector struct{ v, tau, inner *core.Tensor }

func newReflector(x, tau *core.Tensor) reflector {
	k := tau.Size(-1)
	v := unitLower(Narrow(x, -1, 0, k))
	tau = Unsqueeze(tau, -1)
	return reflector{v, tau, Mul(tau, matTimes(adjoint(v), v))}
}

// times returns the product, or with adjointed its adjoint, times y [*, m, c].
func (r reflector) times(y *core.Tensor, adjointed bool) *core.Tensor {
	w := matTimes(adjoint(r.v), y)
	if adjointed {
		w = Mul(conjugate(r.tau), solveWith(adjoint(r.inner), w, &contract.TriangularAttrs{Unit: true}))
	} else {
		w = solveWith(r.inner, Mul(r.tau, w), &contract.TriangularAttrs{Upper: true, Unit: true})
	}
	return Sub(y, matTimes(r.v, w))
}

// HouseholderProduct returns the first n columns [*, m, n] of the product of the reflections I - tau v vᴴ, whose vectors lie below
// the diagonals of x [*, m, n], m not less than n, and whose factors are tau [*, k], k not more than n. See [Geqrf].
func HouseholderProduct(x, tau *core.Tensor) *core.Tensor {
	if parts := distributed(x, tau); parts != nil {
		return handOn(parts, "linalg_householder_product", x, tau)
	}
	op := begin("linalg_householder_product", &x, &tau)
	op.multipliable(x, tau)
	op.linalgMatrices(x, false)
	if op.err == nil && x.Size(-1) > x.Size(-2) {
		op.failf(core.ShapeError, "want no more columns than rows, got shape %v", x.Shape())
	}
	op.reflections(x, tau)
	return op.compose(func() *core.Tensor {
		d := x.DType()
		eye := Expand(Eye(x.Size(-2), x.Size(-1), TensorOptions{DType: &d, Device: x.Device()}), x.Shape()...)
		return newReflector(x, tau).times(eye, false)
	})
}

// Ormqr returns the product of Q [*, m, m] and y [*, m, c] or, with left unset, of y [*, c, m] and Q; with adjointed, of Qᴴ. Q is
// the product of the reflections whose vectors lie below the diagonals of x [*, m, n] and whose factors are tau [*, k], where k is
// the smaller of m and n. See [Geqrf].
func Ormqr(x, tau, y *core.Tensor, left, adjointed bool) *core.Tensor {
	if parts := distributed(x, tau, y); parts != nil {
		return handOn(parts, "ormqr", x, tau, y, left, adjointed)
	}
	op := begin("ormqr", &x, &tau, &y)
	op.multipliable(x, y)
	op.multipliable(x, tau)
	op.reflections(x, tau)
	op.linalgMatrices(y, false)
	side := -1
	if left {
		side = -2
	}
	if op.err == nil && (y.DType() != x.DType() || tau.Size(-1) != min(x.Size(-1), x.Size(-2)) || y.Dim() != x.Dim() || y.Size(side) != x.Size(-2) ||
		!slices.Equal(y.Shape()[:y.Dim()-2], x.Shape()[:x.Dim()-2])) {
		op.failf(core.ShapeError, "got reflections in %v, factors %v and matrices %v, want [*, m, n], [*, min(m, n)] and, with left = %v, matrices with %s of one dtype",
			x, tau.Shape(), y, left, map[bool]string{true: "m rows", false: "m columns"}[left])
	}
	return op.compose(func() *core.Tensor {
		q := newReflector(x, tau)
		if left {
			return q.times(y, adjointed)
		}
		return adjoint(q.times(adjoint(y), !adjointed))
	})
}
