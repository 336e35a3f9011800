package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// given fails if one of the inputs is absent.
func (op *opContext) given(inputs ...*core.Tensor) {
	for _, t := range inputs {
		if t == nil {
			op.check(t.Usable(op.name))
		}
	}
}

// Contiguous returns t itself (a new reference to it) if its elements lie row-major without gaps, otherwise a copy that
// does.
func Contiguous(t *core.Tensor) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "contiguous", t)
	}
	if err := t.Err(); err != nil {
		return core.ErrorTensor(err)
	}
	if t.IsNumber() || t.Contiguous() {
		return t.Alias(true)
	}
	return Clone(t)
}

// Reshape returns t with another shape and the same elements row-major; one size may be -1, to be inferred. The result
// is a view of t where the layout allows it, otherwise a copy.
func Reshape(t *core.Tensor, shape ...int) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "reshape", t, shape)
	}
	return reshape("reshape", t, shape)
}

func reshape(name string, t *core.Tensor, shape []int) *core.Tensor {
	op := begin(name, &t)
	shape = op.inferShape(t, shape)
	if op.err != nil {
		return op.fail()
	}
	strides, ok := viewStrides(t.Shape(), t.Strides(), shape)
	if !ok {
		c := Clone(t)
		defer c.Release()
		return reshape(name, c, shape)
	}
	return op.view(t, shape, strides, t.Offset(), reshapeDeriv, markReshape)
}

// reshaped is what the nodes of reshapes hold: their derivatives make views of gradients whose rows lie apart.
type reshaped struct{}

func markReshape(n *core.Node) { n.Any = reshaped{} }

func reshapeDeriv(ctx *core.BackwardContext) {
	g := Reshape(ctx.Grad(), ctx.InputShape(0)...)
	if g.Err() == nil && g.DType() != ctx.InputDType(0) {
		ctx.SetMixed(0, g)
		return
	}
	ctx.Set(0, g)
}

// View returns t with another shape and the same elements row-major, always as a view: it fails where the layout would
// need a copy. One size may be -1, to be inferred.
func View(t *core.Tensor, shape ...int) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "view", t, shape)
	}
	op := begin("view", &t)
	shape = op.inferShape(t, shape)
	if op.err != nil {
		return op.fail()
	}
	strides, ok := viewStrides(t.Shape(), t.Strides(), shape)
	if !ok {
		op.failf(core.ShapeError, "a tensor of shape %v with strides %v cannot be seen as %v without a copy; use reshape", t.Shape(), t.Strides(), shape)
	}
	return op.view(t, shape, strides, t.Offset(), reshapeDeriv, markReshape)
}

// ViewAs returns View(t, other's shape).
func ViewAs(t, other *core.Tensor) *core.Tensor {
	if parts := distributed(t, other); parts != nil {
		return handOn(parts, "view_as", t, other)
	}
	if err := other.Usable("view_as"); err != nil {
		return core.ErrorTensor(err)
	}
	return View(t, other.Shape()...)
}

// ReshapeAs returns Reshape(t, other's shape).
func ReshapeAs(t, other *core.Tensor) *core.Tensor {
	if parts := distributed(t, other); parts != nil {
		return handOn(parts, "reshape_as", t, other)
	}
	if err := other.Usable("reshape_as"); err != nil {
		return core.ErrorTensor(err)
	}
	return Reshape(t, other.Shape()...)
}

// Flatten returns t with the dimensions from start to end, both included, joined to one: a view where the layout allows
// it, otherwise a copy. A 0-d tensor becomes one of shape [1].
func Flatten(t *core.Tensor, start, end int) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "flatten", t, start, end)
	}
	op := begin("flatten", &t)
	start, end = op.dim(start, t), op.dim(end, t)
	if op.err == nil && start > end {
		op.failf(core.ValueError, "the first dimension comes after the last, got %d and %d", start, end)
	}
	if op.err != nil {
		return op.fail()
	}
	shape := t.Shape()
	if len(shape) == 0 {
		return reshape("flatten", t, []int{1})
	}
	joined := slices.Concat(shape[:start], []int{core.Numel(shape[start : end+1])}, shape[end+1:])
	return reshape("flatten", t, joined)
}

// Ravel returns the elements of t in one dimension: a view where the layout allows it, otherwise a copy.
func Ravel(t *core.Tensor) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "ravel", t)
	}
	return reshape("ravel", t, []int{-1})
}

// Unflatten returns t with dimension dim split into the given sizes, of which one may be -1.
func Unflatten(t *core.Tensor, dim int, sizes ...int) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "unflatten", t, dim, sizes)
	}
	op := begin("unflatten", &t)
	dim = op.dim(dim, t)
	if op.err == nil && (len(sizes) == 0 || t.Dim() == 0) {
		op.failf(core.ShapeError, "cannot split dimension %d of shape %v into sizes %v", dim, t.Shape(), sizes)
	}
	if op.err != nil {
		return op.fail()
	}
	n, infer := t.Shape()[dim], slices.Index(sizes, -1)
	sizes = slices.Clone(sizes)
	if infer >= 0 {
		sizes[infer] = 1
	}
	known, err := core.CheckShape("unflatten", sizes, t.DType())
	if err != nil {
		return core.ErrorTensor(err)
	}
	if infer >= 0 && known > 0 && n%known == 0 {
		sizes[infer], known = n/known, n
	}
	if known != n {
		op.failf(core.ShapeError, "sizes %v do not fit dimension %d of shape %v", sizes, dim, t.Shape())
		return op.fail()
	}
	return reshape("unflatten", t, slices.Concat(t.Shape()[:dim], sizes, t.Shape()[dim+1:]))
}

// inferShape returns shape with a size of -1 replaced by what the number of t's elements leaves.
func (op *opContext) inferShape(t *core.Tensor, shape []int) []int {
	if op.err != nil {
		return nil
	}
	given := shape
	shape = slices.Clone(shape)
	infer := slices.Index(shape, -1)
	if infer >= 0 {
		shape[infer] = 1
	}
	if i := slices.IndexFunc(shape, func(d int) bool { return d < 0 }); i >= 0 {
		op.failf(core.ShapeError, "invalid shape %v: at most one size may be -1, the others must not be negative", given)
		return nil
	}
	known, err := core.CheckShape(op.name, shape, t.DType())
	if err != nil {
		op.check(err)
		return nil
	}
	n := t.Numel()
	if infer >= 0 {
		if known == 0 || n%known != 0 {
			op.failf(core.ShapeError, "shape %v does not fit the %d elements of shape %v", given, n, t.Shape())
			return nil
		}
		shape[infer] = n / known
	} else if known != n {
		op.failf(core.ShapeError, "shape %v has %d elements, shape %v has %d", shape, known, t.Shape(), n)
		return nil
	}
	return shape
}

// viewStrides returns the strides with which a tensor of the old layout can be seen as one of shape new, if it can
// without a copy.
func viewStrides(old, strides, shape []int) ([]int, bool) {
	out := make([]int, len(shape))
	if core.Numel(shape) == 0 {
		core.ContiguousStrides(shape, out)
		return out, true
	}
	// Runs of old dimensions that are dense with respect to one another must split into runs of new ones.
	j := len(shape) - 1
	for i := len(old) - 1; i >= 0; {
		n, step := old[i], strides[i]
		for i--; i >= 0 && (old[i] == 1 || n == 1 || strides[i] == n*step); i-- {
			if n == 1 {
				step = strides[i]
			}
			n *= old[i]
		}
		for ; j >= 0 && n > 1 && n%shape[j] == 0; j-- {
			out[j] = step
			step *= shape[j]
			n /= shape[j]
		}
		if n != 1 {
			return nil, false
		}
	}
	for ; j >= 0; j-- {
		if shape[j] != 1 {
			return nil, false
		}
		out[j] = 1
	}
	return out, true
}
