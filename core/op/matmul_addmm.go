package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// AddMM returns beta * input + alpha * (x @ y) for matrices x [m, k] and y [k, n] and an input that broadcasts to
// [m, n]. With beta = 0 the input is not read.
func AddMM(input, x, y *core.Tensor, beta, alpha float64) *core.Tensor {
	if parts := distributed(input, x, y); parts != nil {
		return handOn(parts, "addmm", input, x, y, beta, alpha)
	}
	return addProduct("addmm", input, x, y, 2, addForm{productForm{alpha: alpha}, beta})
}

// AddMMInPlace is [AddMM] into t.
func AddMMInPlace(t, x, y *core.Tensor, beta, alpha float64) *core.Tensor {
	if parts := distributed(t, x, y); parts != nil {
		return handOn(parts, "addmm_", t, x, y, beta, alpha)
	}
	return addProductInPlace("addmm_", t, x, y, 2, addForm{productForm{alpha: alpha}, beta})
}

// BAddBMM returns beta * input + alpha * (x @ y) for stacks of matrices x [b, m, k] and y [b, k, n] and an input that
// broadcasts to [b, m, n].
func BAddBMM(input, x, y *core.Tensor, beta, alpha float64) *core.Tensor {
	if parts := distributed(input, x, y); parts != nil {
		return handOn(parts, "baddbmm", input, x, y, beta, alpha)
	}
	return addProduct("baddbmm", input, x, y, 3, addForm{productForm{alpha: alpha}, beta})
}

// BAddBMMInPlace is [BAddBMM] into t.
func BAddBMMInPlace(t, x, y *core.Tensor, beta, alpha float64) *core.Tensor {
	if parts := distributed(t, x, y); parts != nil {
		return handOn(parts, "baddbmm_", t, x, y, beta, alpha)
	}
	return addProductInPlace("baddbmm_", t, x, y, 3, addForm{productForm{alpha: alpha}, beta})
}

// AddMV returns beta * input + alpha * (x @ y) for a matrix x [m, k], a vector y [k] and an input that broadcasts to [m].
func AddMV(input, x, y *core.Tensor, beta, alpha float64) *core.Tensor {
	if parts := distributed(input, x, y); parts != nil {
		return handOn(parts, "addmv", input, x, y, beta, alpha)
	}
	op := begin("addmv", &input, &x, &y)
	op.vectorFactors(x, y)
	op.expandable(input, x, 0)
	return op.compose(func() *core.Tensor {
		row := Reshape(y, 1, y.Numel())
		return Reshape(addProduct("addmv", input, row, x, 2, addForm{productForm{tb: true, alpha: alpha}, beta}), x.Size(0))
	})
}

// AddMVInPlace is [AddMV] into t.
func AddMVInPlace(t, x, y *core.Tensor, beta, alpha float64) *core.Tensor {
	if parts := distributed(t, x, y); parts != nil {
		return handOn(parts, "addmv_", t, x, y, beta, alpha)
	}
	op := begin("addmv_", &t, &x, &y)
	op.vectorFactors(x, y)
	if op.err == nil && (t.Dim() != 1 || t.Numel() != x.Size(0)) {
		op.failf(core.ShapeError, "got %v to change, want [%d]", t.Shape(), x.Size(0))
	}
	op.inPlace(t)
	if op.err != nil {
		return op.fail()
	}
	return changeView(t, []int{1, t.Numel()}, func(v *core.Tensor) *core.Tensor {
		form := addForm{productForm{tb: true, alpha: alpha}, beta}
		return addProductInPlace("addmv_", v, Reshape(y, 1, y.Numel()), x, 2, form)
	})
}

// vectorFactors fails unless x is a matrix and y a vector that it can be multiplied with.
func (op *opContext) vectorFactors(x, y *core.Tensor) {
	op.multipliable(x, y)
	switch {
	case op.err != nil:
	case x.Dim() != 2 || y.Dim() != 1:
		op.failf(core.ShapeError, "want a matrix and a vector, got %s", shapes(x, y))
	case x.Size(1) != y.Size(0):
		op.failf(core.ShapeError, "inner dimensions differ, got %s", shapes(x, y))
	}
}

// expandable fails unless input broadcasts to a vector with the size of dimension dim of x.
func (op *opContext) expandable(input, x *core.Tensor, dim int) {
	if op.err == nil && (input.Dim() > 1 || input.Numel() != 1 && input.Numel() != x.Size(dim)) {
		op.failf(core.ShapeError, "input %v does not broadcast to [%d]", input.Shape(), x.Size(dim))
	}
}

// AddR returns beta * input + alpha * the outer product of vectors x [m] and y [n], for an input that broadcasts to
// [m, n].
func AddR(input, x, y *core.Tensor, beta, alpha float64) *core.Tensor {
	if parts := distributed(input, x, y); parts != nil {
		return handOn(parts, "addr", input, x, y, beta, alpha)
	}
	op := begin("addr", &input, &x, &y)
	op.twoVectors(x, y)
	return op.compose(func() *core.Tensor {
		form := addForm{productForm{alpha: alpha}, beta}
		return addProduct("addr", input, Reshape(x, x.Numel(), 1), Reshape(y, 1, y.Numel()), 2, form)
	})
}

// AddRInPlace is [AddR] into t.
func AddRInPlace(t, x, y *core.Tensor, beta, alpha float64) *core.Tensor {
	if parts := distributed(t, x, y); parts != nil {
		return handOn(parts, "addr_", t, x, y, beta, alpha)
	}
	op := begin("addr_", &t, &x, &y)
	op.twoVectors(x, y)
	op.inPlace(t)
	if op.err != nil {
		return op.fail()
	}
	core.Tidy(func() {
		form := addForm{productForm{alpha: alpha}, beta}
		op.check(addProductInPlace("addr_", t, Reshape(x, x.Numel(), 1), Reshape(y, 1, y.Numel()), 2, form).Err())
	})
	return op.done(t)
}

func (op *opContext) twoVectors(x, y *core.Tensor) {
	op.multipliable(x, y)
	if op.err == nil && (x.Dim() != 1 || y.Dim() != 1) {
		op.failf(core.ShapeError, "want two vectors, got %s", shapes(x, y))
	}
}

// AddBMM returns beta * input + alpha * the sum of the products of the matrices of two stacks x [b, m, k] and y [b, k, n],
// for an input that broadcasts to [m, n].
func AddBMM(input, x, y *core.Tensor, beta, alpha float64) *core.Tensor {
	if parts := distributed(input, x, y); parts != nil {
		return handOn(parts, "addbmm", input, x, y, beta, alpha)
	}
	op := begin("addbmm", &input, &x, &y)
	op.stacks(x, y)
	return op.compose(func() *core.Tensor {
		row, column := joinStacks(x, y)
		return addProduct("addbmm", input, row, column, 2, addForm{productForm{alpha: alpha}, beta})
	})
}

// AddBMMInPlace is [AddBMM] into t.
func AddBMMInPlace(t, x, y *core.Tensor, beta, alpha float64) *core.Tensor {
	if parts := distributed(t, x, y); parts != nil {
		return handOn(parts, "addbmm_", t, x, y, beta, alpha)
	}
	op := begin("addbmm_", &t, &x, &y)
	op.stacks(x, y)
	op.inPlace(t)
	if op.err != nil {
		return op.fail()
	}
	core.Tidy(func() {
		row, column := joinStacks(x, y)
		op.check(addProductInPlace("addbmm_", t, row, column, 2, addForm{productForm{alpha: alpha}, beta}).Err())
	})
	return op.done(t)
}

func (op *opContext) stacks(x, y *core.Tensor) {
	op.multipliable(x, y)
	switch {
	case op.err != nil:
	case x.Dim() != 3 || y.Dim() != 3:
		op.failf(core.ShapeError, "want two stacks of matrices, got %s", shapes(x, y))
	case x.Size(0) != y.Size(0):
		op.failf(core.ShapeError, "the stacks have different heights, got %s", shapes(x, y))
	case x.Size(2) != y.Size(1):
		op.failf(core.ShapeError, "inner dimensions differ, got %s", shapes(x, y))
	}
}

// joinStacks lays the matrices of x side by side and those of y one below the other: the product of the two is the sum of
// the products of the stacks' matrices.
func joinStacks(x, y *core.Tensor) (row, column *core.Tensor) {
	row = Reshape(Permute(x, 1, 0, 2), x.Size(1), x.Size(0)*x.Size(2))
	return row, Reshape(y, y.Size(0)*y.Size(1), y.Size(2))
}

// An addForm says how a product is added to a scaled input.
type addForm struct {
	productForm
	beta float64
}

// checkSum fails unless the operands are ones of a sum of input and a product of tensors of rank dimensions.
func (op *opContext) checkSum(input, x, y *core.Tensor, rank int, f addForm) []int {
	op.multipliable(x, y, input)
	if op.err == nil && (x.Dim() != rank || y.Dim() != rank) {
		op.failf(core.ShapeError, "want two tensors of %d dimensions, got %s", rank, shapes(x, y))
	}
	if op.err == nil && rank == 3 && x.Size(0) != y.Size(0) {
		op.failf(core.ShapeError, "the stacks have different heights, got %s", shapes(x, y))
	}
	if op.err == nil && !x.DType().Differentiable() && (f.alpha != math.Trunc(f.alpha) || f.beta != math.Trunc(f.beta)) {
		op.failf(core.DTypeError, "beta and alpha must be whole numbers for %v, got %v and %v", x.DType(), f.beta, f.alpha)
	}
	return op.productShape(x, y, f.productForm)
}

func addProduct(name string, input, x, y *core.Tensor, rank int, f addForm) *core.Tensor {
	op := begin(name, &input, &x, &y)
	shape := op.checkSum(input, x, y, rank, f)
	if op.err == nil && !broadcastsTo(input.Shape(), shape) {
		op.failf(core.ShapeError, "input %v does not broadcast to %v", input.Shape(), shape)
	}
	if op.err != nil {
		return op.fail()
	}
	out := op.outApart(x.DType(), shape, input, x, y)
	if op.err != nil {
		return op.fail()
	}
	switch n := shape[rank-1]; {
	case f.beta == 0:
		op.multiply(out, x, y, nil, f.productForm, 0, false)
	case f.beta == 1 && !x.DType().IsComplex() && input.Numel() == n && input.Dim() > 0 && input.Size(-1) == n:
		bias := core.WrapTensor(op.mode, input.Storage(), input.DType(), []int{n}, input.Strides()[input.Dim()-1:], input.Offset())
		op.multiply(out, x, y, bias, f.productForm, 0, false)
		bias.Release()
	default:
		strides := core.ExpandStrides(input.Shape(), input.Strides(), shape)
		wide := core.WrapTensor(op.mode, input.Storage(), input.DType(), shape, strides, input.Offset())
		op.launch(op.call(contract.Copy).Out(out).In(wide))
		wide.Release()
		op.multiply(out, x, y, nil, f.productForm, f.beta, true)
	}
	if op.grad {
		n := op.node(addProductDeriv, input, x, y)
		n.Any = f
		saveFactors(n, x, y)
		op.attach(n, out)
	}
	return op.done(out)
}

func addProductInPlace(name string, t, x, y *core.Tensor, rank int, f addForm) *core.Tensor {
	op := begin(name, &t, &x, &y)
	shape := op.checkSum(t, x, y, rank, f)
	if op.err == nil && !slices.Equal(t.Shape(), shape) {
		op.failf(core.ShapeError, "got %v to change, want %v", t.Shape(), shape)
	}
	op.inPlace(t)
	if op.err != nil {
		return op.fail()
	}
	if x.DType().IsComplex() {
		op.end()
		return replace(name, func(old *core.Tensor) *core.Tensor { return addProduct(name, old, x, y, rank, f) }, t, x, y)
	}
	// A factor that shares t's memory must be read before t changes.
	xs, ys := op.apart(t, x), op.apart(t, y)
	if op.err != nil {
		return op.fail()
	}
	op.multiply(t, xs, ys, nil, f.productForm, f.beta, true)
	op.changed(t)
	if op.grad {
		n := op.node(addProductDeriv, t, x, y)
		n.Any = f
		saveFactors(n, xs, ys)
		op.rebase(n, t)
	}
	return op.done(t)
}

func addProductDeriv(ctx *core.BackwardContext) {
	f := ctx.Node.Any.(addForm)
	g := ctx.Grad()
	setFactorGrads(ctx, 1, g, f.productForm)
	if ctx.Needs(0) {
		s := sumTo(g, ctx.InputShape(0))
		if f.beta != 1 {
			s = Mul(s, core.Num(f.beta))
		}
		ctx.Set(0, s)
	}
}

// changeView runs an operation in place on a view of t with another shape, and returns t.
func changeView(t *core.Tensor, shape []int, change func(v *core.Tensor) *core.Tensor) *core.Tensor {
	var err error
	core.Tidy(func() { err = change(View(t, shape...)).Err() })
	if err != nil {
		return core.ErrorTensor(err)
	}
	return t
}

// broadcastsTo reports whether a tensor of the given shape broadcasts to the other one.
func broadcastsTo(shape, to []int) bool {
	lead := len(to) - len(shape)
	if lead < 0 {
		return false
	}
	for i, n := range shape {
		if n != 1 && n != to[lead+i] {
			return false
		}
	}
	return true
}
