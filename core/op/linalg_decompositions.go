package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// QR returns matrices [*, m, n] as products of q [*, m, k], with orthonormal columns, and the upper triangular r [*, k, n],
// where k is the smaller of m and n. The gradient is for matrices whose first k columns are independent.
func QR(x *core.Tensor) (q, r *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "linalg_qr", x)
	}
	op := begin("linalg_qr", &x)
	op.linalgMatrices(x, false)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	k := min(x.Size(-1), x.Size(-2))
	q, r = op.out(x.DType(), lastSizes(x, x.Size(-2), k)), op.out(x.DType(), lastSizes(x, k, x.Size(-1)))
	if op.err != nil {
		return op.fail(), op.fail()
	}
	op.linalgLaunch(contract.LinalgQR, x, nil, contract.LinalgComplexAttrs{}, q, r)
	if op.grad {
		op.attach(op.node(qrDeriv, x).SaveOutput(q, 0).SaveOutput(r, 1), q, r)
	}
	return op.done2(q, r)
}

// lastSizes returns x's shape with other last sizes.
func lastSizes(x *core.Tensor, sizes ...int) []int {
	return append(slices.Clone(x.Shape()[:x.Dim()-2]), sizes...)
}

// qrDeriv is (dQ + Q copyltu(M)) R⁻ᵀ for M = R dRᵀ - dQᵀ Q, where copyltu makes the lower triangle's mirror the upper one.
//
// The columns of a wide X to the right are Q V, where V is that part of R: what their gradients say of Q adds to dQ.
//
// Walter, Lehmann: On evaluating higher-order derivatives of the QR decomposition, 2018.
func qrDeriv(ctx *core.BackwardContext) {
	q, r := ctx.Saved(0), ctx.Saved(1)
	if ctx.Failed() {
		return
	}
	dq, dr := ctx.GradAt(0), ctx.GradAt(1)
	k, wide := r.Size(-2), r.Size(-1)-r.Size(-2)
	var right *core.Tensor
	if wide > 0 && dr != nil {
		dv := Narrow(dr, -1, k, wide)
		right = matTimes(q, dv)
		dq = plus(dq, matTimes(q, matTimes(Narrow(r, -1, k, wide), adjoint(dv))))
		dr = Narrow(dr, -1, 0, k)
	} else if wide > 0 {
		right = zerosFor(q, q.DType(), lastSizes(q, k, wide))
	}
	r = Narrow(r, -1, 0, k)
	var m *core.Tensor
	if dr != nil {
		m = matTimes(r, adjoint(dr))
	}
	if dq != nil {
		m = plus(m, Neg(matTimes(adjoint(dq), q)))
	}
	mirrored := Add(halved(m), adjoint(halved(m)))
	g := plus(dq, matTimes(q, mirrored))
	g = adjoint(solveWith(r, adjoint(g), &contract.TriangularAttrs{Upper: true}))
	if right != nil {
		g = Cat([]*core.Tensor{g, right}, -1)
	}
	ctx.Set(0, g)
}

// Eigh returns the ascending eigenvalues [*, n] and the eigenvectors, in the columns of [*, n, n], of symmetric matrices
// [*, n, n]; of others the symmetric part is taken or, if triangle is "L" or "U", this triangle read; the gradient is symmetric all the
// same. The sign of an eigenvector is arbitrary. The gradient of the vectors is for different eigenvalues.
func Eigh(x *core.Tensor, triangle string) (values, vectors *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn2(parts, "linalg_eigh", x, triangle)
	}
	op := begin("linalg_eigh", &x)
	op.linalgMatrices(x, true)
	op.triangle(triangle)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	out := op.scope(func() []*core.Tensor {
		values, vectors := eighOf(readSymmetric(x, triangle), true)
		return []*core.Tensor{values, vectors}
	})
	return out[0], out[1]
}

// EigValsH returns the eigenvalues that [Eigh] does.
func EigValsH(x *core.Tensor, triangle string) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "linalg_eigvalsh", x, triangle)
	}
	op := begin("linalg_eigvalsh", &x)
	op.linalgMatrices(x, true)
	op.triangle(triangle)
	return op.compose(func() *core.Tensor {
		values, _ := eighOf(readSymmetric(x, triangle), op.grad)
		return values
	})
}

func eighOf(x *core.Tensor, wanted bool) (values, vectors *core.Tensor) {
	op := begin("linalg_eigh").with(x)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	if values = op.out(x.DType().Part(), x.Shape()[:x.Dim()-1]); wanted {
		vectors = op.outLike(x)
	}
	if op.err != nil {
		return op.fail(), op.fail()
	}
	op.linalgLaunch(contract.LinalgEigh, x, nil, contract.LinalgComplexAttrs{}, values, vectors)
	if op.grad {
		op.attach(op.node(eighDeriv, x).SaveOutput(values, 0).SaveOutput(vectors, 1), values, vectors)
	}
	return op.done2(values, vectors)
}

// differences returns s_j - s_i for all pairs of elements of the last dimension, with ones on the diagonal.
func differences(s *core.Tensor) *core.Tensor {
	n := s.Size(-1)
	d := s.DType()
	return Add(Sub(Unsqueeze(s, -2), Unsqueeze(s, -1)), Eye(n, n, TensorOptions{DType: &d, Device: s.Device()}))
}

// withoutDiagonal returns square matrices with zeros on their diagonals.
func withoutDiagonal(x *core.Tensor) *core.Tensor { return Add(Tril(x, -1), Triu(x, 1)) }

func eighDeriv(ctx *core.BackwardContext) {
	values, v := ctx.Saved(0), ctx.Saved(1)
	if ctx.Failed() {
		return
	}
	var inner *core.Tensor
	if dv := ctx.GradAt(1); dv != nil {
		inner = withoutDiagonal(Div(matTimes(adjoint(v), dv), differences(values)))
	}
	if dw := ctx.GradAt(0); dw != nil {
		inner = plus(inner, castTo(DiagEmbed(dw, 0, -2, -1), v.DType()))
	}
	ctx.Set(0, symmetric(matTimes(matTimes(v, inner), adjoint(v))))
}

// SVD returns matrices [*, m, n] as products u diag(s) vh of u [*, m, k] with orthonormal columns, the descending singular
// values s [*, k] and vh [*, k, n] with orthonormal rows, where k is the smaller of m and n. The signs of a pair of singular
// vectors are arbitrary. The gradient of the vectors is for different singular values other than 0.
func SVD(x *core.Tensor) (u, s, vh *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn3(parts, "linalg_svd", x)
	}
	return svd("linalg_svd", x, true)
}

// SVDVals returns the singular values that [SVD] does.
func SVDVals(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "linalg_svdvals", x)
	}
	return compose("linalg_svdvals", func() *core.Tensor {
		_, s, _ := svd("linalg_svdvals", x, false)
		return s
	})
}

// svd returns nil for vectors that are not wanted, unless derivatives need them.
func svd(name string, x *core.Tensor, wanted bool) (u, s, vh *core.Tensor) {
	op := begin(name, &x)
	op.linalgMatrices(x, false)
	if op.err != nil {
		return op.fail(), op.fail(), op.fail()
	}
	k := min(x.Size(-1), x.Size(-2))
	s = op.out(x.DType().Part(), lastSizes(x, k))
	if wanted || op.grad {
		u, vh = op.out(x.DType(), lastSizes(x, x.Size(-2), k)), op.out(x.DType(), lastSizes(x, k, x.Size(-1)))
	}
	if op.err != nil {
		return op.fail(), op.fail(), op.fail()
	}
	op.linalgLaunch(contract.LinalgSVD, x, nil, contract.LinalgComplexAttrs{}, s, u, vh)
	if op.grad {
		op.attach(op.node(svdDeriv, x).SaveOutput(u, 0).SaveOutput(s, 1).SaveOutput(vh, 2), u, s, vh)
	}
	if u == nil {
		return nil, op.done(s), nil
	}
	return op.done3(u, s, vh)
}

func svdDeriv(ctx *core.BackwardContext) {
	u, s, vh := ctx.Saved(0), ctx.Saved(1), ctx.Saved(2)
	if ctx.Failed() {
		return
	}
	du, ds, dvh := ctx.GradAt(0), ctx.GradAt(1), ctx.GradAt(2)
	row := Unsqueeze(s, -2) // scales columns
	column := Unsqueeze(s, -1)
	skew := func(x *core.Tensor) *core.Tensor {
		return withoutDiagonal(Div(Sub(x, adjoint(x)), differences(Square(s))))
	}
	var inner *core.Tensor
	if ds != nil {
		inner = castTo(DiagEmbed(ds, 0, -2, -1), u.DType())
	}
	if du != nil {
		turn := matTimes(adjoint(u), du)
		inner = plus(inner, Mul(skew(turn), row))
		if u.DType().IsComplex() { // the phases of a pair of vectors
			phase := Div(Imag(Diagonal(turn, 0, -2, -1)), s)
			inner = Add(inner, DiagEmbed(Complex(ZerosLike(phase, TensorOptions{}), phase), 0, -2, -1))
		}
	}
	if dvh != nil {
		inner = plus(inner, Mul(column, skew(matTimes(vh, adjoint(dvh)))))
	}
	g := matTimes(matTimes(u, inner), vh)
	m, k, n := u.Size(-2), s.Size(-1), vh.Size(-1)
	if du != nil && m > k { // what lies outside the columns of u
		outside := Div(Sub(du, matTimes(u, matTimes(adjoint(u), du))), row)
		g = Add(g, matTimes(outside, vh))
	}
	if dvh != nil && n > k {
		outside := Div(Sub(dvh, matTimes(matTimes(dvh, adjoint(vh)), vh)), column)
		g = Add(g, matTimes(u, outside))
	}
	ctx.Set(0, g)
}

// Pinv returns the pseudoinverses [*, n, m] of matrices [*, m, n]. Singular values of at most rtol times the largest count as
// 0; a negative rtol stands for the larger size times the dtype's machine epsilon.
func Pinv(x *core.Tensor, rtol float64) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "linalg_pinv", x, rtol)
	}
	op := begin("linalg_pinv", &x)
	op.linalgMatrices(x, false)
	if op.err != nil {
		return op.fail()
	}
	if rtol < 0 {
		rtol = float64(max(x.Size(-1), x.Size(-2))) * machineEpsilon(x.DType().Part())
	}
	var out *core.Tensor
	core.Underived(func() {
		out = compose("linalg_pinv", func() *core.Tensor {
			if x.Numel() == 0 {
				return zerosFor(x, x.DType(), lastSizes(x, x.Size(-1), x.Size(-2)))
			}
			u, s, vh := SVD(x)
			return matTimes(Mul(adjoint(vh), Unsqueeze(reciprocals(s, rtol), -2)), adjoint(u))
		})
	})
	if op.grad && out.Err() == nil {
		op.attach(op.node(pinvDeriv, x).Save(x).SaveOutput(out, 0), out)
	}
	return op.done(out)
}

// reciprocals returns one over each singular value, and 0 for those that count as 0.
func reciprocals(s *core.Tensor, rtol float64) *core.Tensor {
	counts := Gt(s, Mul(Narrow(s, -1, 0, 1), core.Num(rtol)))
	return Where(counts, Reciprocal(Where(counts, s, core.Num(1))), core.Num(0))
}

// pinvDeriv is the derivative for matrices that keep their rank (Golub, Pereyra 1973):
// dP = -P dA P + P P^T dA^T (I - A P) + (I - P A) dA^T P^T P.
func pinvDeriv(ctx *core.BackwardContext) {
	a, p, g := ctx.Saved(0), ctx.Saved(1), ctx.Grad()
	pt, gt := adjoint(p), adjoint(g)
	sum := Neg(matTimes(matTimes(pt, g), pt))
	left := matTimes(matTimes(gt, p), pt)
	sum = Add(sum, Sub(left, matTimes(a, matTimes(p, left))))
	right := matTimes(matTimes(pt, p), gt)
	ctx.Set(0, Add(sum, Sub(right, matTimes(matTimes(right, p), a))))
}

// LstSq returns the x that makes a x - b least for matrices a [*, m, n] and b [*, m, k]: of many, if a has fewer rows or a
// lower rank than columns, the least one; and the ranks of a, int64. Singular values count as for [Pinv]; without svd, those of R in a QR
// decomposition of exchanged columns are estimated, where the device does that.
func LstSq(m, b *core.Tensor, rcond float64, svd bool) (x, ranks *core.Tensor) {
	if parts := distributed(m, b); parts != nil {
		return handOn2(parts, "linalg_lstsq", m, b, rcond, svd)
	}
	op := begin("linalg_lstsq", &m, &b)
	op.multipliable(m, b)
	op.linalgMatrices(m, false)
	if op.err == nil && (b.Dim() < 2 || b.Size(-2) != m.Size(-2)) {
		op.failf(core.ShapeError, "got matrices %v and right sides %v, want [*, m, n] and [*, m, k]", m.Shape(), b.Shape())
	}
	if op.err != nil {
		return op.fail(), op.fail()
	}
	if rcond < 0 {
		rcond = float64(max(m.Size(-1), m.Size(-2))) * machineEpsilon(m.DType().Part())
	}
	core.Underived(func() {
		out := core.RunScope(func() []*core.Tensor {
			if !svd && m.Device().Supports(contract.LinalgLstSq) {
				x, ranks := lstSqOf(m, b, rcond)
				return []*core.Tensor{x, ranks}
			}
			if m.Numel() == 0 {
				return []*core.Tensor{matTimes(Pinv(m, rcond), b), zerosFor(m, core.Int64, m.Shape()[:m.Dim()-2])}
			}
			u, s, vh := SVD(m)
			inverse := reciprocals(s, rcond)
			x := matTimes(adjoint(vh), Mul(Unsqueeze(inverse, -1), matTimes(adjoint(u), b)))
			return []*core.Tensor{x, Sum(Ne(inverse, core.IntNum(0)), []int{-1}, false)}
		})
		x, ranks = reported(op.name, out[0]), out[1]
	})
	if x.Err() != nil || ranks.Err() != nil {
		op.check(x.Err())
		op.check(ranks.Err())
		x.Release()
		ranks.Release()
		return op.fail(), op.fail()
	}
	if op.grad {
		n := op.node(lstSqDeriv, m, b).Save(m, b).SaveOutput(x, 0)
		n.Floats = []float64{rcond}
		op.attach(n, x)
	}
	return op.done2(x, ranks)
}

// lstSqOf is LstSq by the device's kernel.
func lstSqOf(m, b *core.Tensor, rcond float64) (x, ranks *core.Tensor) {
	op := begin("linalg_lstsq").with(m, b)
	batch, err := core.Broadcast(op.name, m.Shape()[:m.Dim()-2], b.Shape()[:b.Dim()-2])
	op.check(err)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	shape := func(sizes ...int) []int { return append(slices.Clone(batch), sizes...) }
	m, b = Expand(m, shape(m.Size(-2), m.Size(-1))...), Expand(b, shape(b.Size(-2), b.Size(-1))...)
	x, ranks = op.out(m.DType(), shape(m.Size(-1), b.Size(-1))), op.out(core.Int32, batch)
	left, right := op.dense(m), op.dense(b)
	if op.err != nil {
		return op.fail(), op.fail()
	}
	var c *core.Call
	if isComplex(m) {
		c = contract.LinalgComplexAttrs{Operation: contract.LinalgLeastSquares, Rcond: rcond}.AddTo(op.call(contract.LinalgComplex))
	} else {
		c = op.call(contract.LinalgLstSq).Float(rcond)
	}
	c.Out(x).Out(ranks).In(left).In(right)
	c.Work = max(c.Work, core.Numel(batch)*(1024+m.Size(-2)*m.Size(-1)*m.Size(-1)/32))
	op.launch(c)
	x, ranks = op.done2(x, ranks)
	return x, castTo(ranks, core.Int64)
}

// lstSqDeriv is the derivative of P b; see [pinvDeriv].
func lstSqDeriv(ctx *core.BackwardContext) {
	m, b, x, g := ctx.Saved(0), ctx.Saved(1), ctx.Saved(2), ctx.Grad()
	p := Pinv(m, ctx.Node.Floats[0])
	t := matTimes(adjoint(p), g)
	if ctx.Needs(0) {
		rest := matTimes(Sub(b, matTimes(m, x)), adjoint(matTimes(p, t)))
		least := matTimes(matTimes(adjoint(p), x), adjoint(Sub(g, matTimes(adjoint(m), t))))
		ctx.Set(0, sumTo(Sub(Add(rest, least), matTimes(t, adjoint(x))), ctx.InputShape(0)))
	}
	if ctx.Needs(1) {
		ctx.Set(1, sumTo(t, ctx.InputShape(1)))
	}
}

// largest returns the largest of numbers along the last dimension that are not negative, and 0 of none.
func largest(x *core.Tensor) *core.Tensor {
	if x.Err() == nil && x.Size(-1) == 0 {
		return Sum(x, []int{-1}, false)
	}
	return Amax(x, []int{-1}, false)
}

// MatrixNorm returns the norms [*] of matrices [*, m, n]: "fro", the root of the sum of squares; "nuc", the sum of the
// singular values; "2" and "-2", the largest and the least of them; "1" and "-1", the largest and the least sum of a column's
// sizes; "inf" and "-inf", those of a row's.
func MatrixNorm(x *core.Tensor, order string) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "linalg_matrix_norm", x, order)
	}
	op := begin("linalg_matrix_norm", &x)
	op.linalgMatrices(x, false)
	return op.compose(func() *core.Tensor {
		sums := func(dim int) *core.Tensor { return Sum(Abs(x), []int{dim}, false) }
		last := []int{-1}
		switch order {
		case "fro", "":
			return VectorNorm(x, 2, []int{-2, -1}, ReduceOptions{})
		case "1":
			return largest(sums(-2))
		case "-1":
			return Amin(sums(-2), last, false)
		case "inf":
			return largest(sums(-1))
		case "-inf":
			return Amin(sums(-1), last, false)
		case "nuc", "2", "-2":
			s := SVDVals(x)
			switch order {
			case "nuc":
				return Sum(s, last, false)
			case "2":
				return largest(s)
			}
			return Amin(s, last, false)
		}
		op.failf(core.ValueError, "unknown norm %q, want fro, nuc, 1, -1, 2, -2, inf or -inf", order)
		return op.fail()
	})
}
