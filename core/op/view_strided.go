package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// AsStrided returns a view of t's memory with the given shape, strides and offset, all in elements, the offset relative
// to t's. The view must lie within t's storage.
func AsStrided(t *core.Tensor, shape, strides []int, offset int) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "as_strided", t, shape, strides, offset)
	}
	op := begin("as_strided", &t)
	op.within(t, shape, strides, offset)
	if op.err != nil {
		return op.fail()
	}
	return op.view(t, shape, strides, t.Offset()+offset, asStridedDeriv, func(n *core.Node) {
		n.Any = &slice{baseShape: t.Shape(), baseStrides: t.Strides(), shape: shape, strides: strides, offset: offset}
	})
}

// within fails unless the layout lies within t's storage.
func (op *opContext) within(t *core.Tensor, shape, strides []int, offset int) {
	if op.err != nil {
		return
	}
	if len(shape) != len(strides) {
		op.failf(core.ShapeError, "got %d sizes %v and %d strides %v", len(shape), shape, len(strides), strides)
		return
	}
	n, err := core.CheckShape(op.name, shape, t.DType())
	op.check(err)
	if op.err != nil || n == 0 {
		return
	}
	low, high := reach(shape, strides, t.Offset()+offset)
	if size := t.Storage().Size() / t.DType().Size(); low < 0 || high >= size {
		op.failf(core.ValueError, "shape %v with strides %v and offset %d reaches elements %d to %d of a storage of %d",
			shape, strides, offset, low, high, size)
	}
}

// reach returns the first and the last place in memory of a layout's elements.
func reach(shape, strides []int, offset int) (low, high int) {
	low, high = offset, offset
	for i, d := range shape {
		if span := (d - 1) * strides[i]; span < 0 {
			low += span
		} else {
			high += span
		}
	}
	return low, high
}

func asStridedDeriv(ctx *core.BackwardContext) {
	s := ctx.Node.Any.(*slice)
	if s.parts {
		ctx.Set(0, s.partsGrad(ctx))
		return
	}
	ctx.Set(0, s.baseGrad(ctx.Grad()))
}

// baseGrad returns the gradient of the base from g, the view's.
func (s *slice) baseGrad(g *core.Tensor) *core.Tensor {
	if core.Numel(s.shape) == 0 || core.Numel(s.baseShape) == 0 {
		return zerosFrom(g, s.baseShape)
	}
	// The view may have elements that the base has not, and elements of the base may share memory and then its gradient.
	low, high := reach(s.shape, s.strides, s.offset)
	first, last := reach(s.baseShape, s.baseStrides, 0)
	low, high = min(low, first), max(high, last)
	flat := zerosFor(g, g.DType(), []int{high - low + 1})
	sum := AsStrided(asStridedAdd(flat, g, s.shape, s.strides, s.offset-low), s.baseShape, s.baseStrides, -low)
	if Overlaps(s.baseShape, s.baseStrides) {
		ones := OnesLike(sum, TensorOptions{})
		sum = Div(sum, AsStrided(asStridedAdd(flat, ones, s.baseShape, s.baseStrides, -low), s.baseShape, s.baseStrides, -low))
	}
	return sum
}

// partsGrad is baseGrad for a slice of parts.
func (s *slice) partsGrad(ctx *core.BackwardContext) *core.Tensor {
	g, base := s.reals(ctx.Grad()), *s
	if !ctx.InputDType(0).IsComplex() {
		return base.baseGrad(g)
	}
	base.baseShape = append(slices.Clone(s.baseShape), 2)
	base.baseStrides = make([]int, len(s.baseStrides), len(s.baseStrides)+1)
	for i, n := range s.baseStrides {
		base.baseStrides[i] = 2 * n
	}
	base.baseStrides = append(base.baseStrides, 1)
	return ViewAsComplex(paired(base.baseGrad(g)))
}

// asStridedAdd returns base with src added at the given layout, whose elements may share memory.
func asStridedAdd(base, src *core.Tensor, shape, strides []int, offset int) *core.Tensor {
	if !Overlaps(shape, strides) {
		return AsStridedScatter(base, src, shape, strides, offset)
	}
	return compose("as_strided", func() *core.Tensor {
		// Where each element of the layout lies in base.
		all := Arange(nil, core.IntNum(int64(base.Numel())), nil, TensorOptions{Device: base.Device()})
		at := Ravel(AsStrided(all, shape, strides, offset))
		return Reshape(IndexAdd(Ravel(base), 0, at, Ravel(src)), base.Shape()...)
	})
}

// Overlaps reports whether two elements of a layout may share memory.
func Overlaps(shape, strides []int) bool {
	if core.Numel(shape) <= 1 {
		return false
	}
	// Sorted by stride, each dimension must step over all that the smaller ones reach.
	order := byStride(strides)
	reach := 0
	for _, i := range order {
		if shape[i] == 1 {
			continue
		}
		s := max(strides[i], -strides[i])
		if s <= reach {
			return true
		}
		reach += (shape[i] - 1) * s
	}
	return false
}

// byStride returns the dimensions in the order of their strides' sizes.
func byStride(strides []int) []int {
	order := make([]int, len(strides))
	for i := range order {
		order[i] = i
	}
	size := func(i int) int { return max(strides[i], -strides[i]) }
	slices.SortStableFunc(order, func(i, j int) int { return size(i) - size(j) })
	return order
}

// AsStridedScatter returns a copy of base in which the elements at the given layout, as [AsStrided] takes them from a
// contiguous tensor, are src's. The layout's elements must not share memory.
func AsStridedScatter(base, src *core.Tensor, shape, strides []int, offset int) *core.Tensor {
	op := begin("as_strided_scatter", &base, &src)
	if op.err == nil && core.Numel(shape) != src.Numel() {
		op.failf(core.ShapeError, "the source has shape %v, want %v", src.Shape(), shape)
	}
	if op.err == nil && Overlaps(shape, strides) {
		op.failf(core.ValueError, "elements of shape %v with strides %v share memory", shape, strides)
	}
	out := op.out(base.DType(), base.Shape())
	if op.err != nil {
		return op.fail()
	}
	op.within(out, shape, strides, offset)
	if op.err != nil {
		return op.fail()
	}
	op.launch(op.call(contract.Copy).Out(out).In(base))
	part := core.WrapTensor(op.mode, out.Storage(), out.DType(), shape, strides, offset)
	c := op.call(contract.Copy).Out(part).In(src)
	c.InPlace = true
	op.launch(c)
	part.Release()
	if op.grad {
		n := op.node(asStridedScatterDeriv, base, src)
		n.Any = &slice{shape: shape, strides: strides, offset: offset}
		op.attach(n, out)
	}
	return op.done(out)
}

func asStridedScatterDeriv(ctx *core.BackwardContext) {
	s := ctx.Node.Any.(*slice)
	g := Contiguous(ctx.Grad())
	if ctx.Needs(0) {
		ctx.Set(0, AsStridedScatter(g, zerosFor(g, g.DType(), s.shape), s.shape, s.strides, s.offset))
	}
	if ctx.Needs(1) {
		ctx.Set(1, AsStrided(g, s.shape, s.strides, s.offset))
	}
}
