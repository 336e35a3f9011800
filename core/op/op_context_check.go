package op

import (
	"fmt"

	"github.com/plait-ml/plait/core"
)

// failf makes the op fail, unless it has already.
func (op *opContext) failf(kind core.Kind, format string, args ...any) {
	if op.err == nil {
		op.err = core.Errorf(kind, op.name, format, args...)
	}
}

// check makes the op fail with err, if it is not nil.
func (op *opContext) check(err error) {
	if op.err == nil {
		op.err = err
	}
}

// dim returns the dimension dim of t counted from the front.
func (op *opContext) dim(dim int, t *core.Tensor) int {
	if op.err != nil {
		return 0
	}
	d, err := core.WrapDim(op.name, dim, t.Dim())
	op.check(err)
	return d
}

// dims returns dims of t counted from the front and sorted; none means all.
func (op *opContext) dims(dims []int, t *core.Tensor) []int {
	if op.err != nil {
		return nil
	}
	d, err := core.WrapDims(op.name, dims, t.Dim())
	op.check(err)
	return d
}

// floating fails unless t is of a floating-point dtype.
func (op *opContext) floating(what string, t *core.Tensor) {
	if op.err == nil && t != nil && !t.DType().IsFloat() {
		op.failf(core.DTypeError, "%s must be floating point, got %v", what, t.DType())
	}
}

// inexact fails unless t is of a floating-point or complex dtype.
func (op *opContext) inexact(what string, t *core.Tensor) {
	if op.err == nil && !t.DType().IsComplex() {
		op.floating(what, t)
	}
}

// tensors fails unless all of them are tensors, not numbers.
func (op *opContext) tensors(list ...*core.Tensor) {
	for i, t := range list {
		if op.err == nil && (t == nil || t.IsNumber()) {
			op.failf(core.TypeError, "want a tensor as argument %d, got %v", i+1, t)
		}
	}
}

// countable fails where t is one of truth values.
func (op *opContext) countable(what string, t *core.Tensor) {
	if op.err == nil && t.DType() == core.Bool {
		op.failf(core.DTypeError, "%s must be numbers, got bool", what)
	}
}

// widened returns t, in int64 if it is one of integers, whose differences and products shorter ones may not hold.
func widened(t *core.Tensor) *core.Tensor {
	if t.Err() != nil || t.DType().IsFloat() || t.DType().IsComplex() {
		return t
	}
	return castTo(t, core.Int64)
}

// floatTensor fails unless x is a tensor, not a number, of a floating-point dtype.
func (op *opContext) floatTensor(x *core.Tensor) {
	if op.err == nil && x.IsNumber() {
		op.failf(core.TypeError, "got a number, want a tensor")
	}
	op.floating("the input", x)
}

// broadcast returns the shape to which the tensors broadcast.
func (op *opContext) broadcast(tensors ...*core.Tensor) []int {
	if op.err != nil {
		return nil
	}
	shapes := make([][]int, 0, 4)
	for _, t := range tensors {
		if t != nil {
			shapes = append(shapes, t.Shape())
		}
	}
	s, err := core.Broadcast(op.name, shapes...)
	op.check(err)
	return s
}

// common fails where d, to which the tensors promote, is no dtype.
func (op *opContext) common(d core.DType, tensors ...*core.Tensor) {
	if op.err != nil || d.Valid() {
		return
	}
	var dtypes []core.DType
	for _, t := range tensors {
		dtypes = append(dtypes, t.DType())
	}
	op.failf(core.DTypeError, "%v have no common dtype; convert some of them", dtypes)
}

// shapes formats the shapes of tensors for a message.
func shapes(tensors ...*core.Tensor) string {
	s := ""
	for i, t := range tensors {
		if i > 0 {
			s += " x "
		}
		if t == nil {
			s += "nil"
			continue
		}
		s += fmt.Sprint(t.Shape())
	}
	return s
}
