package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// Contiguous returns t itself (a new reference to it) if its elements lie row-major without gaps, otherwise a copy that
// does.
func Contiguous(t *core.Tensor) *core.Tensor {
	if t.Err() != nil || t.IsNumber() || t.Contiguous() {
		return t.Alias(true)
	}
	return Clone(t)
}

// Clone returns a contiguous copy of t.
func Clone(t *core.Tensor) *core.Tensor {
	a := begin("clone", t)
	out := a.out(t.DType(), t.Shape())
	if a.err != nil {
		return a.fail()
	}
	a.launch(a.call(copyKernel).Out(out).In(t))
	if a.grad {
		a.attach(a.node(cloneDeriv, t), out)
	}
	return a.done(out)
}

func cloneDeriv(d *core.Derivation) { d.Set(0, d.Grad()) }

// Reshape returns t with another shape and the same elements row-major; one size may be -1, to be inferred. The result
// is a view of t where the layout allows it, otherwise a copy.
func Reshape(t *core.Tensor, shape ...int) *core.Tensor {
	a := begin("reshape", t)
	shape = a.inferShape(t, shape)
	if a.err != nil {
		return a.fail()
	}
	strides, ok := viewStrides(t.Shape(), t.Strides(), shape)
	if !ok {
		c := Clone(t)
		defer c.Release()
		return Reshape(c, shape...)
	}
	return a.view(t, shape, strides, t.Offset(), reshapeDeriv, nil)
}

func reshapeDeriv(d *core.Derivation) { d.Set(0, Reshape(d.Grad(), d.InputShape(0)...)) }

// inferShape returns shape with a size of -1 replaced by what the number of t's elements leaves.
func (a *application) inferShape(t *core.Tensor, shape []int) []int {
	if a.err != nil {
		return nil
	}
	shape = slices.Clone(shape)
	known, infer := 1, -1
	for i, d := range shape {
		switch {
		case d == -1 && infer < 0:
			infer = i
		case d < 0:
			a.failf(core.ShapeError, "invalid shape %v: at most one size may be -1, the others must not be negative", shape)
			return nil
		default:
			known *= d
		}
	}
	n := t.Numel()
	if infer >= 0 {
		if known == 0 || n%known != 0 {
			a.failf(core.ShapeError, "shape %v does not fit the %d elements of shape %v", shape, n, t.Shape())
			return nil
		}
		shape[infer] = n / known
	} else if known != n {
		a.failf(core.ShapeError, "shape %v has %d elements, shape %v has %d", shape, known, t.Shape(), n)
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
