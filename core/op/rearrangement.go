package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// Flip returns x with the order of the elements reversed along the given dimensions; no dimension means none of them.
func Flip(x *core.Tensor, dims []int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "flip", x, dims)
	}
	op := begin("flip", &x)
	if len(dims) > 0 {
		dims = op.dims(dims, x)
	}
	out := op.out(dtypeOf(x), shapeOf(x))
	if op.err != nil {
		return op.fail()
	}
	strides, offset := slices.Clone(x.Strides()), x.Offset()
	for _, d := range dims {
		if n := x.Shape()[d]; n > 1 {
			offset += (n - 1) * strides[d]
			strides[d] = -strides[d]
		}
	}
	backwards := core.WrapTensor(op.mode, x.Storage(), x.DType(), x.Shape(), strides, offset)
	op.launch(op.call(contract.Copy).Out(out).In(backwards))
	backwards.Release()
	if op.grad {
		n := op.node(flipDeriv, x)
		n.Ints = dims
		op.attach(n, out)
	}
	return op.done(out)
}

func flipDeriv(ctx *core.BackwardContext) { ctx.Set(0, Flip(ctx.Grad(), ctx.Node.Ints)) }

// Fliplr returns x with its columns, dimension 1, in reverse order.
func Fliplr(x *core.Tensor) *core.Tensor {
	return Flip(x, []int{1})
}

// Flipud returns x with its rows, dimension 0, in reverse order.
func Flipud(x *core.Tensor) *core.Tensor {
	return Flip(x, []int{0})
}

// Rot90 returns x turned k times by 90 degrees in the plane of two dimensions, from the first towards the second.
func Rot90(x *core.Tensor, k int, dims []int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "rot90", x, k, dims)
	}
	op := begin("rot90", &x)
	if op.err == nil && len(dims) != 2 {
		op.failf(core.ValueError, "got dimensions %v, want two", dims)
	}
	if op.err != nil {
		return op.fail()
	}
	from, to := op.dim(dims[0], x), op.dim(dims[1], x)
	if op.err == nil && from == to {
		op.failf(core.ValueError, "got dimension %d twice", from)
	}
	return op.compose(func() *core.Tensor {
		switch (k%4 + 4) % 4 {
		case 1:
			return Transpose(Flip(x, []int{to}), from, to)
		case 2:
			return Flip(x, []int{from, to})
		case 3:
			return Flip(Transpose(x, from, to), []int{to})
		}
		return Clone(x)
	})
}

// Roll returns x with the elements moved by shifts along dims; what is moved past the end comes back at the start.
// Without dimensions x is rolled as if it were flat.
func Roll(x *core.Tensor, shifts, dims []int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "roll", x, shifts, dims)
	}
	op := begin("roll", &x)
	if op.err == nil && len(dims) == 0 && len(shifts) == 1 {
		return op.compose(func() *core.Tensor { return Reshape(Roll(Ravel(x), shifts, []int{0}), x.Shape()...) })
	}
	if op.err == nil && (len(dims) != len(shifts) || len(dims) == 0) {
		op.failf(core.ValueError, "got %d shifts for %d dimensions", len(shifts), len(dims))
	}
	if op.err != nil {
		return op.fail()
	}
	by := make([]int, x.Dim()) // how far each dimension moves, from 0 to its size
	for i, d := range dims {
		d = op.dim(d, x)
		if op.err != nil {
			return op.fail()
		}
		if x.Dim() > 0 && x.Shape()[d] > 0 {
			n := x.Shape()[d]
			by[d] = ((by[d]+shifts[i]%n)%n + n) % n
		}
	}
	out := op.out(x.DType(), x.Shape())
	if op.err != nil {
		return op.fail()
	}
	op.rollInto(out, x, by, 0, x.Shape(), x.Offset(), 0)
	if op.grad {
		n := op.node(rollDeriv, x)
		n.Ints = by
		op.attach(n, out)
	}
	return op.done(out)
}

// rollInto copies a block of x, of the given shape at an offset, to where it goes in out; from dimension d on it is still
// to be cut in two.
func (op *opContext) rollInto(out, x *core.Tensor, by []int, d int, shape []int, from, to int) {
	for d < len(by) && by[d] == 0 {
		d++
	}
	if d == len(by) {
		src := core.WrapTensor(op.mode, x.Storage(), x.DType(), shape, x.Strides(), from)
		dst := core.WrapTensor(op.mode, out.Storage(), out.DType(), shape, out.Strides(), to)
		c := op.call(contract.Copy).Out(dst).In(src)
		c.InPlace = true
		op.launch(c)
		src.Release()
		dst.Release()
		return
	}
	n, k := x.Shape()[d], by[d]
	head, tail := slices.Clone(shape), slices.Clone(shape)
	head[d], tail[d] = n-k, k
	op.rollInto(out, x, by, d+1, head, from, to+k*out.Strides()[d])
	op.rollInto(out, x, by, d+1, tail, from+(n-k)*x.Strides()[d], to)
}

func rollDeriv(ctx *core.BackwardContext) {
	shifts, dims := make([]int, 0, core.MaxDims), make([]int, 0, core.MaxDims)
	for i, k := range ctx.Node.Ints {
		shifts, dims = append(shifts, -k), append(dims, i)
	}
	if len(dims) == 0 {
		ctx.Set(0, ctx.Grad())
		return
	}
	ctx.Set(0, Roll(ctx.Grad(), shifts, dims))
}

// Repeat returns x repeated along each dimension as often as repeats says, which may name more dimensions than x has;
// those are new and in front.
func Repeat(x *core.Tensor, repeats ...int) *core.Tensor {
	if parts := distributed(x); parts != nil {
		return handOn(parts, "repeat", x, repeats)
	}
	op := begin("repeat", &x)
	if op.err == nil && len(repeats) < x.Dim() {
		op.failf(core.ValueError, "got %d repetitions %v for shape %v, want one for each dimension", len(repeats), repeats, x.Shape())
	}
	if op.err == nil && slices.ContainsFunc(repeats, func(n int) bool { return n < 0 }) {
		op.failf(core.ValueError, "repetitions must not be negative, got %v", repeats)
	}
	if op.err != nil {
		return op.fail()
	}
	lead := len(repeats) - x.Dim()
	shape := make([]int, len(repeats))
	for i, n := range repeats {
		shape[i] = n
		if i >= lead {
			shape[i] = saturate(n, x.Shape()[i-lead])
		}
	}
	out := op.out(x.DType(), shape)
	if op.err != nil {
		return op.fail()
	}
	if out.Numel() > 0 {
		op.repeatInto(out, x, repeats, lead)
	}
	if op.grad {
		n := op.node(repeatDeriv, x)
		n.Ints = repeats
		op.attach(n, out)
	}
	return op.done(out)
}

// saturate returns a*b, or the largest integer if that overflows.
func saturate(a, b int) int {
	if a != 0 && a*b/a != b {
		return int(^uint(0) >> 1)
	}
	return a * b
}

// repeatInto copies x to out, seen with each repeated dimension split into the repetitions and the dimension itself.
func (op *opContext) repeatInto(out, x *core.Tensor, repeats []int, lead int) {
	var shape, from, to []int
	for i, n := range repeats {
		size, stride := 1, 0
		if i >= lead {
			size, stride = x.Shape()[i-lead], x.Strides()[i-lead]
		}
		if n > 1 {
			shape, from, to = append(shape, n), append(from, 0), append(to, size*out.Strides()[i])
		}
		shape, from, to = append(shape, size), append(from, stride), append(to, out.Strides()[i])
	}
	if len(shape) > core.MaxDims { // the kernel sees only so many at a time: those of size 1 add nothing
		shape, from, to = dropOnes(shape, from, to)
	}
	if len(shape) > core.MaxDims {
		op.repeatSlices(out, x, repeats, lead)
		return
	}
	src := core.WrapTensor(op.mode, x.Storage(), x.DType(), shape, from, x.Offset())
	dst := core.WrapTensor(op.mode, out.Storage(), out.DType(), shape, to, out.Offset())
	c := op.call(contract.Copy).Out(dst).In(src)
	c.InPlace = true
	op.launch(c)
	src.Release()
	dst.Release()
}

func dropOnes(shape, from, to []int) (s, f, t []int) {
	for i, n := range shape {
		if n != 1 {
			s, f, t = append(s, n), append(f, from[i]), append(t, to[i])
		}
	}
	return s, f, t
}

// repeatSlices does the repetitions of the first repeated dimension one by one.
func (op *opContext) repeatSlices(out, x *core.Tensor, repeats []int, lead int) {
	d := slices.IndexFunc(repeats, func(n int) bool { return n > 1 })
	rest := slices.Clone(repeats)
	rest[d] = 1
	shape := slices.Clone(out.Shape())
	shape[d] /= repeats[d]
	for i := range repeats[d] {
		part := core.WrapTensor(op.mode, out.Storage(), out.DType(), shape, out.Strides(), out.Offset()+i*shape[d]*out.Strides()[d])
		op.repeatInto(part, x, rest, lead)
		part.Release()
	}
}

// repeatDeriv sums over the repetitions.
func repeatDeriv(ctx *core.BackwardContext) {
	repeats, shape := ctx.Node.Ints, ctx.InputShape(0)
	lead := len(repeats) - len(shape)
	g := ctx.Grad()
	if core.Numel(shape) == 0 || slices.Contains(repeats, 0) {
		ctx.Set(0, zerosFrom(g, shape))
		return
	}
	for i := len(repeats) - 1; i >= 0; i-- { // from the last, so that the dimensions before keep their numbers
		switch {
		case i < lead:
			g = sumRepeated(g, []int{i}, ReduceOptions{})
		case repeats[i] > 1:
			g = sumRepeated(Unflatten(g, i, repeats[i], shape[i-lead]), []int{i}, ReduceOptions{})
		}
	}
	ctx.Set(0, g)
}

// Tile returns x repeated along its last dimensions as often as repeats says; x gets dimensions of size 1 in front if it
// has fewer.
func Tile(x *core.Tensor, repeats ...int) *core.Tensor {
	if err := x.Err(); err == nil {
		for len(repeats) < x.Dim() {
			repeats = slices.Insert(slices.Clone(repeats), 0, 1)
		}
	}
	return Repeat(x, repeats...)
}

// RepeatInterleave returns x with each part of dimension dim repeated, next to one another: as often as repeats, an
// integer tensor with one number for each part or for all, says. Without a dimension (nil) x is taken as flat. It waits
// for repeats, which decides the shape of the result.
func RepeatInterleave(x, repeats *core.Tensor, dim *int) *core.Tensor {
	if parts := distributed(x, repeats); parts != nil {
		return handOn(parts, "repeat_interleave", x, repeats, dim)
	}
	op := begin("repeat_interleave", &x, &repeats)
	if op.err == nil && (repeats.DType().IsFloat() || repeats.DType() == core.Bool || repeats.Dim() > 1) {
		op.failf(core.TypeError, "the repetitions must be an integer or a vector of them, got %v", repeats)
	}
	if op.err != nil {
		return op.fail()
	}
	if dim == nil {
		zero := 0
		return op.compose(func() *core.Tensor { return RepeatInterleave(Ravel(x), repeats, &zero) })
	}
	at := op.dim(*dim, x)
	if op.err == nil && x.Dim() == 0 {
		op.failf(core.ShapeError, "cannot repeat along a dimension of a 0-d tensor")
	}
	if op.err != nil {
		return op.fail()
	}
	counts, err := core.Values[int](repeats)
	if err != nil {
		return core.ErrorTensor(err)
	}
	n, total := x.Shape()[at], 0
	if len(counts) != n && len(counts) != 1 {
		op.failf(core.ShapeError, "got %d repetitions for size %d of dimension %d", len(counts), n, at)
		return op.fail()
	}
	for i := range n {
		k := counts[min(i, len(counts)-1)]
		if k < 0 {
			op.failf(core.ValueError, "repetitions must not be negative, got %d", k)
			return op.fail()
		}
		if total += k; total < 0 {
			op.failf(core.MemoryError, "the repetitions %v are larger than the address space", counts)
			return op.fail()
		}
	}
	if len(counts) == 1 { // no indices needed
		return op.compose(func() *core.Tensor {
			wide := slices.Insert(slices.Clone(x.Shape()), at+1, counts[0])
			out := slices.Clone(x.Shape())
			out[at] = total
			return Reshape(Clone(Expand(Unsqueeze(x, at+1), wide...)), out...)
		})
	}
	return op.compose(func() *core.Tensor { return IndexSelect(x, at, repeatIndex(repeats, total)) })
}

// repeatIndex returns each i, from 0 on, as often as repeats says, in all total times.
func repeatIndex(repeats *core.Tensor, total int) *core.Tensor {
	op := begin("repeat_interleave").with(repeats)
	counts := op.own(To(op.own(Contiguous(repeats)), core.Int64))
	out := op.out(core.Int64, []int{total})
	if op.err != nil {
		return op.fail()
	}
	op.launch(op.call(contract.RepeatIndex).Out(out).In(counts))
	return op.done(out)
}
