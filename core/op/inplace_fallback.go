package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// replace puts into x what fn makes of it, and returns x: the variant in place of an operation that writes its result to
// other memory. others are the operation's other tensors, nil for absent ones. x stays as it was unless the result has its
// shape and a dtype of no higher class.
func replace(name string, fn func(x *core.Tensor) *core.Tensor, x *core.Tensor, others ...*core.Tensor) *core.Tensor {
	op := begin(name, &x).with(others...)
	op.inPlace(x)
	if op.err != nil {
		return op.fail()
	}
	old := x
	if op.grad {
		old = op.own(Clone(x)) // derivatives see the elements as they were
	}
	r := op.own(fn(old))
	if op.err != nil {
		return op.fail()
	}
	if !slices.Equal(r.Shape(), x.Shape()) {
		op.failf(core.ShapeError, "a tensor of shape %v cannot hold the result of shape %v", x.Shape(), r.Shape())
	}
	if class(r.DType()) > class(x.DType()) {
		op.failf(core.DTypeError, "a result of %v can't be cast to %v, the tensor's dtype", r.DType(), x.DType())
	}
	if op.err != nil {
		return op.fail()
	}
	return op.done(CopyInPlace(x, r))
}
