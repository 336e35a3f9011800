package bind

import (
	"math"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/stretchr/testify/require"
)

// at returns the address of values, which stay where they are until the test ends.
func at[T any](t *testing.T, values []T) int64 {
	t.Helper()
	var pin runtime.Pinner
	pin.Pin(unsafe.SliceData(values))
	t.Cleanup(pin.Unpin)
	return int64(uintptr(unsafe.Pointer(unsafe.SliceData(values))))
}

// from returns the handle of a float32 tensor with the given elements, which is released when the test ends.
func from(t *testing.T, values []float32, shape ...int64) Tensor {
	t.Helper()
	h := TensorFromMemory(at(t, values), int64(4*len(values)), int64(core.Float32), at(t, shape), int64(len(shape)), -1)
	return good(t, h)
}

// good returns a handle, released when the test ends, and ends the test at an error.
func good(t *testing.T, h Tensor) Tensor {
	t.Helper()
	ok(t, h)
	t.Cleanup(func() { TensorRelease(h) })
	return h
}

// ok returns a status and ends the test at an error.
func ok(t *testing.T, status Status) Status {
	t.Helper()
	if status < 0 {
		t.Fatal(ErrorMessage(status))
	}
	return status
}

// bad requires that status names an error of a kind, releases it and returns its message.
func bad(t *testing.T, kind core.Kind, status Status) string {
	t.Helper()
	require.Less(t, status, int64(Busy))
	message := ErrorMessage(status)
	require.EqualValues(t, kind, ErrorKind(status), message)
	ErrorRelease(status)
	require.Equal(t, "unknown error", ErrorMessage(status))
	return message
}

func read(t *testing.T, h Tensor, n int) []float32 {
	t.Helper()
	out := make([]float32, n)
	ok(t, TensorRead(h, at(t, out), int64(4*n)))
	return out
}

func TestHandlesOfResults(t *testing.T) {
	tensors, objects := TensorCount(), ObjectCount()
	t.Run("", func(t *testing.T) {
		a := from(t, []float32{1, 2, 3, 4}, 2, 2)
		sum := good(t, Add(a, intNumber, 1))
		require.Equal(t, []float32{2, 3, 4, 5}, read(t, sum, 4))
		same := good(t, Contiguous(a))
		require.NotEqual(t, a, same, "each handle is released on its own")
		TensorRelease(same)
		require.Equal(t, []float32{1, 2, 3, 4}, read(t, a, 4))

		list := ok(t, Unbind(a, 0))
		require.EqualValues(t, 2, ListLen(list))
		rows := make([]int64, 2)
		ok(t, ListTake(list, at(t, rows)))
		require.Equal(t, []float32{3, 4}, read(t, good(t, rows[1]), 2))
		good(t, rows[0])
		bad(t, core.TypeError, ListTake(list, at(t, rows)))
		require.Zero(t, ListLen(list))

		unused := ok(t, Unbind(a, 1))
		ok(t, ObjectRelease(unused))
		ok(t, ObjectRelease(unused))
	})
	require.Equal(t, tensors, TensorCount())
	require.Equal(t, objects, ObjectCount())
}

func TestErrors(t *testing.T) {
	tensors, objects := TensorCount(), ObjectCount()
	t.Run("", func(t *testing.T) {
		a := from(t, make([]float32, 6), 2, 3)
		require.Contains(t, bad(t, core.ShapeError, Matmul(a, a)), "matmul: ")
		bad(t, core.IndexError, Cumsum(a, 2, -1))
		bad(t, core.ShapeError, AddInPlace(a, from(t, make([]float32, 5), 5), 0))
		out := []int64{7, 7}
		bad(t, core.IndexError, Max(a, 2, false, at(t, out)))
		require.Equal(t, []int64{7, 7}, out, "a failed function writes nothing")
		require.Contains(t, bad(t, core.ValueError, TensorRead(a, at(t, out), 8)), "24 bytes")
		bad(t, core.ShapeError, TensorFromMemory(at(t, out), 16, int64(core.Float32), at(t, []int64{3}), 1, -1))
		bad(t, core.DTypeError, TensorFromMemory(at(t, out), 16, 99, at(t, []int64{4}), 1, -1))
		bad(t, core.ShapeError, TensorFromMemory(at(t, out), 16, int64(core.Float32), at(t, []int64{-4}), 1, -1))

		released := from(t, []float32{1}, 1)
		ok(t, TensorRelease(released))
		ok(t, TensorRelease(released))
		require.Contains(t, bad(t, core.TypeError, Add(released, a, 0)), "was it released?")
		generator := ok(t, GeneratorNew(1))
		bad(t, core.TypeError, Add(generator, a, 0))
		ok(t, TensorRelease(generator))
		ok(t, GeneratorSeed(generator, 2))
		ok(t, ObjectRelease(generator))
		bad(t, core.TypeError, GeneratorSeed(generator, 2))
	})
	require.Equal(t, tensors, TensorCount())
	require.Equal(t, objects, ObjectCount())
	require.Equal(t, "unknown error", ErrorMessage(-5))
	ok(t, ErrorRelease(-5))
	ok(t, ErrorRelease(math.MinInt64))
}

// What is no handle, and no number of a dtype or of a device, is an error or an answer, and never a panic.
func TestNothingThatIsNoHandlePanics(t *testing.T) {
	objects, tensors := ObjectCount(), TensorCount()
	out, size := at(t, make([]int64, 16)), at(t, []int64{2})
	wrong := []int64{0, 1, -1, -2, -3, -4, 12345, math.MaxInt64, math.MinInt64}
	for _, h := range wrong {
		for name, f := range map[string]func() int64{
			"tensor_dim": func() int64 { return TensorDim(h) }, "shape": func() int64 { return TensorShape(h, out) },
			"strides": func() int64 { return TensorStrides(h, out) }, "offset": func() int64 { return TensorOffset(h) },
			"dtype": func() int64 { return TensorDtype(h) }, "device": func() int64 { return TensorDevice(h) },
			"contiguous": func() int64 { return TensorIsContiguous(h) }, "version": func() int64 { return TensorVersion(h) },
			"address": func() int64 { return TensorAddress(h) }, "bytes": func() int64 { return TensorStorageBytes(h) },
			"category": func() int64 { return TensorSetCategory(h, 0) }, "alias": func() int64 { return TensorAlias(h) },
			"detach": func() int64 { return TensorDetach(h) }, "to": func() int64 { return TensorToDevice(h, 0, false) },
			"ready": func() int64 { return TensorReady(h) }, "wait": func() int64 { return TensorWaitFor(h, 1) },
			"read": func() int64 { return TensorRead(h, out, 8) }, "item": func() int64 { return TensorItem(h, out) },
			"int": func() int64 { return TensorInt(h, out) }, "export": func() int64 { return TensorExport(h) },
			"layout":        func() int64 { return TensorLayout(h, at(t, make([]int64, 28))) },
			"requires_grad": func() int64 { return RequiresGrad(h) }, "set": func() int64 { return RequiresGradSet(h, true) },
			"is_leaf": func() int64 { return IsLeaf(h) }, "retain_grad": func() int64 { return RetainGrad(h) },
			"grad": func() int64 { return GradGet(h) }, "grad_set": func() int64 { return GradReplace(h, h) },
			"grad_node": func() int64 { return GradNode(h) }, "hook": func() int64 { return HookAdd(h, 1) },
			"hook_post": func() int64 { return HookAddPost(h, 1) }, "hook_remove": func() int64 { return HookRemove(h) },
			"backward_step": func() int64 { return BackwardStep(h) }, "key": func() int64 { return BackwardKey(h) },
			"grads": func() int64 { return BackwardGrads(h, out) }, "answer": func() int64 { return BackwardAnswer(h, 0, 0) },
			"take": func() int64 { return BackwardTake(h, out) }, "count": func() int64 { return BackwardGradCount(h) },
			"dtype_size": func() int64 { return DtypeSize(h) }, "dtype_name": func() int64 { return int64(len(DtypeName(h))) },
			"promote": func() int64 { return PromoteDtypes(h, h) }, "device_name": func() int64 { return int64(len(DeviceName(h))) },
			"event": func() int64 { return EventRecord(h) }, "event_wait": func() int64 { return EventWait(h) },
			"event_done": func() int64 { return EventDone(h) }, "stream_wait": func() int64 { return StreamWait(h, h) },
			"list": func() int64 { return ListTake(h, out) }, "used": func() int64 { return MemoryUsed(0, h, h, out, out+8) },
			"cumsum": func() int64 { return Cumsum(h, 0, h) }, "relu_": func() int64 { return ReluInPlace(h) },
			"zeros": func() int64 { return Zeros(size, 1, h, -1, false) }, "on": func() int64 { return Zeros(size, 1, -1, h, false) }, "state": func() int64 { return GeneratorState(h, out) },
			"fork": func() int64 { return GeneratorFork(h, 1) }, "index": func() int64 { return IndexGet(h, out, 1) },
			"index_set": func() int64 { return IndexSet(h, h, 0, out, 1) }, "dtype_default": func() int64 { return DtypeSetDefault(h + 1000) },
			"device_default": func() int64 { return DeviceSetDefault(max(h, 50)) },
		} {
			var status int64
			require.NotPanics(t, func() { status = f() }, "%s(%d)", name, h)
			if status < Busy && handle.Error(status) != nil {
				require.NotContains(t, ErrorMessage(status), "internal error", "%s(%d)", name, h)
				ErrorRelease(status)
			} else if status > 0 {
				TensorRelease(status)
				ObjectRelease(status)
			}
		}
	}
	require.Equal(t, tensors, TensorCount())
	require.Equal(t, objects, ObjectCount())
}

// A panic inside a function becomes the function's status.
func TestPanicsBecomeErrors(t *testing.T) {
	panics := func(v any) (status Status) {
		defer protect("name", &status)
		panic(v)
	}
	message := bad(t, core.StateError, panics("reason"))
	require.Contains(t, message, "name: internal error: reason")
	require.Contains(t, message, "bind_test.go", "the message has no stack")
	require.Equal(t, "name: 3", bad(t, core.IndexError, panics(core.Errorf(core.IndexError, "name", "3"))))
	var none *core.Tensor
	bad(t, core.StateError, func() (status Status) {
		defer protect("name", &status)
		return int64(none.Dim())
	}())
}

// An event that passes when the test says so.
type gate struct {
	core.Event
	open chan struct{}
}

func (g gate) Stream() core.Stream { return nil }
func (g gate) Wait()               { <-g.open }
func (g gate) Done() bool {
	select {
	case <-g.open:
		return true
	default:
		return false
	}
}

func (g gate) WaitFor(d time.Duration) bool {
	select {
	case <-g.open:
		return true
	case <-time.After(d):
		return false
	}
}

// While a queue is nearly full, functions that keep a lock do nothing and say so; after WaitForQueueSpace they work.
func TestBusy(t *testing.T) {
	device := ok(t, DeviceOpen("cpu:0"))
	x := from(t, []float32{0}, 1)
	g := gate{open: make(chan struct{})}
	event := handle.AddObject(core.Event(g))
	ok(t, StreamWait(device, event))

	done := 0
	var status Status
	for status == 0 {
		status = AddInPlace(x, intNumber, 1)
		if status == 0 {
			done++
		}
		require.Less(t, done, 1_000_000, "the queue never fills")
	}
	require.EqualValues(t, Busy, status)
	require.EqualValues(t, Busy, Add(x, x, 0))
	require.EqualValues(t, Busy, Unbind(x, 0))
	require.EqualValues(t, Busy, IndexGet(x, 0, 0))
	require.Zero(t, TensorReady(x))
	require.Zero(t, TensorWaitFor(x, 1))

	made := make(chan Status)
	go func() { made <- WaitForQueueSpace() }()
	close(g.open)
	ok(t, <-made)
	ok(t, AddInPlace(x, intNumber, 1))
	require.Equal(t, []float32{float32(done + 1)}, read(t, x, 1), "a busy function did something")
	ok(t, ObjectRelease(event))
}

// A backward pass hands gradients out, asks for the answers of hooks, and ends.
func TestBackward(t *testing.T) {
	objects, tensors := ObjectCount(), TensorCount()
	t.Run("", func(t *testing.T) {
		x := from(t, []float32{1, 2, 3}, 3)
		ok(t, RequiresGradSet(x, true))
		hook := ok(t, HookAdd(x, 77))
		y := good(t, Sum(good(t, Mul(x, x, 0)), 0, -1, false, -1))
		outputs := []int64{y}
		pass := ok(t, BackwardNew(at(t, outputs), 0, 1, 0, -1, false, false))
		require.EqualValues(t, 2, ok(t, BackwardStep(pass)), "the hook's turn")
		require.EqualValues(t, 77, BackwardKey(pass))
		require.EqualValues(t, 1, BackwardGradCount(pass))
		grads := []int64{0}
		ok(t, BackwardGrads(pass, at(t, grads)))
		require.Equal(t, []float32{2, 4, 6}, read(t, good(t, grads[0]), 3))
		answer := []int64{good(t, Mul(grads[0], floatNumber, 10))}
		ok(t, BackwardAnswer(pass, at(t, answer), 1))
		require.Zero(t, ok(t, BackwardStep(pass)))
		ok(t, ObjectRelease(pass))
		require.Equal(t, []float32{20, 40, 60}, read(t, good(t, GradGet(x)), 3))
		ok(t, HookRemove(hook))
		keys := []int64{0}
		require.EqualValues(t, 1, Dropped(at(t, keys), 1))
		require.EqualValues(t, 77, keys[0])

		again := ok(t, BackwardNew(at(t, outputs), 0, 1, 0, -1, false, false))
		require.Contains(t, bad(t, core.StateError, BackwardStep(again)), "retain_graph")
		ok(t, ObjectRelease(again))
		ok(t, GradReplace(x, 0))
		require.Zero(t, GradGet(x))
	})
	require.Equal(t, tensors, TensorCount())
	require.Equal(t, objects, ObjectCount())
}

// Memory of the caller's is used in place, and its key comes back when no tensor uses it any more.
func TestWrap(t *testing.T) {
	values := []float32{1, 2, 3, 4, 5, 6}
	shape, strides, keys := []int64{2, 2}, []int64{1, 2}, []int64{0}
	x := ok(t, TensorWrap(at(t, values), 24, int64(core.Float32), at(t, shape), at(t, strides), 2, 1, 5, ok(t, DeviceOpen("cpu:0"))))
	require.Equal(t, []float32{2, 4, 3, 5}, read(t, x, 4))
	ok(t, MulInPlace(x, intNumber, 10))
	require.Equal(t, []float32{1, 20, 30, 40, 50, 6}, values)
	view := ok(t, TensorAlias(x))
	ok(t, TensorRelease(x))
	require.Zero(t, Dropped(at(t, keys), 1))
	ok(t, TensorRelease(view))
	require.Eventually(t, func() bool { return Dropped(at(t, keys), 1) == 1 }, time.Minute, time.Millisecond)
	require.EqualValues(t, 5, keys[0])
}
