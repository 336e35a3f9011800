package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// repeats reports whether elements of t share memory because it was expanded.
func repeats(t *core.Tensor) bool {
	for i, d := range t.Shape() {
		if d > 1 && t.Strides()[i] == 0 && t.Numel() > 0 {
			return true
		}
	}
	return false
}

// unexpanded returns a view of t with the dimensions along which elements share memory reduced to one element.
func unexpanded(t *core.Tensor) *core.Tensor {
	shape := slices.Clone(t.Shape())
	for i := range shape {
		if t.Strides()[i] == 0 {
			shape[i] = min(shape[i], 1)
		}
	}
	return AsStrided(t, shape, t.Strides(), 0)
}

// inPlace fails unless t may be changed in place.
func (op *opContext) inPlace(t *core.Tensor) {
	if op.err != nil {
		return
	}
	if t == nil {
		op.check(t.Usable(op.name))
		return
	}
	if t.IsNumber() {
		op.failf(core.TypeError, "a number cannot be changed in place")
		return
	}
	if repeats(t) {
		op.failf(core.StateError, "elements of a tensor expanded to %v share memory and cannot be changed in place; clone it first", t.Shape())
		return
	}
	if t.Storage().Inference() && !op.mode.Inference() {
		op.failf(core.StateError, "Inplace update to inference tensor outside InferenceMode is not allowed; clone it first")
		return
	}
	if !op.mode.GradEnabled() {
		return
	}
	if t.Unrecorded(op.recorded()) {
		op.failf(core.StateError, "a view that was taken inside no_grad or inference_mode cannot be changed in place while gradients are "+
			"recorded, since the graph would miss the change; take the view outside, or change it inside")
		return
	}
	meta := t.AutogradMeta()
	if meta != nil && op.guarded(meta) {
		return
	}
	if meta != nil && meta.NeedsGradLeaf() {
		op.failf(core.StateError, "a leaf that requires a gradient cannot be changed in place while gradients are recorded")
	} else if b, _, _, _, _ := t.Base(); b != nil && b.NeedsGradLeaf() {
		op.failf(core.StateError, "a view of a leaf that requires a gradient cannot be changed in place while gradients are recorded")
	} else if b != nil {
		op.guarded(b)
	}
}

// guarded fails if h is an output of a custom function that has the memory of one of its inputs.
func (op *opContext) guarded(meta *core.AutogradMeta) bool {
	n, index := meta.Guarded()
	if n != nil {
		op.failf(core.StateError, "Output %d of %s is a view and is being modified inplace. It was made inside a custom Function, or is "+
			"an input that the function returned as it was, and a gradient through the change would pass the function's own "+
			"derivative by; clone it first", index, n.Name)
	}
	return n != nil
}

// changed records that t was changed in place. Call it after the launch and before saving t as an output.
func (op *opContext) changed(t *core.Tensor) {
	if op.err == nil && !t.Storage().Inference() {
		t.Change()
		if op.forward != nil {
			op.forward.changed = t
		}
	}
}

// rebase makes node n, whose first input is t's old value, the autograd metadata of t and of every tensor that shares it. If t is a
// view, the value it is a view of changes with it.
func (op *opContext) rebase(n *core.Node, t *core.Tensor) {
	defer n.Release()
	if op.err != nil {
		return
	}
	n.DeclareOutput(0, t.DType(), t.Shape())
	op.check(n.Problem())
	if op.forward != nil {
		op.check(op.forward.pushInPlace(n, t))
		if !op.forward.recorded {
			return
		}
	}
	base, dtype, shape, strides, offset := t.Base()
	if base == nil {
		t.EnsureAutogradMeta().Rebase(n, 0)
		return
	}
	// The base's new value is its old one with the slice replaced: n runs on the slice's gradient.
	edges := append([]core.Edge{base.Edge()}, n.TakeEdges(1)...)
	c := core.NewNodeWithEdges(op.mode, n.Name, copySliceDeriv, edges)
	c.DeclareOutput(0, dtype, shape)
	c.SetInputMeta(0, dtype, shape)
	c.SetInner(n)
	c.Any = layoutIn(dtype, shape, strides, offset, t)
	base.Rebase(c, 0)
	c.Release()
}

// slice is where a view lies in its base.
type slice struct {
	baseShape, baseStrides []int
	shape, strides         []int
	offset                 int // of the view, relative to the base
	// parts says that one of them is complex and the other real. The view's layout is then that of its real numbers.
	parts bool
}

// layoutIn returns where a view lies in the tensor of the given dtype and layout.
func layoutIn(dtype core.DType, shape, strides []int, offset int, view *core.Tensor) *slice {
	s := &slice{baseShape: shape, baseStrides: strides, shape: view.Shape(), strides: view.Strides(), offset: view.Offset() - offset}
	switch is := view.DType().IsComplex(); {
	case is == dtype.IsComplex():
	case is:
		v := ViewAsReal(view.Detach())
		s.shape, s.strides, s.offset, s.parts = v.Shape(), v.Strides(), v.Offset()-offset, true
	default:
		s.offset, s.parts = view.Offset()-2*offset, true
	}
	return s
}

// reals returns t, a gradient of the base or the view, or the tensor of its parts if the slice is one of parts.
func (s *slice) reals(t *core.Tensor) *core.Tensor {
	if s.parts && t.Err() == nil && t.DType().IsComplex() {
		return ViewAsReal(t)
	}
	return t
}

// as undoes reals for a base of dtype d.
func (s *slice) as(d core.DType, t *core.Tensor) *core.Tensor {
	if t.Err() != nil || !s.parts || !d.IsComplex() {
		return t
	}
	return ViewAsComplex(paired(t))
}

// viewed returns t, with the layout of the slice, as one of the view's dtype if the base's is d.
func (s *slice) viewed(d core.DType, t *core.Tensor) *core.Tensor {
	if t.Err() != nil || !s.parts || d.IsComplex() {
		return t
	}
	return ViewAsComplex(paired(t))
}

// flatten lays g, a gradient of the base, out as the base lies in memory. A dense row-major base already is.
func (s *slice) flatten(g *core.Tensor) *core.Tensor {
	if core.IsContiguous(s.baseShape, s.baseStrides) {
		return Contiguous(g)
	}
	return AsStridedScatter(s.blank(g), g, s.baseShape, s.baseStrides, 0)
}

// blank returns zeros in memory like the base's.
func (s *slice) blank(g *core.Tensor) *core.Tensor {
	if core.IsContiguous(s.baseShape, s.baseStrides) {
		return zerosFor(g, g.DType(), s.baseShape)
	}
	span := 1
	for i, n := range s.baseShape {
		span += (n - 1) * s.baseStrides[i]
	}
	return zerosFor(g, g.DType(), []int{max(span, 0)})
}

// gather undoes flatten.
func (s *slice) gather(flat *core.Tensor) *core.Tensor {
	if core.IsContiguous(s.baseShape, s.baseStrides) {
		return flat
	}
	return AsStrided(flat, s.baseShape, s.baseStrides, 0)
}

// copySliceDeriv is the derivative of an operation in place on a view, with respect to the view's base and the
// operation's other inputs.
func copySliceDeriv(ctx *core.BackwardContext) {
	s := ctx.Node.Any.(*slice)
	base := ctx.Grad().DType()
	flat := s.reals(s.flatten(ctx.Grad()))
	part := s.viewed(base, AsStrided(flat, s.shape, s.strides, s.offset))
	grads, err := ctx.Inner([]*core.Tensor{part})
	if err != nil {
		ctx.Fail(err)
		return
	}
	if ctx.Needs(0) {
		r := grads[0]
		if r == nil {
			r = zerosFor(part, part.DType(), part.Shape())
		}
		ctx.Set(0, s.gather(s.as(base, AsStridedScatter(flat, s.reals(r), s.shape, s.strides, s.offset))))
	}
	for i := 1; i < len(grads); i++ {
		if grads[i] != nil {
			ctx.Set(i, grads[i])
		}
	}
}

func init() {
	// The node of a view whose base was changed in place after the view was made.
	core.SetViewNode(func(base *core.Node, index int, dtype core.DType, shape, strides []int, offset int, view *core.Tensor) *core.Node {
		base.Retain()
		n := core.NewNodeWithEdges(core.CurrentMode(), "as_strided", asStridedDeriv, []core.Edge{{Node: base, Index: index}})
		n.SetInputMeta(0, dtype, shape)
		n.Any = layoutIn(dtype, shape, strides, offset, view)
		return n
	})
}
