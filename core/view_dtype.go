package core

// ViewDType returns a tensor over the same memory with its bits read as dtype d. If the element sizes differ, the last dimension must have
// stride 1, and it grows or shrinks. Gradients do not pass.
func (t *Tensor) ViewDType(d DType) *Tensor {
	const op = "view"
	if err := t.Usable(op); err != nil {
		return ErrorTensor(err)
	}
	if t.isNumber || !d.Valid() {
		return ErrorTensor(Errorf(TypeError, op, "want a tensor and a dtype, got %v and %d", t, d))
	}
	from, to := t.dtype.Size(), d.Size()
	shape, strides := append([]int{}, t.shape...), append([]int{}, t.strides...)
	offset := t.offset
	if from != to {
		n := len(shape)
		if n == 0 || strides[n-1] != 1 && shape[n-1] != 1 {
			return ErrorTensor(Errorf(ShapeError, op, "from %v to %v the last dimension must have stride 1, got shape %v and strides %v",
				t.dtype, d, t.shape, t.strides))
		}
		scale := func(what string, v int) (int, error) {
			if v*from%to != 0 {
				return 0, Errorf(ShapeError, op, "from %v to %v the %s must be divisible by %d, got %d", t.dtype, d, what, to/from, v)
			}
			return v * from / to, nil
		}
		var err error
		if shape[n-1], err = scale("last dimension", shape[n-1]); err != nil {
			return ErrorTensor(err)
		}
		if offset, err = scale("offset", offset); err != nil {
			return ErrorTensor(err)
		}
		for i := range n - 1 {
			if strides[i], err = scale("strides", strides[i]); err != nil {
				return ErrorTensor(err)
			}
		}
		strides[n-1] = 1
	}
	v := WrapTensor(CurrentMode(), t.storage, d, shape, strides, offset)
	v.changes = t.changes
	return v
}
