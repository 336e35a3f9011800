package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// A productForm says how the matrices of a product are taken: either may be stored transposed, and the result is scaled.
type productForm struct {
	ta, tb bool
	alpha  float64
}

// plainForms are the forms that are not scaled, so that recording one needs no memory.
var plainForms = [4]productForm{{alpha: 1}, {ta: true, alpha: 1}, {tb: true, alpha: 1}, {ta: true, tb: true, alpha: 1}}

func (f productForm) shared() *productForm {
	if f.alpha == 1 {
		return &plainForms[contract.Flag(f.ta)+2*contract.Flag(f.tb)]
	}
	return &f
}

// matrices fails unless the tensors are operands of a product of at least two dimensions each, and of one dtype.
func (op *opContext) matrices(x, y *core.Tensor) {
	op.multipliable(x, y)
	if op.err == nil && (x.Dim() < 2 || y.Dim() < 2) {
		op.failf(core.ShapeError, "want matrices, got %s", shapes(x, y))
	}
}

// multipliable fails unless matrix products are defined for the tensors' dtypes.
func (op *opContext) multipliable(tensors ...*core.Tensor) {
	for _, t := range tensors {
		switch {
		case op.err != nil || t == nil:
		case t.IsNumber():
			op.failf(core.TypeError, "got a number, want a tensor")
		case t.DType() == core.Bool:
			op.failf(core.DTypeError, "not defined for %v", core.Bool)
		case t.DType() != tensors[0].DType() && !op.rounds:
			op.failf(core.DTypeError, "dtypes differ, got %v and %v", tensors[0].DType(), t.DType())
		}
	}
}

// productSize returns the rows, columns and depth of a product.
func (f productForm) size(x, y *core.Tensor) (m, n, kx, ky int) {
	m, kx = x.Size(-2), x.Size(-1)
	if f.ta {
		m, kx = kx, m
	}
	ky, n = y.Size(-2), y.Size(-1)
	if f.tb {
		ky, n = n, ky
	}
	return m, n, kx, ky
}

// productShape returns the shape of the product of two stacks of matrices, whose leading dimensions broadcast.
func (op *opContext) productShape(x, y *core.Tensor, f productForm) []int {
	if op.err != nil {
		return nil
	}
	m, n, kx, ky := f.size(x, y)
	if kx != ky {
		op.failf(core.ShapeError, "inner dimensions differ, got %s", shapes(x, y))
		return nil
	}
	xs, ys := x.Shape()[:x.Dim()-2], y.Shape()[:y.Dim()-2]
	batch := xs
	if !slices.Equal(xs, ys) {
		var err error
		if batch, err = core.Broadcast(op.name, xs, ys); err != nil {
			op.failf(core.ShapeError, "leading dimensions do not broadcast, got %s", shapes(x, y))
			return nil
		}
	}
	shape := make([]int, len(batch)+2)
	copy(shape, batch)
	shape[len(batch)], shape[len(batch)+1] = m, n
	return shape
}

// multiply launches the kernel: out = alpha * x @ y + beta * out + bias. With change, out holds a value. Of complex matrices out is
// contiguous, and there is no bias.
func (op *opContext) multiply(out, x, y, bias *core.Tensor, f productForm, beta float64, change bool) {
	if x.DType().IsComplex() {
		op.multiplyComplex(out, x, y, f, beta, change)
		return
	}
	_, _, k, _ := f.size(x, y)
	c := op.call(contract.MatMul).Out(out).In(x).In(y)
	if bias != nil {
		c.In(bias)
	}
	contract.MatMulAttrs{TransposeA: f.ta, TransposeB: f.tb, Reduced: core.ReducedProducts(op.inputType(x)), Rounded: op.rounds, Alpha: f.alpha, Beta: beta}.AddTo(c)
	c.Work = max(c.Work, productWork(x.DType(), out.Numel()*k))
	c.InPlace = change
	op.launch(c)
}

// productWork returns the [core.Call.Work] of n multiplications whose products are added up. Those of floats take vectors, and several at a time.
func productWork(d core.DType, n int) int {
	if !d.Differentiable() {
		return n / 4
	}
	return n / 32
}

// product returns the product of two stacks of matrices.
func product(name string, x, y *core.Tensor, f productForm) *core.Tensor {
	if distributed(x, y) != nil { // a gradient
		if f.ta {
			x = Transpose(x, -1, -2)
		}
		if f.tb {
			y = Transpose(y, -1, -2)
		}
		z := MatMul(x, y)
		if f.alpha != 1 {
			z = Mul(z, core.Num(f.alpha))
		}
		return z
	}
	op := begin(name).with(x, y)
	op.matrices(x, y)
	return op.product(x, y, f)
}

// product is the rest of the function product, for an op that has checked that x and y are stacks of matrices of one dtype.
func (op *opContext) product(x, y *core.Tensor, f productForm) *core.Tensor {
	shape := op.productShape(x, y, f)
	if op.err != nil {
		return op.fail()
	}
	out := op.outApart(x.DType(), shape, x, y)
	if op.err != nil {
		return op.fail()
	}
	op.multiply(out, x, y, nil, f, 0, false)
	if op.grad {
		n := op.node(productDeriv, x, y)
		n.Any = f.shared()
		saveFactors(n, x, y)
		op.attach(n, out)
	}
	return op.done(out)
}

// saveFactors saves for each of two factors the other one, if it needs a gradient.
func saveFactors(n *core.Node, x, y *core.Tensor) {
	var saveX, saveY *core.Tensor
	if derived(y) {
		saveX = x
	}
	if derived(x) {
		saveY = y
	}
	n.Save(saveX, saveY)
}

func productDeriv(ctx *core.BackwardContext) {
	f := ctx.Node.Any.(*productForm)
	setFactorGrads(ctx, 0, ctx.Grad(), *f)
}

// setFactorGrads sets the gradients of inputs first and first+1 of a node, the factors of a product that it saved with
// saveFactors, from that of the product.
func setFactorGrads(ctx *core.BackwardContext, first int, g *core.Tensor, f productForm) {
	factor := func(i int) *core.Tensor {
		t := ctx.Saved(i)
		if t.Err() != nil || !t.DType().IsComplex() {
			return t
		}
		return Conj(t)
	}
	if ctx.Needs(first) {
		setProduct(ctx, first, leftGrad(g, factor(1), f))
	}
	if ctx.Needs(first + 1) {
		setProduct(ctx, first+1, rightGrad(g, factor(0), f, ctx.InputShape(first+1)))
	}
}

// factors are what a product is made of.
type factors struct {
	x, y *core.Tensor
	form productForm
}

// leftGrad returns the product that is the gradient of the left factor, from the gradient of a product.
func leftGrad(g, y *core.Tensor, f productForm) factors {
	if f.ta {
		return factors{y, g, productForm{ta: f.tb, tb: true, alpha: f.alpha}}
	}
	return factors{g, y, productForm{tb: !f.tb, alpha: f.alpha}}
}

// rightGrad returns the product that is the gradient of the right factor, of the given shape.
func rightGrad(g, x *core.Tensor, f productForm, shape []int) factors {
	if !f.ta && len(shape) == 2 && x.Err() == nil && x.Dim() > 2 {
		// The factor is shared by a stack: one product over all its rows adds the gradients up.
		x, g = rowsOf(x), rowsOf(g)
	}
	if f.tb {
		return factors{g, x, productForm{ta: true, tb: f.ta, alpha: f.alpha}}
	}
	return factors{x, g, productForm{ta: !f.ta, alpha: f.alpha}}
}

// setProduct makes a product, summed over the dimensions along which its shape is larger, the gradient of input i. A gradient that has
// arrived takes the product up, where it may be overwritten; the bits are then not always those of an addition, since the depth of
// a product is summed in parts.
func setProduct(ctx *core.BackwardContext, i int, p factors) {
	if old, alone := ctx.Arrived(i); alone && (!old.DType().IsComplex() || old.Contiguous()) {
		op := begin("matmul").with(p.x, p.y, old)
		op.matrices(p.x, p.y)
		if shape := op.productShape(p.x, p.y, p.form); op.err == nil && slices.Equal(shape, old.Shape()) {
			op.multiply(old, p.x, p.y, nil, p.form, 1, true)
			op.changed(old)
			ctx.SetSum(i, op.done(old))
			return
		}
	}
	if d := parameterDType(ctx, i, p.x); d != ctx.InputDType(i) {
		op := begin("matmul").with(p.x, p.y)
		op.matrices(p.x, p.y)
		if shape := op.productShape(p.x, p.y, p.form); op.err == nil && slices.Equal(shape, ctx.InputShape(i)) {
			out := op.out(d, shape)
			op.multiply(out, p.x, p.y, nil, p.form, 0, false)
			ctx.SetMixed(i, op.done(out))
			return
		}
	}
	ctx.Set(i, sumTo(product("matmul", p.x, p.y, p.form), ctx.InputShape(i)))
}

// feedsProduct reports whether the gradient of input i goes, by way of reshapes, into the derivative of a product, and nobody sees it
// before: its rows may then lie apart.
func feedsProduct(ctx *core.BackwardContext, i int) bool {
	for n := ctx.Node; ctx.Hidden(n, i); i = 0 {
		n = n.Edges()[i].Node
		switch n.Any.(type) {
		case *productForm:
			return true
		case reshaped:
		default:
			return false
		}
	}
	return false
}

// rowsOf returns t with all dimensions but the last joined.
func rowsOf(t *core.Tensor) *core.Tensor {
	if t.Err() != nil || t.Dim() == 2 {
		return t
	}
	cols := t.Size(-1)
	return Reshape(t, core.Numel(t.Shape()[:t.Dim()-1]), cols)
}
