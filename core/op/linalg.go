package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// linalgMatrices fails unless x is a stack of matrices of float32, float64 or complex numbers, square ones if square is set.
func (op *opContext) linalgMatrices(x *core.Tensor, square bool) {
	if !isComplex(x) {
		op.floatTensor(x)
	}
	switch {
	case op.err != nil:
	case x.DType().IsHalf():
		op.failf(core.DTypeError, "not defined for %v, want float32 or float64", x.DType())
	case x.Dim() < 2:
		op.failf(core.ShapeError, "want matrices, got shape %v", x.Shape())
	case square && x.Size(-1) != x.Size(-2):
		op.failf(core.ShapeError, "want square matrices, got shape %v", x.Shape())
	}
}

// linalgOperations has what kernels do with complex matrices.
var linalgOperations = map[core.KernelID]contract.LinalgOperation{
	contract.LinalgSolve: contract.LinalgSolves, contract.LinalgDet: contract.LinalgDeterminants, contract.LinalgTriangular: contract.LinalgTriangles,
	contract.LinalgCholesky: contract.LinalgCholeskys, contract.LinalgLU: contract.LinalgLUs, contract.LinalgQR: contract.LinalgQRs,
	contract.LinalgEigh: contract.LinalgEighs, contract.LinalgSVD: contract.LinalgSVDs, contract.LinalgComplex: contract.LinalgEigs,
	contract.LinalgGeqrf: contract.LinalgReflections, contract.LinalgLDL: contract.LinalgLDLs,
}

// linalgLaunch runs the kernel of real matrices, or what it does with complex ones; how has the attributes of either. The last outs may be nil.
func (op *opContext) linalgLaunch(id core.KernelID, x, b *core.Tensor, how contract.LinalgComplexAttrs, outs ...*core.Tensor) {
	k, operation := id, linalgOperations[id]
	triangle, complex := k == contract.LinalgTriangular, isComplex(x) || k == contract.LinalgComplex
	if complex {
		k = contract.LinalgComplex
	}
	if op.err != nil {
		return
	}
	if !x.Device().Supports(k) {
		op.linalgOnHost(id, x, b, how, outs)
		return
	}
	in, second := op.dense(x), op.dense(b)
	if op.err != nil {
		return
	}
	c := op.call(k)
	for _, out := range outs {
		if out != nil {
			c.Out(out)
		}
	}
	c.In(in)
	if second != nil {
		c.In(second)
	}
	switch {
	case complex:
		how.Operation, how.Real = operation, !isComplex(x)
		how.AddTo(c)
	case triangle:
		contract.TriangularAttrs{Upper: how.Upper, Unit: how.Unit}.AddTo(c)
	}
	least := 64 // for a matrix, however small
	if operation >= contract.LinalgQRs {
		least = 1024
	}
	c.Work = max(c.Work, core.Numel(x.Shape()[:x.Dim()-2])*(least+x.Size(-2)*x.Size(-1)*x.Size(-1)/32))
	op.launch(c)
}

// linalgOnHost does what [opContext.linalgLaunch] does on the CPU, which has all kernels, for matrices on a device that lacks this one. It
// waits for them, and for the results.
func (op *opContext) linalgOnHost(k core.KernelID, x, b *core.Tensor, how contract.LinalgComplexAttrs, outs []*core.Tensor) {
	home, err := op.mode.Context().Home()
	if err == nil && !home.HostAccessible() {
		home, err = core.OpenDevice("cpu:0")
	}
	if op.check(err); op.err != nil {
		return
	}
	core.Underived(func() {
		host := opContext{name: op.name, mode: op.mode}
		host.place(home)
		moved := func(t *core.Tensor) *core.Tensor {
			if t == nil {
				return nil
			}
			own := host.own(t.Detach())
			return host.own(ToDevice(own, home))
		}
		left, right := moved(x), moved(b)
		made := make([]*core.Tensor, len(outs))
		for i, out := range outs {
			if out != nil {
				made[i] = host.temp(out.DType(), out.Shape()...)
			}
		}
		if host.err == nil {
			host.linalgLaunch(k, left, right, how, made...)
		}
		for i, out := range outs {
			if out != nil && host.err == nil {
				host.check(upload(op.stream, out, made[i]))
			}
		}
		host.end()
		op.check(host.err)
	})
}

// mT returns x with its matrices transposed.
func mT(x *core.Tensor) *core.Tensor { return Transpose(x, -1, -2) }

// conjugate returns x, or its conjugate if it is complex.
func conjugate(x *core.Tensor) *core.Tensor {
	if x.DType().IsComplex() {
		return Conj(x)
	}
	return x
}

// adjoint returns x with its matrices transposed and, of complex numbers, conjugated.
func adjoint(x *core.Tensor) *core.Tensor { return conjugate(mT(x)) }

func matTimes(x, y *core.Tensor) *core.Tensor { return product("matmul", x, y, plainForms[0]) }

// Inv returns the inverses of square matrices [*, n, n]. A singular one is an error.
func Inv(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "linalg_inv", x)
	}
	op := begin("linalg_inv", &x)
	op.linalgMatrices(x, true)
	y := op.outLike(x)
	if op.err != nil {
		return op.fail()
	}
	op.linalgLaunch(contract.LinalgSolve, x, nil, contract.LinalgComplexAttrs{}, y)
	if op.grad {
		op.attach(op.node(invDeriv, x).SaveOutput(y, 0), y)
	}
	return op.done(y)
}

func invDeriv(ctx *core.BackwardContext) {
	y := ctx.Saved(0)
	if !ctx.Failed() {
		ctx.Set(0, Neg(matTimes(matTimes(adjoint(y), ctx.Grad()), adjoint(y))))
	}
}

// Solve returns the x of a x = b for square matrices a [*, n, n] and b [*, n, k], whose leading dimensions broadcast; a vector
// b [n], or a stack [*, n] of as many dimensions less one as a, is a column. A singular matrix is an error.
func Solve(m, b *core.Tensor) *core.Tensor {
	if parts := distributed(m, b); parts != nil {
		return handOn(parts, "linalg_solve", m, b)
	}
	return solving("linalg_solve", m, b, func(m, b *core.Tensor) *core.Tensor { return solveWith(m, b, nil) })
}

// SolveTriangular returns the x of a x = b for triangular matrices a [*, n, n], of which the other triangle is not read, and b
// [*, n, k]; the leading dimensions broadcast. With unit, the diagonal counts as ones.
func SolveTriangular(m, b *core.Tensor, upper, unit bool) *core.Tensor {
	if parts := distributed(m, b); parts != nil {
		return handOn(parts, "linalg_solve_triangular", m, b, upper, unit)
	}
	return solving("linalg_solve_triangular", m, b, func(m, b *core.Tensor) *core.Tensor {
		return solveWith(m, b, &contract.TriangularAttrs{Upper: upper, Unit: unit})
	})
}

// solving brings the operands of an equation to one stack of matrices.
func solving(name string, m, b *core.Tensor, solve func(m, b *core.Tensor) *core.Tensor) *core.Tensor {
	op := begin(name, &m, &b)
	op.multipliable(m, b)
	op.linalgMatrices(m, true)
	if op.err != nil {
		return op.fail()
	}
	column := b.Dim() == 1 || b.Dim() == m.Dim()-1 && slices.Equal(b.Shape(), m.Shape()[:m.Dim()-1])
	rows := -2
	if column {
		rows = -1
	}
	if b.Dim() == 0 || b.Size(rows) != m.Size(-1) {
		op.failf(core.ShapeError, "got matrices %v and right sides %v, want [*, n, n] and [*, n, k]", m.Shape(), b.Shape())
		return op.fail()
	}
	return op.compose(func() *core.Tensor {
		right := b
		if column {
			right = Unsqueeze(b, -1)
		}
		batch, err := core.Broadcast(name, m.Shape()[:m.Dim()-2], right.Shape()[:right.Dim()-2])
		if err != nil {
			return core.ErrorTensor(err)
		}
		wide := func(t *core.Tensor) *core.Tensor {
			return Expand(t, append(slices.Clone(batch), t.Shape()[t.Dim()-2:]...)...)
		}
		x := solve(wide(m), wide(right))
		if column {
			x = Squeeze(x, -1)
		}
		return x
	})
}

// solveWith solves with matrices and right sides of one stack. triangle says which half m is, nil for all of it.
func solveWith(m, b *core.Tensor, triangle *contract.TriangularAttrs) *core.Tensor {
	k := contract.LinalgSolve
	if triangle != nil {
		k = contract.LinalgTriangular
	}
	op := begin(k.String()).with(m, b)
	x := op.outLike(b)
	if op.err != nil {
		return op.fail()
	}
	how := contract.LinalgComplexAttrs{}
	if triangle != nil {
		how.Upper, how.Unit = triangle.Upper, triangle.Unit
	}
	op.linalgLaunch(k, m, b, how, x)
	if op.grad {
		n := op.node(solveDeriv, m, b).Save(m).SaveOutput(x, 0)
		n.Any = triangle
		op.attach(n, x)
	}
	return op.done(x)
}

func solveDeriv(ctx *core.BackwardContext) {
	m, x := ctx.Saved(0), ctx.Saved(1)
	if ctx.Failed() {
		return
	}
	triangle := ctx.Node.Any.(*contract.TriangularAttrs)
	var db *core.Tensor
	if triangle == nil {
		db = solveWith(adjoint(m), ctx.Grad(), nil)
	} else {
		db = solveWith(adjoint(m), ctx.Grad(), &contract.TriangularAttrs{Upper: !triangle.Upper, Unit: triangle.Unit})
	}
	ctx.Set(1, db)
	if !ctx.Needs(0) {
		return
	}
	dm := Neg(matTimes(db, adjoint(x)))
	if triangle != nil {
		off := int(contract.Flag(triangle.Unit))
		if triangle.Upper {
			dm = Triu(dm, off)
		} else {
			dm = Tril(dm, -off)
		}
	}
	ctx.Set(0, dm)
}

// Det returns the determinants [*] of square matrices [*, n, n]. A singular one has no gradient: asking for it is an error.
func Det(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "linalg_det", x)
	}
	det, _, _ := determinants("linalg_det", x, 0)
	return det
}

// SlogDet returns the signs and the logarithms of the sizes of the determinants of square matrices [*, n, n]; 0 and -inf for a
// singular one.
func SlogDet(x *core.Tensor) (sign, logabs *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "linalg_slogdet", x)
	}
	_, sign, logabs = determinants("linalg_slogdet", x, 1)
	return sign, logabs
}

func determinants(name string, x *core.Tensor, kind int) (det, sign, logabs *core.Tensor) {
	op := begin(name, &x)
	op.linalgMatrices(x, true)
	if op.err != nil {
		return op.fail(), op.fail(), op.fail()
	}
	shape := x.Shape()[:x.Dim()-2]
	det, sign, logabs = op.out(x.DType(), shape), op.out(x.DType(), shape), op.out(x.DType().Part(), shape)
	if op.err != nil {
		return op.fail(), op.fail(), op.fail()
	}
	op.linalgLaunch(contract.LinalgDet, x, nil, contract.LinalgComplexAttrs{}, det, sign, logabs)
	if kind == 0 {
		if op.grad {
			op.attach(op.node(detDeriv, x).Save(x).SaveOutput(det, 0), det)
		}
		op.own(sign)
		op.own(logabs)
		return op.done(det), nil, nil
	}
	if op.grad {
		if n := op.node(slogDetDeriv, x).Save(x); isComplex(x) {
			op.attach(n.SaveOutput(sign, 1), logabs, sign)
		} else {
			op.attach(n, logabs)
		}
	}
	op.own(det)
	sign, logabs = op.done2(sign, logabs)
	return nil, sign, logabs
}

// perMatrix returns t [*] with two dimensions of size 1 added.
func perMatrix(t *core.Tensor) *core.Tensor { return Unsqueeze(Unsqueeze(t, -1), -1) }

func detDeriv(ctx *core.BackwardContext) {
	x, det := ctx.Saved(0), ctx.Saved(1)
	if !ctx.Failed() {
		ctx.Set(0, Mul(adjoint(Inv(x)), perMatrix(Mul(ctx.Grad(), conjugate(det)))))
	}
}

func slogDetDeriv(ctx *core.BackwardContext) {
	x := ctx.Saved(0)
	if ctx.Failed() {
		return
	}
	g := ctx.GradAt(0)
	if x.DType().IsComplex() {
		if ds := ctx.GradAt(1); ds != nil { // the sign has a phase
			turn := Imag(Mul(ds, Conj(ctx.Saved(1))))
			if g == nil {
				g = ZerosLike(turn, TensorOptions{})
			}
			g = Complex(g, turn)
		}
	}
	ctx.Set(0, Mul(adjoint(Inv(x)), perMatrix(g)))
}

// Cholesky returns the lower triangular L of x = L Lᵀ, or with upper its transpose, for symmetric positive definite matrices
// [*, n, n]. triangle says how others are read, as for [Eigh]. One that is not positive definite is an error.
func Cholesky(x *core.Tensor, upper bool, triangle string) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "linalg_cholesky", x, upper, triangle)
	}
	return cholesky("linalg_cholesky", x, upper, triangle, nil)
}

// CholeskyInfo is [Cholesky] of any symmetric matrices, and infos [*] of int32: the first row, counted from 1, up to which the
// matrix is not positive definite, and from which on the result means nothing, or 0.
func CholeskyInfo(x *core.Tensor, upper bool, triangle string) (l, infos *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "linalg_cholesky_ex", x, upper, triangle)
	}
	if l = cholesky("linalg_cholesky_ex", x, upper, triangle, &infos); l.Err() != nil {
		infos.Release()
		infos = l
	}
	return l, infos
}

// cholesky writes infos unless it is nil; then a matrix that is not positive definite is an error.
func cholesky(name string, x *core.Tensor, upper bool, triangle string, infos **core.Tensor) *core.Tensor {
	op := begin(name, &x)
	op.linalgMatrices(x, true)
	op.triangle(triangle)
	if op.err != nil {
		return op.fail()
	}
	if infos != nil {
		*infos = op.out(core.Int32, x.Shape()[:x.Dim()-2])
	}
	return op.compose(func() *core.Tensor {
		half := x // the kernel reads its lower triangle
		switch triangle {
		case "":
			half = symmetric(x)
		case "U":
			half = adjoint(x)
		}
		var status *core.Tensor
		if infos != nil {
			status = *infos
		}
		l := choleskyOf(half, status)
		if upper {
			return adjoint(l)
		}
		return l
	})
}

// symmetric returns the symmetric part of matrices, or the Hermitian one of complex ones.
func symmetric(x *core.Tensor) *core.Tensor { return Mul(Add(x, adjoint(x)), core.Num(0.5)) }

// triangle fails unless t says how to read symmetric matrices.
func (op *opContext) triangle(t string) {
	if op.err == nil && t != "" && t != "L" && t != "U" {
		op.failf(core.ValueError, "UPLO must be 'L' or 'U', got '%s'", t)
	}
}

// readSymmetric returns the symmetric part of matrices or, for "L" or "U", the symmetric ones that have this triangle.
func readSymmetric(x *core.Tensor, triangle string) *core.Tensor {
	if triangle == "" {
		return symmetric(x)
	}
	op := begin("linalg_eigh").with(x)
	var y *core.Tensor
	core.Underived(func() {
		y = compose(op.name, func() *core.Tensor {
			if triangle == "L" {
				return Add(Tril(x, 0), adjoint(Tril(x, -1)))
			}
			return Add(Triu(x, 0), adjoint(Triu(x, 1)))
		})
	})
	if op.grad && y.Err() == nil {
		op.attach(op.node(readSymmetricDeriv, x), y)
	}
	return op.done(y)
}

// readSymmetricDeriv passes the gradient, which is symmetric, so that a step along it keeps a symmetric matrix symmetric.
func readSymmetricDeriv(ctx *core.BackwardContext) { ctx.Set(0, ctx.Grad()) }

// choleskyOf reads the lower triangle. Without infos, a matrix that is not positive definite is an error.
func choleskyOf(x, infos *core.Tensor) *core.Tensor {
	op := begin("linalg_cholesky").with(x)
	l := op.outLike(x)
	if op.err != nil {
		return op.fail()
	}
	op.linalgLaunch(contract.LinalgCholesky, x, nil, contract.LinalgComplexAttrs{}, l, infos)
	if op.grad {
		op.attach(op.node(choleskyDeriv, x).SaveOutput(l, 0), l)
	}
	return op.done(l)
}

// halved returns the lower triangles of matrices with half their diagonals.
func halved(x *core.Tensor) *core.Tensor { return Mul(Add(Tril(x, 0), Tril(x, -1)), core.Num(0.5)) }

// choleskyDeriv is L⁻ᵀ halved(Lᵀ dL) L⁻¹, made symmetric.
//
// Murray: Differentiation of the Cholesky decomposition, 2016.
func choleskyDeriv(ctx *core.BackwardContext) {
	l := ctx.Saved(0)
	if ctx.Failed() {
		return
	}
	upper := &contract.TriangularAttrs{Upper: true}
	inner := halved(matTimes(adjoint(l), ctx.Grad()))
	left := solveWith(adjoint(l), inner, upper)
	ctx.Set(0, symmetric(adjoint(solveWith(adjoint(l), adjoint(left), upper))))
}
