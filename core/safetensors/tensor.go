package safetensors

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// The element types that tensors have.
var dtypes = map[DType]core.DType{
	BOOL: core.Bool, U8: core.Uint8, I32: core.Int32, I64: core.Int64,
	I8: core.Int8, I16: core.Int16, U16: core.Uint16, U32: core.Uint32, U64: core.Uint64,
	F16: core.Float16, BF16: core.BFloat16, F32: core.Float32, F64: core.Float64, C64: core.Complex64,
}

// DTypeOf returns the element type of tensors with the given dtype.
func DTypeOf(d core.DType) DType {
	for name, dtype := range dtypes {
		if dtype == d {
			return name
		}
	}
	return ""
}

// Core returns the dtype of tensors with this element type, and false if there is none.
func (d DType) Core() (core.DType, bool) {
	dtype, ok := dtypes[d]
	return dtype, ok
}

// Load returns the tensors of a file, on the current default device. On CPU devices they share the file's map, as those of
// [File.Tensor] do.
//
// Errors: as Open and File.Tensor.
func Load(path string) (map[string]*core.Tensor, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	tensors := make(map[string]*core.Tensor, f.Len())
	for _, name := range f.Names() {
		t := f.Tensor(name)
		if err := t.Err(); err != nil {
			for _, t := range tensors {
				t.Release()
			}
			return nil, err
		}
		tensors[name] = t
	}
	return tensors, nil
}

// Save writes tensors and text entries to a file, as WriteFile does. Tensors of any layout are written row-major; their
// bytes are read when their turn comes, and so Save needs memory for one of them where it is not contiguous.
//
// Errors: as WriteFile; a tensor that cannot be read.
func Save(path string, tensors map[string]*core.Tensor, metadata map[string]string) error {
	entries := make([]Entry, 0, len(tensors))
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		e, err := EntryOf(name, tensors[name])
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
	return WriteFile(path, entries, metadata)
}

// EntryOf returns the entry that writes a tensor's values, as they are when the entry is written.
//
// Errors: a tensor that is not usable; a plain number.
func EntryOf(name string, t *core.Tensor) (Entry, error) {
	err := t.Usable(format)
	if err == nil && t.IsNumber() {
		err = core.Errorf(core.TypeError, format, "a number has no memory to write")
	}
	if err != nil {
		return Entry{}, fmt.Errorf("safetensors: write tensor %s: %w", quote(name), err)
	}
	shape := make([]int64, t.Dim())
	for i, d := range t.Shape() {
		shape[i] = int64(d)
	}
	return Entry{Name: name, DType: DTypeOf(t.DType()), Shape: shape, Stream: func(w io.Writer) (err error) {
		core.NoGrad(func() {
			c := op.Contiguous(t)
			defer c.Release()
			err = writeTensor(w, c)
		})
		return err
	}}, nil
}

// chunk is how many bytes of a tensor are copied at a time.
const chunk = 4 << 20

func writeTensor(w io.Writer, t *core.Tensor) error {
	if err := t.Wait(); err != nil {
		return err
	}
	st := t.Storage()
	at, left := t.Offset()*t.DType().Size(), t.Numel()*t.DType().Size()
	buffer := make([]byte, min(left, chunk))
	for left > 0 {
		part := buffer[:min(left, chunk)]
		st.Stream().Download(part, st.Memory(), at)
		if _, err := w.Write(part); err != nil {
			return err
		}
		at, left = at+len(part), left-len(part)
	}
	return nil
}

// Tensor returns a tensor of the file, on the current default device. On a CPU device it lies in the file's map, if it is
// aligned there: pages are read when they are touched, they are not counted as the device's memory, and a change in place
// stays in memory.
//
// Errors, carried by the tensor: those of Bytes; an element type that tensors do not have; a BOOL that is neither 0 nor 1;
// more dimensions than tensors can have.
func (f *File) Tensor(name string) *core.Tensor {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, bytes, err := f.find(name)
	if err != nil {
		return core.ErrorTensor(err)
	}
	dtype, ok := info.DType.Core()
	if !ok {
		return core.ErrorTensor(core.Errorf(core.DTypeError, format, "%stensor %s: no tensors have dtype %s", f.prefix(), quote(name), info.DType))
	}
	if dtype == core.Bool {
		for i, b := range bytes {
			if b > 1 {
				return core.ErrorTensor(&FormatError{Path: f.path, Tensor: name, Offset: f.header.data + info.Begin + int64(i),
					Reason: fmt.Sprintf("got %d for a BOOL, want 0 or 1", b)})
			}
		}
	}
	shape := make([]int, len(info.Shape))
	for i, d := range info.Shape {
		shape[i] = int(d)
	}
	if _, err := core.CheckShape(format, shape, dtype); err != nil {
		return core.ErrorTensor(err)
	}
	if f.mapping == nil || len(bytes) == 0 || uintptr(unsafe.Pointer(&bytes[0]))%uintptr(dtype.Size()) != 0 {
		return core.FromBytes(dtype, bytes, shape...)
	}
	mode := core.CurrentMode()
	device, err := mode.Context().DefaultDevice()
	if err != nil {
		return core.ErrorTensor(err)
	}
	if !device.HostAccessible() {
		return core.FromBytes(dtype, bytes, shape...)
	}
	mapping := f.mapping
	mapping.retain()
	memory := core.Memory{Ptr: unsafe.Pointer(&bytes[0]), Size: len(bytes)}.Shadowed()
	// The map goes with the tensor; there is nobody left to tell of an error.
	st := core.WrapStorage(mode.Context().Stream(device), memory, func() { _ = mapping.release() })
	strides := make([]int, len(shape))
	core.ContiguousStrides(shape, strides)
	t := core.WrapTensor(mode, st, dtype, shape, strides, 0)
	st.Release()
	return t
}
