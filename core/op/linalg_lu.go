package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// LUFactor returns the lower triangular L, with a diagonal of ones, and the upper triangular U of matrices [*, m, n] whose rows
// were exchanged for stability, in one matrix [*, m, n] without that diagonal; pivots [*, k] of int32, where k is the smaller
// of m and n: row i was exchanged with row pivots[i], counted from 1, one after the other; and infos [*] of int32: the first
// place on U's diagonal, counted from 1, that is 0, or 0 if there is none. The gradient is for matrices whose first k rows and
// columns, after the exchanges, can be inverted.
func LUFactor(x *core.Tensor) (lu, pivots, infos *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn3(parts, "linalg_lu_factor_ex", x)
	}
	op := begin("linalg_lu_factor_ex", &x)
	op.linalgMatrices(x, false)
	if op.err != nil {
		return op.fail(), op.fail(), op.fail()
	}
	batch := x.Shape()[:x.Dim()-2]
	lu = op.outLike(x)
	pivots = op.out(core.Int32, append(slices.Clone(batch), min(x.Size(-1), x.Size(-2))))
	infos = op.out(core.Int32, batch)
	if op.err != nil {
		return op.fail(), op.fail(), op.fail()
	}
	op.linalgLaunch(contract.LinalgLU, x, nil, contract.LinalgComplexAttrs{}, lu, pivots, infos)
	if op.grad {
		op.attach(op.node(luDeriv, x).Save(pivots).SaveOutput(lu, 0), lu, pivots, infos)
	}
	return op.done3(lu, pivots, infos)
}

// luDeriv is, for a square X = L U of exchanged rows, L⁻ᵀ (the strictly lower part of Lᵀ dL and the upper part of dU Uᵀ) U⁻ᵀ. The
// columns of a wide X to the right, and the rows of a tall one below, are solutions with L and with U; what their gradients say
// of these adds to dL and dU.
func luDeriv(ctx *core.BackwardContext) {
	pivots, lu, g := ctx.Saved(0), ctx.Saved(1), ctx.GradAt(0)
	if ctx.Failed() || g == nil {
		return
	}
	m, n := lu.Size(-2), lu.Size(-1)
	k := min(m, n)
	square := Narrow(Narrow(lu, -2, 0, k), -1, 0, k)
	inner := Narrow(Narrow(g, -2, 0, k), -1, 0, k)
	dl, du := Tril(inner, -1), Triu(inner, 0)
	byL := func(t *core.Tensor) *core.Tensor {
		return solveWith(adjoint(square), t, &contract.TriangularAttrs{Upper: true, Unit: true})
	} // L⁻ᵀ t
	byU := func(t *core.Tensor) *core.Tensor {
		return adjoint(solveWith(square, adjoint(t), &contract.TriangularAttrs{Upper: true}))
	} // t U⁻ᵀ
	var right, below *core.Tensor
	if n > k {
		right = byL(Narrow(Narrow(g, -2, 0, k), -1, k, n-k))
		dl = Sub(dl, matTimes(right, adjoint(Narrow(lu, -1, k, n-k))))
	}
	if m > k {
		below = byU(Narrow(g, -2, k, m-k))
		du = Sub(du, matTimes(adjoint(Narrow(lu, -2, k, m-k)), below))
	}
	l, u := luParts(square)
	out := byU(byL(Add(Tril(matTimes(adjoint(l), dl), -1), Triu(matTimes(du, adjoint(u)), 0))))
	if right != nil {
		out = Cat([]*core.Tensor{out, right}, -1)
	}
	if below != nil {
		out = Cat([]*core.Tensor{out, below}, -2)
	}
	ctx.Set(0, permuteRows(out, ArgSort(permutation("linalg_lu_factor_ex", pivots, m), -1, SortOptions{})))
}

// luParts returns L [*, m, k] and U [*, k, n] of what [LUFactor] returns.
func luParts(lu *core.Tensor) (l, u *core.Tensor) {
	k := min(lu.Size(-2), lu.Size(-1))
	return unitLower(Narrow(lu, -1, 0, k)), Triu(Narrow(lu, -2, 0, k), 0)
}

// unitLower returns what is below the diagonals of matrices, and ones on these.
func unitLower(x *core.Tensor) *core.Tensor {
	d := x.DType()
	return Add(Tril(x, -1), Eye(x.Size(-2), x.Size(-1), TensorOptions{DType: &d, Device: x.Device()}))
}

// permutation returns which of m rows stands at each place after the exchanges.
func permutation(name string, pivots *core.Tensor, m int) *core.Tensor {
	op := begin(name).with(pivots)
	if op.err != nil {
		return op.fail()
	}
	rows := op.out(core.Int64, append(slices.Clone(pivots.Shape()[:pivots.Dim()-1]), m))
	in := op.dense(pivots)
	if op.err != nil {
		return op.fail()
	}
	op.launch(op.call(contract.LinalgPermutation).Out(rows).In(in))
	return op.done(rows)
}

// permuteRows returns the rows [*, m] of matrices [*, m, n].
func permuteRows(x, rows *core.Tensor) *core.Tensor {
	return Gather(x, -2, Expand(Unsqueeze(rows, -1), x.Shape()...))
}

// luPivots fails unless pivots belong to what [LUFactor] returned as lu.
func (op *opContext) luPivots(lu, pivots *core.Tensor) {
	op.linalgMatrices(lu, false)
	if op.err != nil {
		return
	}
	want := append(slices.Clone(lu.Shape()[:lu.Dim()-2]), min(lu.Size(-1), lu.Size(-2)))
	if pivots.IsNumber() || pivots.DType() != core.Int32 || !slices.Equal(pivots.Shape(), want) {
		op.failf(core.ShapeError, "want pivots of int32 and shape %v for matrices of shape %v, got %v", want, lu.Shape(), pivots)
	}
}

// LUUnpack returns the permutation matrices P [*, m, m], L [*, m, k] and U [*, k, n] with P L U = x from what [LUFactor] made of x.
func LUUnpack(lu, pivots *core.Tensor) (p, l, u *core.Tensor) {
	if parts := distributed(lu, pivots); parts != nil {
		return handOn3(parts, "lu_unpack", lu, pivots)
	}
	op := begin("lu_unpack", &lu, &pivots)
	op.luPivots(lu, pivots)
	if op.err != nil {
		return op.fail(), op.fail(), op.fail()
	}
	out := core.RunScope(func() []*core.Tensor {
		m, d := lu.Size(-2), lu.DType()
		rows := permutation(op.name, pivots, m)
		p := castTo(Eq(Unsqueeze(rows, -2), Unsqueeze(countTo(lu, m), -1)), d)
		l, u := luParts(lu)
		return []*core.Tensor{p, l, u}
	})
	return out[0], out[1], out[2]
}

// LUSolve returns the X of A X = B, or of Aᴴ X = B if adjoint, for square A [*, n, n], of which [LUFactor] made lu and pivots, and B
// [*, n, k]. The leading dimensions broadcast.
func LUSolve(lu, pivots, b *core.Tensor, adjointed bool) *core.Tensor {
	if parts := distributed(lu, pivots, b); parts != nil {
		return handOn(parts, "linalg_lu_solve", lu, pivots, b, adjointed)
	}
	op := begin("linalg_lu_solve", &lu, &pivots, &b)
	op.multipliable(lu, b)
	op.luPivots(lu, pivots)
	op.linalgMatrices(lu, true)
	op.linalgMatrices(b, false)
	if op.err == nil && b.Size(-2) != lu.Size(-1) {
		op.failf(core.ShapeError, "got matrices %v and right sides %v, want [*, n, n] and [*, n, k]", lu.Shape(), b.Shape())
	}
	return op.compose(func() *core.Tensor {
		batch, err := core.Broadcast(op.name, lu.Shape()[:lu.Dim()-2], b.Shape()[:b.Dim()-2])
		if err != nil {
			return core.ErrorTensor(err)
		}
		wide := func(t *core.Tensor, sizes ...int) *core.Tensor {
			return Expand(t, append(slices.Clone(batch), sizes...)...)
		}
		n := lu.Size(-1)
		rows := wide(permutation(op.name, pivots, n), n)
		x := wide(b, n, b.Size(-1))
		if adjointed {
			x = SolveTriangular(adjoint(lu), SolveTriangular(adjoint(lu), x, false, false), true, true)
			return permuteRows(x, ArgSort(rows, -1, SortOptions{}))
		}
		return SolveTriangular(lu, SolveTriangular(lu, permuteRows(x, rows), false, true), true, false)
	})
}
