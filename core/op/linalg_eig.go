package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// Eig returns the eigenvalues [*, n] and the eigenvectors, of length 1, in the columns of [*, n, n], of square matrices [*, n, n]. They
// are complex, also those of real matrices, and in no order. The phase of an eigenvector is arbitrary. The gradient of the vectors is for
// different eigenvalues.
func Eig(x *core.Tensor) (values, vectors *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "linalg_eig", x)
	}
	return eig("linalg_eig", x, true)
}

// EigVals returns the eigenvalues that [Eig] does.
func EigVals(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "linalg_eigvals", x)
	}
	return compose("linalg_eigvals", func() *core.Tensor {
		values, _ := eig("linalg_eigvals", x, false)
		return values
	})
}

// eig returns nil for vectors that are not wanted, unless derivatives need them.
func eig(name string, x *core.Tensor, wanted bool) (values, vectors *core.Tensor) {
	op := begin(name, &x)
	op.linalgMatrices(x, true)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	d := x.DType().Complex()
	if values = op.out(d, x.Shape()[:x.Dim()-1]); wanted || op.grad {
		vectors = op.out(d, x.Shape())
	}
	if op.err != nil {
		return op.fail(), op.fail()
	}
	op.linalgLaunch(contract.LinalgComplex, x, nil, contract.LinalgComplexAttrs{}, values, vectors)
	if op.grad {
		op.attach(op.node(eigDeriv, x).SaveOutput(values, 0).SaveOutput(vectors, 1), values, vectors)
	}
	if vectors == nil {
		return op.done(values), nil
	}
	return op.done2(values, vectors)
}

// eigDeriv is V⁻ᴴ M Vᴴ, where the diagonal of M is the values' gradient, and the rest that of the vectors G, which keep their length:
// (Vᴴ G - Vᴴ V Re(diag(Vᴴ G))) / conj(the differences of the values).
//
// Boeddeker, Hanebrink, Drude, Heymann, Haeb-Umbach: On the computation of complex-valued gradients with application to statistically
// optimum beamforming, 2017.
func eigDeriv(ctx *core.BackwardContext) {
	values, v := ctx.Saved(0), ctx.Saved(1)
	if ctx.Failed() {
		return
	}
	var inner *core.Tensor
	if dv := ctx.GradAt(1); dv != nil {
		turn := matTimes(adjoint(v), dv)
		lengths := Unsqueeze(Real(Diagonal(turn, 0, -2, -1)), -2)
		inner = withoutDiagonal(Div(Sub(turn, Mul(matTimes(adjoint(v), v), lengths)), Conj(differences(values))))
	}
	if dw := ctx.GradAt(0); dw != nil {
		inner = plus(inner, DiagEmbed(dw, 0, -2, -1))
	}
	g := solveWith(adjoint(v), matTimes(inner, adjoint(v)), nil)
	if !ctx.InputDType(0).IsComplex() {
		g = Real(g)
	}
	ctx.Set(0, g)
}
