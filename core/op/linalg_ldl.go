package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// LDLFactor returns, of symmetric matrices [*, n, n], or with hermitian of Hermitian ones, the lower triangular L with a diagonal of ones
// and the D of A = L D Lᵀ, or L D Lᴴ, whose rows and columns were exchanged for stability, in one lower triangle [*, n, n] without that
// diagonal. D has blocks of one row and of two: the second has its element below the diagonal. pivots [*, n] of int32 says with which
// row, counted from 1, each was exchanged, one after the other; those of a block of two rows are both the negative of the row with
// which the second was. infos [*] of int32 has the first row, counted from 1, in which D is 0, or 0. The lower triangle is read. There is
// no gradient.
func LDLFactor(x *core.Tensor, hermitian bool) (ld, pivots, infos *core.Tensor) {
	if parts := distributed(x); parts != nil {
		return handOn3(parts, "linalg_ldl_factor_ex", x, hermitian)
	}
	op := begin("linalg_ldl_factor_ex", &x)
	op.linalgMatrices(x, true)
	if op.err != nil {
		return op.fail(), op.fail(), op.fail()
	}
	ld = op.outLike(x)
	pivots, infos = op.out(core.Int32, x.Shape()[:x.Dim()-1]), op.out(core.Int32, x.Shape()[:x.Dim()-2])
	if op.err != nil {
		return op.fail(), op.fail(), op.fail()
	}
	op.linalgLaunch(contract.LinalgLDL, x, nil, contract.LinalgComplexAttrs{Hermitian: hermitian}, ld, pivots, infos)
	if op.grad {
		op.attach(op.node(underived, x), ld, pivots, infos)
	}
	return op.done3(ld, pivots, infos)
}

// LDLSolve returns the X of A X = B for matrices A [*, n, n], of which [LDLFactor] made ld and pivots with the same hermitian, and B
// [*, n, k]. The leading dimensions broadcast.
func LDLSolve(ld, pivots, b *core.Tensor, hermitian bool) *core.Tensor {
	if parts := distributed(ld, pivots, b); parts != nil {
		return handOn(parts, "linalg_ldl_solve", ld, pivots, b, hermitian)
	}
	op := begin("linalg_ldl_solve", &ld, &pivots, &b)
	op.multipliable(ld, b)
	op.linalgMatrices(ld, true)
	op.luPivots(ld, pivots)
	op.linalgMatrices(b, false)
	if op.err == nil && b.Size(-2) != ld.Size(-1) {
		op.failf(core.ShapeError, "got matrices %v and right sides %v, want [*, n, n] and [*, n, k]", ld.Shape(), b.Shape())
	}
	return op.compose(func() *core.Tensor {
		batch, err := core.Broadcast(op.name, ld.Shape()[:ld.Dim()-2], b.Shape()[:b.Dim()-2])
		if err != nil {
			return core.ErrorTensor(err)
		}
		wide := func(t *core.Tensor, sizes ...int) *core.Tensor {
			return Expand(t, append(slices.Clone(batch), sizes...)...)
		}
		n, x := ld.Size(-1), wide(b, b.Shape()[b.Dim()-2:]...)
		if n == 0 {
			return Clone(x)
		}
		turn := func(t *core.Tensor) *core.Tensor {
			if hermitian {
				return conjugate(t)
			}
			return t
		}
		f := ldlParts(op.name, ld, pivots)
		if hermitian && isComplex(ld) {
			f.own = castTo(Real(f.own), ld.DType())
		}
		l, rows := wide(f.l, n, n), wide(f.rows, n)
		x = solveWith(l, permuteRows(x, rows), &contract.TriangularAttrs{Unit: true})
		x = f.divide(x, turn, wide)
		x = solveWith(turn(mT(l)), x, &contract.TriangularAttrs{Upper: true, Unit: true})
		return permuteRows(x, ArgSort(rows, -1, SortOptions{}))
	})
}

// ldlFactors are what [LDLFactor] found: A, of exchanged rows and columns, is L D Lᵀ.
type ldlFactors struct {
	rows, partner    *core.Tensor // the order of the rows; the other row of a block, or the row itself
	l                *core.Tensor
	own, below       *core.Tensor // D's diagonal [*, n] and, in the first row of a block of two, the element below it, elsewhere 1
	pair, first, one *core.Tensor // whether a row is of a block of two, and the first of it; 1
}

// ldlParts takes ld and pivots apart. As LAPACK stores them, an exchange is not applied to the columns of L before it.
func ldlParts(name string, ld, pivots *core.Tensor) ldlFactors {
	n := ld.Size(-1)
	at := Add(countTo(ld, n), core.IntNum(1)) // of rows, from 1
	pivots = castTo(pivots, core.Int64)
	pair := Lt(pivots, core.IntNum(0))
	odd := Remainder(CumSum(castTo(pair, core.Int64), -1), core.IntNum(2)) // a pair's first one
	first := LogicalAnd(pair, Ne(odd, core.IntNum(0)))
	step := castTo(pair, core.Int64)
	partner := Add(Sub(at, core.IntNum(1)), Where(first, step, Neg(step)))
	exchanges := Where(first, at, Abs(pivots)) // of the rows of a block of two, the second
	// The exchanges that come after column i: those of rows below its block.
	after := Gt(Unsqueeze(at, 0), Unsqueeze(Where(first, Add(at, core.IntNum(1)), at), -1))
	later := Where(after, Unsqueeze(exchanges, -2), at)
	orders := permutation(name, castTo(later, core.Int32), n) // row i has that of column i
	l := Tril(Gather(ld, -2, mT(orders)), -1)
	below := Diagonal(ld, -1, -2, -1)
	d := ld.DType()
	one := OnesWith(nil, TensorOptions{DType: &d, Device: ld.Device()})
	below = Cat([]*core.Tensor{below, Expand(one, append(slices.Clone(ld.Shape()[:ld.Dim()-2]), 1)...)}, -1)
	// What lies in D is not L's.
	isD := LogicalAnd(Unsqueeze(first, -2), Eq(Unsqueeze(at, -1), Add(at, core.IntNum(1))))
	return ldlFactors{
		rows: permutation(name, castTo(exchanges, core.Int32), n), partner: partner,
		l: Where(isD, core.Num(0), l), own: Diagonal(ld, 0, -2, -1), below: Where(first, below, one), pair: pair, first: first, one: one,
	}
}

// divide returns D⁻¹ x. A block [[a, t'], [t, c]] is divided by t first, so that its determinant neither overflows nor vanishes.
func (f ldlFactors) divide(x *core.Tensor, turn func(*core.Tensor) *core.Tensor, wide func(t *core.Tensor, sizes ...int) *core.Tensor) *core.Tensor {
	other := func(t *core.Tensor) *core.Tensor { return Gather(t, -1, f.partner) }
	cross := Where(f.first, turn(f.below), other(f.below)) // beside the diagonal in a row
	own, beside := Where(f.pair, Div(f.own, cross), f.own), other(cross)
	far := Div(other(f.own), beside)
	det := Where(f.pair, Sub(Mul(own, far), f.one), f.one)
	column := func(t *core.Tensor) *core.Tensor { return Unsqueeze(t, -1) }
	pairs := Sub(Mul(column(far), Div(x, column(cross))), Div(permuteRows(x, wide(f.partner, x.Size(-2))), column(beside)))
	return Where(column(f.pair), Div(pairs, column(det)), Div(x, column(Where(f.pair, f.one, f.own))))
}
