package bind

import (
	"bytes"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TensorFromMemory returns a tensor with a copy of the elements at data, which lie row-major in the machine's byte order.
//
//plait:waits
func TensorFromMemory(data Bytes, bytes int64, of DType, shape Ints, shapeLen int64, on Device) (status Tensor) {
	defer protect("tensor", &status)
	d := numbered(of)
	if !d.Valid() {
		return failf(core.DTypeError, "tensor", "%d is not the number of a dtype", of)
	}
	sizes := handle.Ints(shape, shapeLen)
	n, err := core.CheckShape("tensor", sizes, d)
	if err != nil {
		return failure(err)
	}
	if int64(n*d.Size()) != bytes {
		return failf(core.ShapeError, "tensor", "shape %v of %v has %d bytes, got %d", sizes, d, n*d.Size(), bytes)
	}
	t := op.Buffer(sizes, op.TensorOptions{DType: &d, Device: deviceOrDefault(on)})
	if t.Err() == nil && n > 0 {
		s := t.Storage()
		s.Stream().Upload(s.Memory(), 0, handle.Slice[byte](data, bytes))
	}
	return result(t)
}

// TensorWrap returns a tensor over memory of the caller on a CPU device, without a copy. strides and offset count elements;
// data and bytes bound the memory. The memory must stay until [Dropped] has returned key, which says that no tensor uses
// it any more. Operations on the tensor have read and written the memory when they return.
func TensorWrap(data Bytes, bytes int64, of DType, shape Ints, strides Ints, dims int64, offset int64, key int64, on Device) (status Tensor) {
	defer protect("from_numpy", &status)
	d := numbered(of)
	if !d.Valid() {
		return failf(core.DTypeError, "from_numpy", "%d is not the number of a dtype", of)
	}
	sizes, steps := handle.Ints(shape, dims), handle.Ints(strides, dims)
	if _, err := core.CheckShape("from_numpy", sizes, d); err != nil {
		return failure(err)
	}
	dev := device(on)
	if dev == nil || !dev.HostAccessible() {
		return failf(core.DeviceError, "from_numpy", "want a device that the host can address, got %d", on)
	}
	m := core.CurrentMode()
	st := core.WrapStorage(m.Context().Stream(dev), core.Memory{Ptr: handle.Pointer(data), Size: int(bytes)}.Shadowed(), func() { drop(key) })
	st.Share(1)
	t := core.WrapTensor(m, st, d, sizes, steps, int(offset))
	st.Release()
	return result(t)
}

// TensorWaitFor waits until the tensor's value, or the error that prevents it, is known, or nanoseconds are over. It
// returns 1 if it is known, 0 if not; with 0 nanoseconds it does not wait. A thread of a rank must go on waiting then.
//
//plait:waits
func TensorWaitFor(t Tensor, nanoseconds int64) (status Status) {
	defer protect("wait", &status)
	return truth(tensor(t).WaitOn(time.Duration(nanoseconds)))
}

// TensorReady returns 1 if the tensor's value, or the error that prevents it, is known, else 0. It does not wait.
func TensorReady(t Tensor) (status Status) {
	defer protect("wait", &status)
	return truth(tensor(t).WaitFor(0))
}

// TensorRead waits for the tensor's value and copies its elements, row-major, to out, which has room for exactly them.
//
//plait:waits
func TensorRead(t Tensor, out BytesOut, bytes int64) (status Status) {
	defer protect("read", &status)
	b, err := tensor(t).Bytes()
	if err != nil {
		return failure(err)
	}
	if int64(len(b)) != bytes {
		return failf(core.ValueError, "read", "the tensor has %d bytes, got room for %d", len(b), bytes)
	}
	copy(handle.Slice[byte](out, bytes), b)
	return 0
}

// TensorItem waits for the value of a tensor with one element and writes it to value.
//
//plait:waits
func TensorItem(t Tensor, value FloatsOut) (status Status) {
	defer protect("item", &status)
	v, err := tensor(t).Item()
	if err != nil {
		return failure(err)
	}
	handle.Slice[float64](value, 1)[0] = v
	return 0
}

// TensorPeek writes the value of a tensor with one element, if it is known and lies in the host's memory, and returns 1 for a
// floating-point number in parts, 2 for an integer and 3 for a bool in whole, 4 for a complex number in two parts, and 0
// otherwise, also where it cannot be read. It does not wait, and leaves errors to who does.
func TensorPeek(t Tensor, parts FloatsOut, whole IntsOut) (status Status) {
	defer protect("item", &status)
	x := tensor(t)
	if !known(x) || x.Numel() != 1 || x.DType() == core.Uint64 {
		return 0
	}
	var usual Status
	err := x.Look(func(b []byte) {
		at := unsafe.Pointer(&b[0])
		switch x.DType() {
		case core.Float32:
			handle.Slice[float64](parts, 1)[0], usual = float64(*(*float32)(at)), 1
		case core.Float64:
			handle.Slice[float64](parts, 1)[0], usual = *(*float64)(at), 1
		case core.Int64:
			handle.Slice[int64](whole, 1)[0], usual = *(*int64)(at), 2
		case core.Bool:
			handle.Slice[int64](whole, 1)[0], usual = int64(b[0]), 3
		}
	})
	if err != nil || usual != 0 {
		return usual
	}
	if x.DType().IsComplex() {
		v, err := x.Complex()
		if err != nil {
			return 0
		}
		out := handle.Slice[float64](parts, 2)
		out[0], out[1] = real(v), imag(v)
		return 4
	}
	if x.DType().IsFloat() {
		v, err := x.Item()
		if err != nil {
			return 0
		}
		handle.Slice[float64](parts, 1)[0] = v
		return 1
	}
	v, err := x.Int()
	if err != nil {
		return 0
	}
	handle.Slice[int64](whole, 1)[0] = v
	if x.DType() == core.Bool {
		return 3
	}
	return 2
}

// TensorPeekAll is [TensorPeek] for all elements of a contiguous tensor: it writes the dtype, the number of dimensions and the sizes to
// layout, which has room for 14, and the elements to out, and returns 1, or 0 where more than bytes would be needed.
func TensorPeekAll(t Tensor, layout IntsOut, out BytesOut, bytes int64) (status Status) {
	defer protect("tolist", &status)
	x := tensor(t)
	if !known(x) || !x.Contiguous() || int64(x.Numel()*x.DType().Size()) > bytes {
		return 0
	}
	b, err := x.Bytes()
	if err != nil {
		return 0
	}
	l := handle.Slice[int64](layout, int64(2+x.Dim()))
	l[0], l[1] = int64(x.DType()), int64(x.Dim())
	for i, n := range x.Shape() {
		l[2+i] = int64(n)
	}
	copy(handle.Slice[byte](out, int64(len(b))), b)
	return 1
}

// TensorsEqual returns 1 if two tensors of one shape have the same elements and 0 if not, where that is known at once, and -1
// otherwise: of tensors with many elements, of other dtypes than bool, int64, float32 and float64, and as for [TensorPeek].
func TensorsEqual(t, u Tensor) (status int64) {
	defer protect("equal", &status)
	x, y := tensor(t), tensor(u)
	if !known(x) || !known(y) || x.DType() != y.DType() || !slices.Equal(x.Shape(), y.Shape()) || !x.Contiguous() || !y.Contiguous() ||
		x.Numel() == 0 || x.Numel() > fewElements {
		return -1
	}
	status = -1
	err := x.Look(func(a []byte) {
		err := y.Look(func(b []byte) {
			switch x.DType() {
			case core.Bool, core.Int64:
				status = truth(bytes.Equal(a, b))
			case core.Float32:
				status = truth(slices.Equal(as[float32](a), as[float32](b)))
			case core.Float64:
				status = truth(slices.Equal(as[float64](a), as[float64](b)))
			}
		})
		if err != nil {
			status = -1
		}
	})
	if err != nil {
		return -1
	}
	return status
}

// as returns the elements that bytes are.
func as[T float32 | float64](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(T(0))))
}

// known reports whether the elements of a tensor can be read without a wait, an error or a copy from a device.
func known(x *core.Tensor) bool {
	if x.Parts() != nil || x.Usable("item") != nil || x.IsNumber() || !x.Device().HostAccessible() || !x.WaitFor(0) {
		return false
	}
	s, ok := x.Storage().Stream().(interface{ Failure() error })
	return ok && s.Failure() == nil && x.Storage().Err() == nil
}

// TensorComplex waits for the value of a tensor with one element and writes its real and imaginary part to parts.
//
//plait:waits
func TensorComplex(t Tensor, parts FloatsOut) (status Status) {
	defer protect("item", &status)
	x := tensor(t)
	defer using(x)()
	v, err := x.Complex()
	if err != nil {
		return failure(err)
	}
	out := handle.Slice[float64](parts, 2)
	out[0], out[1] = real(v), imag(v)
	return 0
}

// TensorInt waits for the value of a tensor with one element and writes it, as an integer, to value; of one of uint64 the bits.
//
//plait:waits
func TensorInt(t Tensor, value IntsOut) (status Status) {
	defer protect("item", &status)
	v, err := tensor(t).Int()
	if err != nil {
		return failure(err)
	}
	handle.Slice[int64](value, 1)[0] = v
	return 0
}

// TensorExport waits for the tensor's readers and writers and returns an object that keeps its memory for somebody
// outside: until it is released, operations that use it are done when they return.
//
//plait:waits
func TensorExport(t Tensor) (status Object) {
	defer protect("numpy", &status)
	v := tensor(t)
	defer using(v)()
	if err := v.Usable("numpy"); err != nil {
		return failure(err)
	}
	if v.IsNumber() || !v.Device().HostAccessible() {
		return failf(core.TypeError, "numpy", "the memory of %v cannot be shared; copy it to a CPU device first", v)
	}
	st := v.Storage()
	st.Lend(1)
	if err := st.Wait(); err != nil {
		st.Lend(-1)
		return failure(err)
	}
	st.Retain()
	return handle.AddObject(&export{st})
}

// TensorLayout writes where the elements of a tensor on the host are and how they lie: the address of the first one, the dtype, whether
// gradients flow to the tensor, and the number of dimensions, then their sizes and their strides in elements. layout has room for 28 numbers,
// those of the 12 dimensions that a tensor has at most.
func TensorLayout(t Tensor, layout IntsOut) (status Status) {
	defer protect("numpy", &status)
	v := tensor(t)
	if err := v.Usable("numpy"); err != nil {
		return failure(err)
	}
	grad, n := int64(0), v.Dim()
	if v.RequiresGrad() {
		grad = 1
	}
	out := handle.Slice[int64](layout, int64(4+2*n))
	out[0], out[1], out[2], out[3] = address(v), int64(v.DType()), grad, int64(n)
	for i, size := range v.Shape() {
		out[4+i] = int64(size)
	}
	for i, stride := range v.Strides() {
		out[4+n+i] = int64(stride)
	}
	return 0
}

// TensorLend is [TensorExport] and [TensorLayout] at once for a tensor with elements, which are known, and to which no gradients flow. For
// another it returns 0.
func TensorLend(t Tensor, layout IntsOut) (status Object) {
	defer protect("numpy", &status)
	v := tensor(t)
	if v.RequiresGrad() || !known(v) || v.Numel() == 0 {
		return 0
	}
	st := v.Storage()
	st.Lend(1)
	if !known(v) || TensorLayout(t, layout) != 0 { // another thread has launched something before the loan
		st.Lend(-1)
		return 0
	}
	st.Retain()
	return handle.AddObject(&export{st})
}

type export struct{ storage *core.Storage }

// Release ends the use of the memory from outside.
func (e *export) Release() {
	e.storage.Lend(-1)
	e.storage.Release()
}

func address(t *core.Tensor) int64 {
	if t.IsNumber() || !t.Device().HostAccessible() {
		return 0
	}
	p := unsafe.Add(t.Storage().Memory().Ptr, t.Offset()*t.DType().Size())
	return int64(uintptr(p))
}

// dropped are keys of the caller's values that are no longer used, until the caller asks for them.
var dropped struct {
	sync.Mutex
	keys []int64
	some atomic.Bool // whether there are keys
}

func drop(key int64) {
	dropped.Lock()
	dropped.keys = append(dropped.keys, key)
	dropped.some.Store(true)
	dropped.Unlock()
}

// Dropped writes up to room keys of values that are no longer used to keys and returns how many: those of memory given
// to [TensorWrap], and of functions given to [NodeAttach] and to hooks.
func Dropped(keys IntsOut, room int64) int64 {
	if !dropped.some.Load() {
		return 0
	}
	dropped.Lock()
	defer dropped.Unlock()
	n := copy(handle.Slice[int64](keys, room), dropped.keys)
	rest := copy(dropped.keys, dropped.keys[n:])
	dropped.keys = dropped.keys[:rest]
	dropped.some.Store(rest > 0)
	return int64(n)
}

// droppedEven returns the last of the keys of values that are no longer used, if it is even, else 0.
func droppedEven() int64 {
	if !dropped.some.Load() {
		return 0
	}
	dropped.Lock()
	defer dropped.Unlock()
	last := len(dropped.keys) - 1
	if last < 0 || dropped.keys[last]&1 != 0 {
		return 0
	}
	key := dropped.keys[last]
	dropped.keys = dropped.keys[:last]
	dropped.some.Store(last > 0)
	return key
}

// MemoryUsed writes to current and peak the bytes in use on a device. rank -1 means all ranks, category -1 all
// categories; see [TensorSetCategory].
func MemoryUsed(on Device, rank int64, category int64, current IntsOut, peak IntsOut) (status Status) {
	defer protect("memory", &status)
	d := device(on)
	if d == nil {
		return failf(core.DeviceError, "memory", "%d is not the number of an open device", on)
	}
	if category >= int64(len(core.Categories())) {
		return failf(core.ValueError, "memory", "want a category from -1 to %d, got %d", len(core.Categories())-1, category)
	}
	var u core.Usage
	switch {
	case rank < 0 && category < 0:
		u = core.MemoryUsage(d)
	case rank < 0:
		u = core.CategoryUsage(d, core.Category(category))
	case category < 0:
		u = core.RankUsage(d, int(rank))
	default:
		u = core.RankCategoryUsage(d, int(rank), core.Category(category))
	}
	handle.Slice[int64](current, 1)[0], handle.Slice[int64](peak, 1)[0] = int64(u.Current), int64(u.Peak)
	return 0
}

// MemoryReserved returns the bytes that a device holds from the system, caches included.
func MemoryReserved(on Device) int64 {
	if d := device(on); d != nil {
		return int64(d.Reserved())
	}
	return 0
}

// MemoryResetPeak makes the bytes in use now the peak.
func MemoryResetPeak(on Device) Status {
	if d := device(on); d != nil {
		core.ResetPeak(d)
	}
	return 0
}

// MemoryEmptyCache gives cached memory of a device back to the system.
//
//plait:waits
func MemoryEmptyCache(on Device) Status {
	if d := device(on); d != nil {
		d.EmptyCache()
	}
	return 0
}

// MemoryReclaim waits for all devices, and gives back what nothing uses any more: values that the garbage collector finds
// and caches. It is what to do before trying again after a memory error.
//
//plait:waits
func MemoryReclaim() (status Status) {
	defer protect("reclaim", &status)
	runtime.GC()
	for _, d := range core.OpenDevices() {
		if err := d.Synchronize(); err != nil {
			return failure(err)
		}
		d.EmptyCache()
	}
	return 0
}
