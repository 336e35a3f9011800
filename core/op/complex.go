package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
)

var (
	conjOp = elementwise("conj", "x", "x", "grad").
		overComplex("xr, -xi")
	sgnOp = elementwise("sgn", "x", "sign(x)", "0").
		overComplex("r = hypot(xr, xi); where(r == 0, 0, xr/r), where(r == 0, 0, xi/r)")
	angleOp = elementwise("angle", "x", "where(isnan(x), x, where(x < 0, pi, 0))", "0").
		overComplex("atan2(xi, xr)")
	// What products of complex matrices are made of, which nothing applies to real ones: x and i*x; x + i*y.
	turnsOp    = elementwise("turns", "x", "x").overComplex("xr, xi, -xi, xr")
	addTurnsOp = elementwise("add_turns", "x, y", "x + y").overComplex("xr - yi, xi + yr")
	// joinOp writes complex numbers of real ones.
	joinOp = elementwise("join_parts", "re, im", "re, im")
)

func init() {
	joinOp.kernel.Domain = expr.Floats
	absOp.derivedBy(func(grad, x *core.Tensor) *core.Tensor { return Mul(grad, Sgn(x)) })
	conjOp.derivedBy(func(grad, _ *core.Tensor) *core.Tensor { return Conj(grad) })
	conjOp.complex.uses[1].saves = nil // it needs the gradient alone
	sgnOp.derivedBy(sgnGrad)
	angleOp.derivedBy(angleGrad)
	softsignOp.derivedBy(softsignGrad)
}

// sgnGrad is the part of grad/|x| that is at right angles to x.
func sgnGrad(grad, x *core.Tensor) *core.Tensor {
	abs, s := Abs(x), Sgn(x)
	along := Mul(Real(Mul(grad, Conj(s))), s)
	return Where(Eq(abs, core.IntNum(0)), zerosFor(grad, grad.DType(), nil), Div(Sub(grad, along), abs))
}

// angleGrad is grad times i*x/|x|^2.
func angleGrad(grad, x *core.Tensor) *core.Tensor {
	re, im := Real(x), Imag(x)
	square := Add(Square(re), Square(im))
	scale := Where(Eq(square, core.IntNum(0)), core.IntNum(0), Div(grad, square))
	return Complex(Neg(Mul(im, scale)), Mul(re, scale))
}

// softsignGrad is grad/(1 + |x|), less what is due to |x|.
func softsignGrad(grad, x *core.Tensor) *core.Tensor {
	s, d := Sgn(x), Add(Abs(x), core.IntNum(1))
	g := Div(grad, d)
	return Sub(g, Mul(s, Div(Real(Mul(g, Conj(x))), d)))
}

// ViewAsReal returns a view of the parts of x, which must be complex: a real tensor with one more dimension of size 2, at the end, for the
// real and the imaginary part.
func ViewAsReal(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "view_as_real", x)
	}
	op := begin("view_as_real", &x)
	op.complexTensor(x)
	if op.err != nil {
		return op.fail()
	}
	shape := append(slices.Clone(x.Shape()), 2)
	return op.viewAs(x.DType().Part(), x, shape, append(partStrides(x), 1), 2*x.Offset(), func(ctx *core.BackwardContext) {
		ctx.Set(0, ViewAsComplex(paired(ctx.Grad())))
	}, nil)
}

// ViewAsComplex returns a view of x, of float32 or float64, as complex numbers: the last dimension, which must have size 2 and stride 1,
// holds their real and imaginary parts. The other strides and the offset must be even.
func ViewAsComplex(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "view_as_complex", x)
	}
	op := begin("view_as_complex", &x)
	switch {
	case op.err != nil:
	case x.DType() != core.Float32 && x.DType() != core.Float64:
		op.failf(core.DTypeError, "got %v, want float32 or float64", x.DType())
	case x.Dim() == 0 || x.Size(-1) != 2:
		op.failf(core.ShapeError, "got shape %v, want a last dimension of size 2", x.Shape())
	case !pairs(x):
		op.failf(core.ShapeError, "got strides %v and offset %d, want a last dimension of stride 1 and other strides and an offset that are even; "+
			"make it contiguous", x.Strides(), x.Offset())
	}
	if op.err != nil {
		return op.fail()
	}
	n := x.Dim() - 1
	strides := make([]int, n)
	for d := range n {
		strides[d] = x.Strides()[d] / 2
	}
	return op.viewAs(x.DType().Complex(), x, x.Shape()[:n], strides, x.Offset()/2, func(ctx *core.BackwardContext) {
		ctx.Set(0, ViewAsReal(ctx.Grad()))
	}, nil)
}

// pairs reports whether a tensor whose last dimension has size 2 lies in memory as complex numbers do.
func pairs(x *core.Tensor) bool {
	n := x.Dim() - 1
	if x.Strides()[n] != 1 || x.Offset()%2 != 0 {
		return false
	}
	for d, s := range x.Strides()[:n] {
		if s%2 != 0 && x.Shape()[d] > 1 {
			return false
		}
	}
	return true
}

// paired returns x, whose last dimension has size 2, or a copy of it that ViewAsComplex takes.
func paired(x *core.Tensor) *core.Tensor {
	if x.Err() != nil || pairs(x) {
		return x
	}
	return Clone(x)
}

// complexTensor fails unless x is complex.
func (op *opContext) complexTensor(x *core.Tensor) {
	if op.err == nil && !x.DType().IsComplex() {
		op.failf(core.DTypeError, "got %v, want a complex dtype", x.DType())
	}
}

// Real returns the real parts of x: a view if x is complex, otherwise x itself (a new reference to it).
func Real(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "real", x)
	}
	if x.Err() == nil && !x.IsNumber() && !x.DType().IsComplex() {
		return x.Alias(true)
	}
	return part("real", x, 0)
}

// Imag returns a view of the imaginary parts of x, which must be complex.
func Imag(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "imag", x)
	}
	return part("imag", x, 1)
}

func part(name string, x *core.Tensor, i int) *core.Tensor {
	op := begin(name, &x)
	op.complexTensor(x)
	if op.err != nil {
		return op.fail()
	}
	return op.viewAs(x.DType().Part(), x, x.Shape(), partStrides(x), 2*x.Offset()+i, func(ctx *core.BackwardContext) {
		g := ctx.Grad()
		zero := zerosFor(g, g.DType(), g.Shape())
		if i == 0 {
			ctx.Set(0, Complex(g, zero))
		} else {
			ctx.Set(0, Complex(zero, g))
		}
	}, nil)
}

// Complex returns the complex numbers with the given real and imaginary parts, two tensors of float32 or of float64 that broadcast.
func Complex(re, im *core.Tensor) *core.Tensor {
	if parts := distributed(re, im); parts != nil {
		return handOn(parts, "complex", re, im)
	}
	op := begin("complex", &re, &im)
	op.tensors(re, im)
	op.partsOf(re, im)
	shape := op.broadcast(re, im)
	if op.err != nil {
		return op.fail()
	}
	out := op.out(re.DType().Complex(), shape)
	if op.err != nil {
		return op.fail()
	}
	op.launch(op.call(joinOp.ids[computeType(re.DType())]).OutParts(out).In(re).In(im))
	if op.grad {
		op.attach(op.node(complexDeriv, re, im), out)
	}
	return op.done(out)
}

func complexDeriv(ctx *core.BackwardContext) {
	if ctx.Needs(0) {
		ctx.Set(0, sumTo(Real(ctx.Grad()), ctx.InputShape(0)))
	}
	if ctx.Needs(1) {
		ctx.Set(1, sumTo(Imag(ctx.Grad()), ctx.InputShape(1)))
	}
}

// partsOf fails unless the two tensors can be made complex numbers.
func (op *opContext) partsOf(a, b *core.Tensor) {
	if op.err == nil && (a.DType() != b.DType() || a.DType() != core.Float32 && a.DType() != core.Float64) {
		op.failf(core.DTypeError, "got %v and %v, want both float32 or both float64", a.DType(), b.DType())
	}
}

// setParts writes the real and imaginary parts of out, a new complex tensor, from real tensors or numbers that broadcast.
func (op *opContext) setParts(out, re, im *core.Tensor) {
	for i, x := range []*core.Tensor{re, im} {
		if op.err != nil {
			return
		}
		to := op.own(half(op.mode, out, i))
		if x.IsNumber() {
			op.launch(op.call(contract.Fill).Out(to).In(x))
		} else {
			op.launch(op.call(contract.Copy).Out(to).In(op.own(op.repeated(x, out.Shape()))))
		}
	}
}

// asComplex returns v, or where x is complex and v is a number, v as a complex tensor.
func (op *opContext) asComplex(x, v *core.Tensor) *core.Tensor {
	if op.err != nil || !x.DType().IsComplex() || !v.IsNumber() {
		return v
	}
	return op.own(numberAs(v, x))
}

// numberAs returns a 0-d tensor of the number v, of the dtype of x and on its device.
func numberAs(v, x *core.Tensor) *core.Tensor {
	op := begin("full").with(x)
	op.grad = false
	z := op.out(x.DType(), nil)
	if op.err != nil {
		return op.fail()
	}
	op.fill(z, v)
	return op.done(z)
}

// onParts returns what fn, which treats the real and imaginary parts of x alike, makes of them as a tensor with one more dimension of size
// 2 at the end.
func onParts(x *core.Tensor, fn func(parts *core.Tensor) *core.Tensor) *core.Tensor {
	return ViewAsComplex(paired(fn(ViewAsReal(x))))
}

// onPartsInPlace lets fn change the parts of x, which onParts describes, and returns x.
func onPartsInPlace(x *core.Tensor, fn func(parts *core.Tensor) *core.Tensor) *core.Tensor {
	parts := ViewAsReal(x)
	defer parts.Release()
	if r := fn(parts); r.Err() != nil {
		return r
	}
	return x
}

// Polar returns the complex numbers of the given absolute values and angles, in radians: two tensors of float32 or of float64 that broadcast.
func Polar(abs, angle *core.Tensor) *core.Tensor {
	if parts := distributed(abs, angle); parts != nil {
		return handOn(parts, "polar", abs, angle)
	}
	op := begin("polar", &abs, &angle)
	op.tensors(abs, angle)
	op.partsOf(abs, angle)
	return op.compose(func() *core.Tensor { return Complex(Mul(abs, Cos(angle)), Mul(abs, Sin(angle))) })
}

// Conj returns the conjugates of the elements of x: x itself (a new reference to it) if it is real, otherwise a copy.
func Conj(x *core.Tensor) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "conj", x)
	}
	if x.Err() == nil && !x.DType().IsComplex() {
		return x.Alias(true)
	}
	return conjOp.apply(nil, x)
}

// Sgn returns x/|x|, and 0 at 0. For real numbers that is [Sign].
func Sgn(x *core.Tensor) *core.Tensor { return sgnOp.apply(nil, x) }

// Angle returns the angles of the elements in the complex plane, in radians: of real numbers pi where they are negative, 0 elsewhere.
func Angle(x *core.Tensor) *core.Tensor { return angleOp.apply(nil, x) }

// complexProd returns the products of complex numbers over dims: of pairs, then of pairs of these.
func complexProd(x *core.Tensor, r reduction) *core.Tensor {
	order := make([]int, 0, x.Dim())
	for d := range x.Dim() {
		if !slices.Contains(r.dims, d) {
			order = append(order, d)
		}
	}
	rest := make([]int, len(order), len(order)+1)
	for i, d := range order {
		rest[i] = x.Shape()[d]
	}
	n := r.count(x)
	if n == 0 {
		return Add(Sum(x, r.dims, len(r.shape) == x.Dim()), core.IntNum(1))
	}
	y := Reshape(Permute(x, append(order, r.dims...)...), append(rest, n)...)
	for ; n > 1; n = (n + 1) / 2 {
		half := n / 2
		p := Mul(Narrow(y, -1, 0, half), Narrow(y, -1, half, half))
		if n%2 == 1 {
			p = Cat([]*core.Tensor{p, Narrow(y, -1, n-1, 1)}, -1)
		}
		y = p
	}
	return Reshape(y, r.shape...)
}

// complexCumProd returns the running products of complex numbers along dim.
func complexCumProd(x *core.Tensor, dim int) *core.Tensor { return complexScan(x, dim, Mul) }

// complexLogCumSumExp returns the running log-sum-exp of complex numbers along dim, each with the imaginary part of adding one number after
// the other by Logaddexp.
func complexLogCumSumExp(x *core.Tensor, dim int) *core.Tensor {
	y := complexScan(x, dim, Logaddexp)
	n := x.Shape()[dim]
	if n < 2 {
		return y
	}
	var turns *core.Tensor
	core.Underived(func() {
		const turn = 2 * math.Pi
		angle, own := Imag(y), Imag(x)
		rounds := func(t *core.Tensor) *core.Tensor { return Round(Mul(t, core.Num(1/turn))) }
		wrap := func(t *core.Tensor) *core.Tensor { return Sub(t, Mul(rounds(t), core.Num(turn))) }
		tail := func(t *core.Tensor) *core.Tensor { return Narrow(t, dim, 1, n-1) }
		head := func(t *core.Tensor) *core.Tensor { return Narrow(t, dim, 0, n-1) }
		// A number that is not smaller than the sum before it gives the sum its own angle, up to a quarter of a turn; else the sum keeps its.
		starts := Ge(tail(Real(x)), head(Real(y)))
		starts = Cat([]*core.Tensor{OnesLike(Narrow(starts, dim, 0, 1), TensorOptions{}), starts}, dim)
		steps := wrap(Sub(tail(angle), head(angle)))
		steps = Cat([]*core.Tensor{sliceOf(steps, dim, 0), steps}, dim)
		sums := CumSum(MaskedFill(steps, starts, core.Num(0)), dim)
		at := castTo(starts, core.Int64)
		_, found := CumMax(Mul(at, CumSum(OnesLike(at, TensorOptions{}), dim)), dim)
		from := Add(own, wrap(Sub(angle, own)))
		turns = rounds(Sub(Add(Gather(Sub(from, sums), dim, found), sums), angle))
	})
	return Add(y, Complex(zerosFor(turns, turns.DType(), nil), Mul(turns, core.Num(2*math.Pi))))
}

// complexScan returns the running joins of the elements along dim: those of 1 element, of up to 2, of up to 4 and so on.
func complexScan(x *core.Tensor, dim int, join func(x, y *core.Tensor) *core.Tensor) *core.Tensor {
	n := x.Shape()[dim]
	y := Clone(x)
	for step := 1; step < n; step *= 2 {
		y = Cat([]*core.Tensor{Narrow(y, dim, 0, step), join(Narrow(y, dim, 0, n-step), Narrow(y, dim, step, n-step))}, dim)
	}
	return y
}
