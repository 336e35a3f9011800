package core

import (
	"errors"
	"math"
	"slices"
	"time"
	"unsafe"
)

// An Element is a Go type that can fill a tensor or receive its values.
type Element interface {
	bool | uint8 | int8 | int16 | uint16 | int32 | uint32 | int64 | uint64 | int | float32 | float64 | complex64 | complex128
}

func dtypeOf[T Element]() DType {
	var zero T
	switch any(zero).(type) {
	case bool:
		return Bool
	case uint8:
		return Uint8
	case int8:
		return Int8
	case int16:
		return Int16
	case uint16:
		return Uint16
	case uint32:
		return Uint32
	case uint64:
		return Uint64
	case int32:
		return Int32
	case int64, int:
		return Int64
	case float32:
		return Float32
	case complex64:
		return Complex64
	case complex128:
		return Complex128
	}
	return Float64
}

func bytesOf[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(zero)))
}

// FromSlice returns a tensor of the given shape on the default device with a copy of data in row-major order. Without a shape it has one
// dimension. The dtype is T's; int gives int64.
func FromSlice[T Element](data []T, shape ...int) *Tensor {
	if shape == nil {
		shape = []int{len(data)}
	}
	d := dtypeOf[T]()
	n, err := CheckShape("from_slice", shape, d)
	if err != nil {
		return ErrorTensor(err)
	}
	if n != len(data) {
		return ErrorTensor(Errorf(ShapeError, "from_slice", "shape %v has %d elements, got %d", shape, n, len(data)))
	}
	return FromBytes(d, bytesOf(data), shape...)
}

// Scalar returns a 0-d tensor with the value v.
func Scalar[T Element](v T) *Tensor { return FromSlice([]T{v}, []int{}...) }

// FromBytes returns a tensor of the given dtype and shape on the default device with a copy of data. data holds the elements in row-major
// order and the machine's byte order.
func FromBytes(d DType, data []byte, shape ...int) *Tensor {
	m := CurrentMode()
	dev, err := m.Context().DefaultDevice()
	if err != nil {
		return ErrorTensor(err)
	}
	n, err := CheckShape("from_bytes", shape, d)
	if err != nil {
		return ErrorTensor(err)
	}
	if n*d.Size() != len(data) {
		return ErrorTensor(Errorf(ShapeError, "from_bytes", "shape %v of %v has %d bytes, got %d", shape, d, n*d.Size(), len(data)))
	}
	s := m.Context().Stream(dev)
	t := NewTensor(m, s, d, shape)
	if t.other == nil && n > 0 {
		s.Upload(t.storage.alloc.memory, 0, data)
	}
	return t
}

// Wait blocks until the tensor's value is ready, and returns the error that prevented it.
func (t *Tensor) Wait() error {
	p, err := t.here().pin("wait")
	if err != nil || t.isNumber {
		return err
	}
	defer p.unpin()
	return p.storage.Wait()
}

// Wait blocks until everything launched so far on the storage is done. It returns the execution error that made the contents undefined, or
// else the first unread error of its stream.
func (s *Storage) Wait() error {
	refuseRecording("the step reads the value of a tensor, on which it may depend what comes next")
	WaitOn(s.alloc.home.Record(), -1)
	s.waitForeign()
	if err := s.Err(); err != nil {
		s.alloc.home.TakeError()
		return err
	}
	return s.alloc.home.TakeError()
}

// TakeReported takes the unread error of a stream if err, which the program is about to get, is a consequence of it.
func TakeReported(s Stream, err error) {
	if f, ok := s.(interface{ Failure() error }); ok {
		if own := f.Failure(); own != nil && errors.Is(err, own) {
			s.TakeError()
		}
	}
}

// waitForeign waits for uses on other streams.
func (s *Storage) waitForeign() {
	h := s.alloc
	h.mu.Lock()
	uses := append([]foreignUse(nil), h.uses...)
	h.mu.Unlock()
	for _, u := range uses {
		WaitOn(u.event, -1)
	}
}

// read waits as Wait does and copies bytes from offset to dst. It launches the copy before it blocks, so a device with separate memory is
// asked once.
func (s *Storage) read(dst []byte, offset int) error {
	refuseRecording("the step reads the value of a tensor, on which it may depend what comes next")
	s.waitForeign()
	s.alloc.home.Download(dst, s.alloc.memory, offset)
	return s.Wait()
}

// WaitFor is [Tensor.Wait] with the timeout d. It reports whether the value, or its error, is ready.
func (t *Tensor) WaitFor(d time.Duration) bool { return t.waitFor(d, Event.WaitFor) }

// WaitOn is [Tensor.WaitFor] for a caller that only waits until the value is ready: see the function [WaitOn].
func (t *Tensor) WaitOn(d time.Duration) bool { return t.waitFor(d, WaitOn) }

func (t *Tensor) waitFor(d time.Duration, wait func(Event, time.Duration) bool) bool {
	p, err := t.pin("wait")
	if err != nil || t.isNumber {
		return true
	}
	defer p.unpin()
	var deadline time.Time
	if d != 0 {
		deadline = time.Now().Add(d)
	}
	s := p.storage
	if !wait(s.alloc.home.Record(), d) {
		return false
	}
	h := s.alloc
	h.mu.Lock()
	uses := append([]foreignUse(nil), h.uses...)
	h.mu.Unlock()
	for _, u := range uses {
		if !wait(u.event, max(time.Until(deadline), 0)) {
			return false
		}
	}
	return true
}

// Bytes waits for the tensor's value and returns its elements in row-major order and the machine's byte order.
func (t *Tensor) Bytes() ([]byte, error) {
	p, err := t.pin("read")
	if err != nil {
		return nil, err
	}
	if t.isNumber {
		return nil, Errorf(TypeError, "read", "a number has no memory to read")
	}
	defer p.unpin()
	return p.bytes()
}

// Look waits for the value of a contiguous tensor with elements, in memory that the host can address, and calls f with its bytes, which f must
// neither change nor keep.
func (t *Tensor) Look(f func(bytes []byte)) error {
	p, err := t.pin("read")
	if err != nil {
		return err
	}
	defer p.unpin()
	if err := p.storage.Wait(); err != nil {
		return err
	}
	m := p.storage.Memory()
	m.Touch(false)
	f(unsafe.Slice((*byte)(unsafe.Add(m.Ptr, p.offset*p.dtype.Size())), Numel(p.shape)*p.dtype.Size()))
	return nil
}

// bytes is [Tensor.Bytes] of a pinned tensor.
func (p *pinned) bytes() ([]byte, error) {
	if p.storage.Device().Kind() == MetaKind {
		return nil, Errorf(NotImplemented, "read", "a tensor of shape %v on the meta device has no values; materialize computes them, to_empty only allocates memory", p.shape)
	}
	n, size := Numel(p.shape), p.dtype.Size()
	if n == 0 {
		return nil, p.storage.Wait()
	}
	out := make([]byte, n*size)
	if IsContiguous(p.shape, p.strides) {
		if err := p.storage.read(out, p.offset*size); err != nil {
			return nil, err
		}
		return out, nil
	}
	low, high := p.offset, p.offset
	for i, d := range p.shape {
		if span := (d - 1) * p.strides[i]; span < 0 {
			low += span
		} else {
			high += span
		}
	}
	span := make([]byte, (high-low+1)*size)
	if err := p.storage.read(span, low*size); err != nil {
		return nil, err
	}
	index := make([]int, len(p.shape))
	at := p.offset - low
	for i := range n {
		copy(out[i*size:(i+1)*size], span[at*size:])
		for d := len(index) - 1; d >= 0; d-- {
			index[d]++
			at += p.strides[d]
			if index[d] < p.shape[d] {
				break
			}
			at -= index[d] * p.strides[d]
			index[d] = 0
		}
	}
	return out, nil
}

// FirstNaN waits for the tensor's value and returns the row-major index of its first NaN, or -1.
func FirstNaN(t *Tensor) (int, error) {
	t = t.here() // of several ranks, or of a sparse tensor
	if t.DType().IsComplex() {
		v, err := Values[complex128](t)
		return slices.IndexFunc(v, func(z complex128) bool { return math.IsNaN(real(z)) || math.IsNaN(imag(z)) }), err
	}
	if !t.DType().IsFloat() {
		return -1, nil
	}
	v, err := Values[float64](t)
	return slices.IndexFunc(v, math.IsNaN), err
}

// Values waits for the tensor's value and returns its elements in row-major order, converted to T.
func Values[T Element](t *Tensor) ([]T, error) {
	p, err := t.pin("read")
	if err != nil {
		return nil, err
	}
	defer p.unpin()
	return values[T](t, &p)
}

// values is [Values] of a number, or of t as pinned in of.
func values[T Element](t *Tensor, of *pinned) ([]T, error) {
	if t.isNumber {
		if t.dtype.IsFloat() {
			return []T{fromFloat[T](t.other.number.Float)}, nil
		}
		return []T{fromInt[T](t.other.number.Int)}, nil
	}
	if of.dtype.IsComplex() && !dtypeOf[T]().IsComplex() {
		return nil, Errorf(DTypeError, "read", "got a tensor of %v, want real numbers; take its real or imaginary part", of.dtype)
	}
	raw, err := of.bytes()
	if err != nil {
		return nil, err
	}
	n := Numel(of.shape)
	out := make([]T, n)
	if n == 0 {
		return out, nil
	}
	p := unsafe.Pointer(&raw[0])
	switch of.dtype {
	case Bool, Uint8:
		fromInts(out, raw)
	case Int8:
		fromInts(out, unsafe.Slice((*int8)(p), n))
	case Int16:
		fromInts(out, unsafe.Slice((*int16)(p), n))
	case Uint16:
		fromInts(out, unsafe.Slice((*uint16)(p), n))
	case Int32:
		fromInts(out, unsafe.Slice((*int32)(p), n))
	case Uint32:
		fromInts(out, unsafe.Slice((*uint32)(p), n))
	case Int64:
		fromInts(out, unsafe.Slice((*int64)(p), n))
	case Uint64:
		for i, v := range unsafe.Slice((*uint64)(p), n) {
			out[i] = fromUint[T](v)
		}
	case Float16:
		for i, v := range unsafe.Slice((*uint16)(p), n) {
			out[i] = fromFloat[T](float64(Float16Value(v)))
		}
	case BFloat16:
		for i, v := range unsafe.Slice((*uint16)(p), n) {
			out[i] = fromFloat[T](float64(BFloat16Value(v)))
		}
	case Float32:
		for i, v := range unsafe.Slice((*float32)(p), n) {
			out[i] = fromFloat[T](float64(v))
		}
	case Float64:
		for i, v := range unsafe.Slice((*float64)(p), n) {
			out[i] = fromFloat[T](v)
		}
	case Complex64:
		for i, v := range unsafe.Slice((*complex64)(p), n) {
			out[i] = fromComplex[T](complex128(v))
		}
	case Complex128:
		for i, v := range unsafe.Slice((*complex128)(p), n) {
			out[i] = fromComplex[T](v)
		}
	}
	return out, nil
}

func fromInts[T Element, S uint8 | int8 | int16 | uint16 | int32 | uint32 | int64](out []T, in []S) {
	for i, v := range in {
		out[i] = fromInt[T](int64(v))
	}
}

// fromUint is [fromInt] for numbers that may be too large for an int64.
func fromUint[T Element](v uint64) T {
	var out T
	switch p := any(&out).(type) {
	case *float32:
		*p = float32(v)
	case *float64:
		*p = float64(v)
	case *complex64:
		*p = complex(float32(v), 0)
	case *complex128:
		*p = complex(float64(v), 0)
	default:
		return fromInt[T](int64(v))
	}
	return out
}

func fromInt[T Element](v int64) T {
	var out T
	switch p := any(&out).(type) {
	case *bool:
		*p = v != 0
	case *uint8:
		*p = uint8(v)
	case *int8:
		*p = int8(v)
	case *int16:
		*p = int16(v)
	case *uint16:
		*p = uint16(v)
	case *uint32:
		*p = uint32(v)
	case *uint64:
		*p = uint64(v)
	case *int32:
		*p = int32(v)
	case *int64:
		*p = v
	case *int:
		*p = int(v)
	case *float32:
		*p = float32(v)
	case *float64:
		*p = float64(v)
	case *complex64:
		*p = complex(float32(v), 0)
	case *complex128:
		*p = complex(float64(v), 0)
	}
	return out
}

func fromFloat[T Element](v float64) T {
	var out T
	switch p := any(&out).(type) {
	case *bool:
		*p = v != 0
	case *float32:
		*p = float32(v)
	case *float64:
		*p = v
	case *complex64:
		*p = complex(float32(v), 0)
	case *complex128:
		*p = complex(v, 0)
	default:
		if math.IsNaN(v) {
			return fromInt[T](0)
		}
		return fromInt[T](truncate(v))
	}
	return out
}

func fromComplex[T Element](v complex128) T {
	var out T
	switch p := any(&out).(type) {
	case *complex64:
		*p = complex64(v)
	case *complex128:
		*p = v
	}
	return out
}

// Item waits for the value of a tensor with one element and returns it.
func (t *Tensor) Item() (float64, error) {
	v, err := item[float64](t)
	return v, err
}

// Int waits for the value of a tensor with one element and returns it as an integer.
func (t *Tensor) Int() (int64, error) { return item[int64](t) }

// Complex waits for the value of a tensor with one element and returns it as a complex number.
func (t *Tensor) Complex() (complex128, error) { return item[complex128](t) }

func item[T Element](t *Tensor) (T, error) {
	var zero T
	p, err := t.pin("item")
	if err != nil {
		return zero, err
	}
	defer p.unpin()
	if n := Numel(p.shape); n != 1 {
		return zero, Errorf(ValueError, "item", "got a tensor of shape %v with %d elements, want one", p.shape, n)
	}
	v, err := values[T](t, &p)
	if err != nil {
		return zero, err
	}
	return v[0], nil
}
