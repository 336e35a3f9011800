package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// CSROptions are the options of [CSRMatmul] and [CSRSampledMatmul].
type CSROptions struct {
	// Order says which value each entry has: entry k has values[Order[k]]. It is a permutation; nil means that entry k has values[k].
	Order *core.Tensor
	// TransposedCrow, TransposedRow and TransposedOrder are the same matrix in compressed columns, which derivatives need. They find it
	// themselves where it is not given.
	TransposedCrow, TransposedRow, TransposedOrder *core.Tensor
}

// csr is a matrix in compressed rows without its values, both ways.
type csr struct{ crow, col, order, tcrow, trow, torder *core.Tensor }

func (o CSROptions) of(crow, col *core.Tensor) csr {
	return csr{crow, col, o.Order, o.TransposedCrow, o.TransposedRow, o.TransposedOrder}
}

// transposed returns the matrix in compressed columns, of which there are the given number.
func (s csr) transposed(columns int) csr {
	if s.tcrow != nil {
		return csr{s.tcrow, s.trow, s.torder, s.crow, s.col, s.order}
	}
	sorted, place := Sort(s.col, 0, SortOptions{Stable: true})
	order := place
	if s.order != nil {
		order = IndexSelect(s.order, 0, place)
	}
	return csr{firstOf(sorted, columns), IndexSelect(rowOfEach(s.crow, s.col), 0, place), order, s.crow, s.col, s.order}
}

// rowOfEach returns the row of each entry of a matrix in compressed rows.
func rowOfEach(crow, col *core.Tensor) *core.Tensor {
	return Sub(SearchSorted(crow, counted(col, col.Numel()), SearchOptions{Right: true}), core.IntNum(1))
}

// firstOf returns where each of n rows begins among sorted row numbers, and where the last one ends.
func firstOf(sorted *core.Tensor, n int) *core.Tensor {
	return SearchSorted(sorted, counted(sorted, n+1), SearchOptions{})
}

// counted returns the numbers below n, beside t.
func counted(t *core.Tensor, n int) *core.Tensor {
	return Arange(nil, core.IntNum(int64(n)), nil, TensorOptions{Device: t.Device()})
}

func (s csr) options() CSROptions { return CSROptions{s.order, s.tcrow, s.trow, s.torder} }

func (s csr) save(n *core.Node) *core.Node {
	return n.Save(s.crow, s.col, s.order, s.tcrow, s.trow, s.torder)
}

func savedCSR(ctx *core.BackwardContext) csr {
	return csr{ctx.Saved(0), ctx.Saved(1), ctx.Saved(2), ctx.Saved(3), ctx.Saved(4), ctx.Saved(5)}
}

// CSRMatmul returns the product [m, n] of a sparse matrix [m, k] and a dense one x [k, n]. The sparse matrix is in compressed rows: the
// entries of row i are those from crow[i] to crow[i+1], in the columns col, with the given values.
func CSRMatmul(crow, col, values, x *core.Tensor, o CSROptions) *core.Tensor {
	return csrMatmul("csr_matmul", crow, col, values, x, o)
}

// csrMatmul is [CSRMatmul] for the operation of the given name, which errors have.
func csrMatmul(name string, crow, col, values, x *core.Tensor, o CSROptions) *core.Tensor {
	if parts := distributed(crow, col, values, x, o.Order, o.TransposedCrow, o.TransposedRow, o.TransposedOrder); parts != nil {
		return handOn(parts, "csr_matmul", crow, col, values, x, o)
	}
	op := begin(name, &crow, &col, &values, &x,
		optional(&o.Order), optional(&o.TransposedCrow), optional(&o.TransposedRow), optional(&o.TransposedOrder))
	s := o.of(crow, col)
	op.compressed(s, values)
	if op.err == nil {
		op.factors(values.DType(), x)
	}
	if op.err != nil {
		return op.fail()
	}
	if values.DType().IsComplex() {
		return op.compose(func() *core.Tensor {
			wide := Flatten(ViewAsReal(x), 1, 2) // real parts beside imaginary ones
			part := func(v *core.Tensor) *core.Tensor {
				y := CSRMatmul(crow, col, v, wide, o)
				return ViewAsComplex(Reshape(y, y.Size(0), x.Size(1), 2))
			}
			return Add(part(Real(values)), Mul(core.ComplexNum(1i), part(Imag(values))))
		})
	}
	y := op.out(values.DType(), []int{crow.Numel() - 1, x.Size(1)})
	c := op.call(contract.CSRMatmul).Out(y)
	op.addCompressed(c, s)
	c.In(op.dense(values)).In(op.dense(x))
	c.Work = values.Numel() * (x.Size(1) + 1)
	op.launch(c)
	if op.grad {
		op.attach(s.save(op.node(csrMatmulDeriv, values, x)).Save(values, x), y)
	}
	return op.done(y)
}

func csrMatmulDeriv(ctx *core.BackwardContext) {
	s, values, x, g := savedCSR(ctx), ctx.Saved(6), ctx.Saved(7), ctx.Grad()
	if x.Err() != nil {
		return
	}
	if ctx.Needs(0) {
		ctx.Set(0, CSRSampledMatmul(s.crow, s.col, g, x, s.options()))
	}
	if ctx.Needs(1) {
		t := s.transposed(x.Size(0))
		ctx.Set(1, CSRMatmul(t.crow, t.col, values, g, t.options()))
	}
}

// CSRSampledMatmul returns the values that the product of a [m, n] and the transpose of b [k, n] has at the entries of a sparse matrix
// [m, k] in compressed rows; see [CSRMatmul]. The other elements are not computed.
func CSRSampledMatmul(crow, col, a, b *core.Tensor, o CSROptions) *core.Tensor {
	if parts := distributed(crow, col, a, b, o.Order, o.TransposedCrow, o.TransposedRow, o.TransposedOrder); parts != nil {
		return handOn(parts, "csr_sampled_matmul", crow, col, a, b, o)
	}
	op := begin("csr_sampled_matmul", &crow, &col, &a, &b,
		optional(&o.Order), optional(&o.TransposedCrow), optional(&o.TransposedRow), optional(&o.TransposedOrder))
	s := o.of(crow, col)
	op.compressed(s, nil)
	if op.err == nil {
		op.factors(a.DType(), a, b)
	}
	if op.err == nil && (a.Size(1) != b.Size(1) || a.Size(0) != crow.Numel()-1) {
		op.failf(core.ShapeError, "got factors %s for %d rows, want [rows, n] and [columns, n]", shapes(a, b), crow.Numel()-1)
	}
	if op.err != nil {
		return op.fail()
	}
	if a.DType().IsComplex() {
		return op.compose(func() *core.Tensor {
			part := func(a, b *core.Tensor) *core.Tensor { return CSRSampledMatmul(crow, col, a, b, o) }
			ar, ai, br, bi := Real(a), Imag(a), Real(b), Imag(b)
			return Complex(Sub(part(ar, br), part(ai, bi)), Add(part(ar, bi), part(ai, br)))
		})
	}
	values := op.out(a.DType(), []int{col.Numel()})
	c := op.call(contract.CSRSampledMatmul).Out(values)
	op.addCompressed(c, s)
	c.In(op.dense(a)).In(op.dense(b))
	c.Work = col.Numel() * (a.Size(1) + 1)
	op.launch(c)
	if op.grad {
		op.attach(s.save(op.node(csrSampledDeriv, a, b)).Save(a, b), values)
	}
	return op.done(values)
}

func csrSampledDeriv(ctx *core.BackwardContext) {
	s, a, b, g := savedCSR(ctx), ctx.Saved(6), ctx.Saved(7), ctx.Grad()
	if b.Err() != nil {
		return
	}
	if ctx.Needs(0) {
		ctx.Set(0, CSRMatmul(s.crow, s.col, g, b, s.options()))
	}
	if ctx.Needs(1) {
		t := s.transposed(b.Size(0))
		ctx.Set(1, CSRMatmul(t.crow, t.col, g, a, t.options()))
	}
}

// compressed checks the dtypes and shapes of a matrix in compressed rows.
func (op *opContext) compressed(s csr, values *core.Tensor) {
	if op.err != nil {
		return
	}
	for i, t := range []*core.Tensor{s.crow, s.col, s.order, s.tcrow, s.trow, s.torder} {
		if t == nil && (i == 2 || s.tcrow == nil && i > 2 || i == 5) {
			continue
		}
		what := [...]string{"crow", "col", "order", "transposed_crow", "transposed_row", "transposed_order"}[i]
		switch {
		case t == nil || t.IsNumber() || t.Dim() != 1 || t.DType() != core.Int64:
			op.failf(core.TypeError, "%s must be a vector of int64, got %v", what, t)
		case i%3 == 0 && t.Numel() == 0:
			op.failf(core.ShapeError, "%s must have one element more than there are rows, got none", what)
		case i%3 != 0 && t.Numel() != s.col.Numel():
			op.failf(core.ShapeError, "%s has %d elements for %d entries", what, t.Numel(), s.col.Numel())
		}
		if op.err != nil {
			return
		}
	}
	if s.crow.Numel() == 1 && s.col.Numel() > 0 {
		op.failf(core.ShapeError, "got %d entries for no rows", s.col.Numel())
		return
	}
	if values != nil && (values.IsNumber() || values.Dim() != 1 || values.Numel() != s.col.Numel()) {
		op.failf(core.ShapeError, "got values of shape %v for %d entries, want a vector", values.Shape(), s.col.Numel())
	}
}

// factors fails unless all are matrices of floats or complex numbers of one dtype.
func (op *opContext) factors(d core.DType, list ...*core.Tensor) {
	for _, t := range list {
		switch {
		case op.err != nil:
		case t.IsNumber() || t.Dim() != 2:
			op.failf(core.ShapeError, "want a matrix, got %v", t)
		case !d.Differentiable():
			op.failf(core.DTypeError, "not defined for %v", d)
		case t.DType() != d:
			op.failf(core.DTypeError, "dtypes differ, got %v and %v", d, t.DType())
		}
	}
}

// addCompressed adds the first operands of a kernel.
func (op *opContext) addCompressed(c *core.Call, s csr) {
	c.In(op.dense(s.crow)).In(op.dense(s.col)).In(op.dense(s.order))
}

func init() {
	crow, col := Arg{Name: "crow", Doc: "where the entries of each row begin, and where the last row's end: int64 of [rows + 1]"}, Arg{Name: "col", Doc: "the columns of the entries, int64"}
	options := []Arg{{Name: "order", Field: "Order", Optional: true, Doc: "which of the values each entry has, a permutation"},
		{Name: "transposed_crow", Field: "TransposedCrow", Optional: true, Doc: "crow of the transposed matrix, for derivatives"},
		{Name: "transposed_row", Field: "TransposedRow", Optional: true, Doc: "col of the transposed matrix"},
		{Name: "transposed_order", Field: "TransposedOrder", Optional: true, Doc: "order of the transposed matrix"}}
	// Rows of two, none, three (one of them in a column twice) and one entries, of four columns.
	starts, columns := Indices([]int{5}, 0, 2, 2, 5, 6), Indices([]int{6}, 0, 3, 1, 1, 2, 3)
	samples := func(first, second func(n int) T) []Sample {
		return []Sample{
			{Name: "wide", Args: []any{starts, columns, first(3), second(3), CSROptions{}}},
			{Name: "one column", Args: []any{starts, columns, first(1), second(1), CSROptions{}}},
			{Name: "many columns", Args: []any{starts, columns, first(127), second(127), CSROptions{}}},
			{Name: "no columns", Args: []any{starts, columns, first(0), second(0), CSROptions{}}},
		}
	}
	values := func(int) T { return Shaped(6) }
	matrix := func(rows int) func(int) T { return func(n int) T { return Shaped(rows, n) } }
	empty := Indices([]int{0})
	register("sparse",
		Row{Name: "csr_matmul", Func: CSRMatmul, Args: append([]Arg{crow, col, {Name: "values", Doc: "the values of the entries"}, {Name: "dense", Doc: "the matrix [columns, n]"}}, options...),
			Samples: append(samples(values, matrix(4)), Sample{Name: "no entries", Args: []any{Indices([]int{3}, 0, 0, 0), empty, Shaped(0), Shaped(2, 3), CSROptions{}}},
				Sample{Name: "no rows", Args: []any{Indices([]int{1}, 0), empty, Shaped(0), Shaped(2, 3), CSROptions{}}}),
			Doc: "The product of a sparse matrix in compressed rows and a dense matrix."},
		Row{Name: "csr_sampled_matmul", Func: CSRSampledMatmul, Args: append([]Arg{crow, col, {Name: "a", Doc: "the matrix [rows, n]"}, {Name: "b", Doc: "the matrix [columns, n]"}}, options...),
			Samples: append(samples(matrix(4), matrix(4)), Sample{Name: "no entries", Args: []any{Indices([]int{3}, 0, 0, 0), empty, Shaped(2, 3), Shaped(2, 3), CSROptions{}}}),
			Doc:     "The product of a matrix and another one's transpose, at the entries of a sparse matrix in compressed rows only."},
	)
}
