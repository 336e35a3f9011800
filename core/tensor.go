package core

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// A Tensor is a strided view of a [Storage]: dtype, shape, strides and offset. If gradients are required it also has a place in the graph
// ([AutogradMeta]). Its metadata changes only through in-place operations.
//
// Several goroutines may use a tensor at once. If some of them change its values, they must order their calls. Changing its memory or
// layout ([Tensor.Adopt], [Tensor.Exchange]) and releasing it may run concurrently with reads of its values, with aliasing, with gradient
// methods and with backward passes. It must not run during an operation on the tensor, which looks at the layout more than once;
// [Tensor.Use] prevents that.
//
// A tensor may carry an error instead ([Tensor.Err]), because the operation that should have made it failed. Operations on it return the
// same error.
type Tensor struct {
	storage   *Storage
	shape     []int
	strides   []int
	offset    int
	dtype     DType
	isNumber  bool
	kept      bool          // not released by a scope
	escapes   bool          // returned from a scope that is ending
	recording viewRecording // of a view: see MarkUnrecorded
	state     atomic.Uint32 // live, locked or gone: see lock
	users     atomic.Int32  // see Use
	autograd  atomic.Pointer[AutogradMeta]
	view      atomic.Pointer[viewOf]
	changes   *atomic.Uint32 // counts changes in place, if the tensor and its views have a count of their own: see Data
	other     *noTensor
	dims      [8]int // backs shape and strides of tensors with up to 4 dimensions
}

// A noTensor is the payload of a tensor without memory of its own: an error, a number, or a distributed tensor.
type noTensor struct {
	err    error
	number Number
	parts  Parts
}

// ErrorTensor returns a tensor that carries err.
func ErrorTensor(err error) *Tensor { return &Tensor{other: &noTensor{err: err}} }

// numberTensor returns a tensor that stands for v.
func numberTensor(v Number, d DType) *Tensor {
	t := &struct {
		Tensor
		of noTensor
	}{of: noTensor{number: v}}
	t.dtype, t.isNumber, t.other = d, true, &t.of
	return &t.Tensor
}

// failed returns the error that the tensor carries, or nil.
func (t *Tensor) failed() error {
	if t.other == nil {
		return nil
	}
	return t.other.err
}

// NewTensor returns an uninitialised contiguous tensor on stream s. Operations use it for their results.
func NewTensor(m Mode, s Stream, d DType, shape []int) *Tensor {
	t := new(Tensor)
	t.dtype = d
	n := t.setShape(shape)
	ContiguousStrides(t.shape, t.strides)
	st, err := NewStorage(s, n*d.Size(), m.Context().category)
	if err != nil {
		return ErrorTensor(err)
	}
	t.storage = st
	st.inference = m.Inference()
	m.register(t)
	return t
}

// WrapTensor returns a tensor over an existing storage. It takes a reference of its own.
func WrapTensor(m Mode, st *Storage, d DType, shape, strides []int, offset int) *Tensor {
	t := new(Tensor)
	t.dtype, t.offset = d, offset
	t.setShape(shape)
	copy(t.strides, strides)
	st.Retain()
	t.storage = st
	m.register(t)
	return t
}

// setShape copies shape, allocates the strides, and returns the number of elements.
func (t *Tensor) setShape(shape []int) int {
	n := len(shape)
	if n <= len(t.dims)/2 {
		t.shape, t.strides = t.dims[:n:n], t.dims[n:2*n:2*n]
	} else {
		both := make([]int, 2*n)
		t.shape, t.strides = both[:n:n], both[n:]
	}
	copy(t.shape, shape)
	return Numel(shape)
}

func (m Mode) register(t *Tensor) {
	if s := m.scope(); s != nil {
		s.tensors = append(s.tensors, t)
	}
}

// Alias returns a new tensor with t's storage and layout. With withGraph it also shares t's place in the graph, and
// where t has none yet, the one that an in-place operation on either will give both.
func (t *Tensor) Alias(withGraph bool) *Tensor {
	if p := t.Parts(); p != nil {
		return p.With(p.Local().Alias(withGraph))
	}
	if t.other != nil {
		return t
	}
	pinned, err := t.pin("alias") // refills an emptied storage; must happen before lock, whose holders must not block
	if err != nil {
		return ErrorTensor(err)
	}
	defer pinned.unpin()
	m := CurrentMode()
	if !t.lock() {
		return ErrorTensor(errReleased("alias"))
	}
	defer t.unlock()
	a := WrapTensor(m, t.storage, t.dtype, t.shape, t.strides, t.offset)
	a.changes = t.changes
	if withGraph {
		meta := t.autograd.Load()
		if meta == nil && t.dtype.Differentiable() {
			meta = t.EnsureAutogradMeta() // the two share what an in-place operation on either will record
		}
		if meta != nil {
			meta.retain()
			a.autograd.Store(meta)
		}
		if v := t.view.Load(); v != nil {
			v.base.retain()
			a.view.Store(v.clone())
		}
		a.recording = t.recording
	}
	return a
}

// Release drops the tensor's references to its memory and its graph. Using the tensor afterwards is an error; releasing it again does
// nothing.
func (t *Tensor) Release() {
	if t == nil || !t.markReleased() {
		return
	}
	if p := t.Parts(); p != nil {
		p.Release()
	}
	if meta := t.autograd.Swap(nil); meta != nil {
		meta.release()
	}
	if v := t.view.Load(); v != nil {
		t.view.Store(nil)
		v.base.release()
	}
	if s := t.storage; s != nil {
		t.storage = nil
		s.Release()
	}
}

// Usable returns the tensor's error, or an error if it was released or its storage is empty.
func (t *Tensor) Usable(op string) error {
	switch {
	case t == nil:
		return Errorf(TypeError, op, "got a nil tensor")
	case t.other != nil:
		return t.other.refuse(op)
	case t.isReleased():
		return errReleased(op)
	case t.storage.IsEmpty():
		return refill(op, t.storage, t.shape)
	}
	return nil
}

func errReleased(op string) error {
	return Errorf(StateError, op, "got a tensor that was released")
}

// A Refiller is a task ([WithTask]) that may restore the contents of an emptied storage when an operation needs it.
type Refiller interface {
	Refill(s *Storage) (filled bool, err error)
}

// refill asks the current task to refill an emptied storage, for [Tensor.Usable].
func refill(op string, s *Storage, shape []int) error {
	if r, ok := CurrentTask().(Refiller); ok {
		if filled, err := r.Refill(s); filled || err != nil {
			return err
		}
	}
	return Errorf(StateError, op, "got a tensor of shape %v whose storage was emptied", shape)
}

// Err returns the error that prevented the tensor from being made, or nil. It does not block: execution errors surface when a value is
// read.
func (t *Tensor) Err() error {
	if t == nil {
		return Errorf(TypeError, "tensor", "nil tensor")
	}
	return t.failed()
}

// DType returns the dtype of the elements.
func (t *Tensor) DType() DType { return t.dtype }

// Shape returns the sizes of the dimensions. The slice must not be changed.
func (t *Tensor) Shape() []int { return t.shape }

// Strides returns the distance of neighbours along each dimension, in elements. The slice must not be changed.
func (t *Tensor) Strides() []int { return t.strides }

// Offset returns the position of the first element in the storage, in elements.
func (t *Tensor) Offset() int { return t.offset }

// Dim returns the number of dimensions.
func (t *Tensor) Dim() int { return len(t.shape) }

// Size returns the size of dimension d, which may be negative to count from the end.
func (t *Tensor) Size(d int) int {
	if d < 0 {
		d += len(t.shape)
	}
	if d < 0 || d >= len(t.shape) {
		return 0
	}
	return t.shape[d]
}

// Numel returns the number of elements.
func (t *Tensor) Numel() int { return Numel(t.shape) }

// Contiguous reports whether the elements lie row-major without gaps.
func (t *Tensor) Contiguous() bool { return IsContiguous(t.shape, t.strides) }

// Storage returns the storage behind the tensor; nil for a number or after Release.
func (t *Tensor) Storage() *Storage { return t.storage }

// Device returns the device of the tensor, or of this rank's part of it; nil for a number, an error or a released tensor.
func (t *Tensor) Device() Device {
	t = t.here()
	if t.storage == nil {
		return nil
	}
	return t.storage.Device()
}

// SameLayout reports whether t and u have equal shapes and strides.
func (t *Tensor) SameLayout(u *Tensor) bool {
	return slices.Equal(t.shape, u.shape) && slices.Equal(t.strides, u.strides)
}

// String describes the tensor without reading it, such as "float32[2 3] on cpu:0".
func (t *Tensor) String() string {
	switch {
	case t == nil:
		return "nil tensor"
	case t.failed() != nil:
		return "error: " + t.failed().Error()
	case t.isNumber && t.dtype.IsComplex():
		return fmt.Sprintf("number %v", complex(t.other.number.Float, t.other.number.Imag))
	case t.isNumber:
		return fmt.Sprintf("number %v", t.other.number.Float)
	case t.isReleased():
		return "released tensor"
	case t.Parts() != nil:
		return fmt.Sprintf("%v%v on %v, %v", t.dtype, t.shape, t.Device(), t.Parts())
	}
	return fmt.Sprintf("%v%v on %v", t.dtype, t.shape, t.Device())
}
