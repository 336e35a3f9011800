package bind

import (
	"path/filepath"
	"strconv"
	"time"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/core/meta"
	"github.com/plait-ml/plait/gpu"
)

// DeviceOpen returns the number of the device with the given name, such as "cpu:1", and opens it at its first use. "cuda:0" is "gpu:0".
//
//plait:waits
func DeviceOpen(name string) (status Device) {
	defer protect("device", &status)
	d, err := core.OpenDevice(name)
	if err != nil {
		return failure(err)
	}
	return int64(d.Ordinal())
}

// DeviceOpenCount returns how many devices are open; their numbers count from 0.
func DeviceOpenCount() int64 { return int64(len(core.OpenDevices())) }

// DeviceName returns the name of an open device; nothing for another number.
func DeviceName(d Device) string {
	if v := device(d); v != nil {
		return v.String()
	}
	return ""
}

// DeviceDescription returns what an open device is, such as a GPU's name; nothing for devices that are just what their name
// says, and for another number.
func DeviceDescription(d Device) string {
	if g, ok := device(d).(*gpu.Device); ok {
		return g.Name()
	}
	return ""
}

// DeviceDriver returns the name of the driver that runs an open GPU, "cuda" or "webgpu"; nothing for other devices and numbers.
func DeviceDriver(d Device) string {
	if g, ok := device(d).(*gpu.Device); ok {
		return g.Driver()
	}
	return ""
}

// DeviceDriverReason returns why the other driver does not run an open GPU, as in "cuda: libcuda.so.1 is not installed"; nothing for
// other devices and numbers.
func DeviceDriverReason(d Device) string {
	if g, ok := device(d).(*gpu.Device); ok {
		return g.DriverReason()
	}
	return ""
}

// DeviceDriverOf returns the name of the driver of the GPU with an index, "cuda" or "webgpu", which need not be open. It lists no GPUs:
// it returns nothing before DeviceCount or DeviceOpen has listed them, and for an index that none has.
func DeviceDriverOf(index int64) string { return gpu.DriverOf(int(index)) }

// DeviceLibraryFolders gives the folders, separated by colons, in which CUDA's libraries are looked for before the system's. It is called
// before GPUs are listed.
func DeviceLibraryFolders(list string) Status {
	gpu.SetLibraryFolders(filepath.SplitList(list))
	return 0
}

// DevicesLeave makes every open GPU count as lost and waits until their drivers have done what they were given, ten seconds at
// most; it returns 1 if they have, else 0. A program with GPUs calls it before it calls exit or returns from main: a driver that is
// at work then may crash.
//
//plait:waits
func DevicesLeave() Status {
	if gpu.Shutdown() {
		return 1
	}
	return 0
}

// DeviceTraffic returns a counter of an open device since it was opened: 0 transfers to it, 1 from it, 2 and 3 their bytes, 4
// the kernels run, 5 the batches in which they were submitted and 6 the calls that another one's kernel ran. CPU devices count none of these.
func DeviceTraffic(d Device, counter int64) int64 {
	g, ok := device(d).(*gpu.Device)
	if !ok {
		return 0
	}
	t := g.Traffic()
	counters := [...]int{t.Uploads, t.Downloads, t.UploadedBytes, t.DownloadBytes, t.Dispatches, t.Submits, t.Fused}
	if counter < 0 || counter >= int64(len(counters)) {
		return 0
	}
	return int64(counters[counter])
}

// DeviceBenchmark returns 1 if GPUs measure which way of computing a matrix product is the fastest, else 0.
func DeviceBenchmark() int64 { return truth(gpu.Benchmark()) }

// DeviceBenchmarkSet turns the measuring on or off, and returns what it was before.
func DeviceBenchmarkSet(on bool) int64 {
	before := gpu.Benchmark()
	gpu.SetBenchmark(on)
	return truth(before)
}

// DeviceLibraryMissing returns which library is missing, without which an open GPU computes matrix products by kernels of its own;
// nothing where none is missing.
func DeviceLibraryMissing(d Device) string {
	if g, ok := device(d).(*gpu.Device); ok && g.MissingLibrary() != nil {
		return g.MissingLibrary().Error()
	}
	return ""
}

// PrecisionPermitted returns 1 if operations may compute products less precisely, else 0: 0 float32 matrix products in TF32, 1
// convolutions in TF32, 2 partial sums of float16 products in float16, 3 those of bfloat16 products in bfloat16.
func PrecisionPermitted(permission int64) int64 {
	if permission < 0 || permission > int64(core.BFloat16Sums) {
		return 0
	}
	return truth(core.Permitted(core.Permission(permission)))
}

// PrecisionPermit turns one of these permissions on or off for later calls, and returns what it was before.
func PrecisionPermit(permission int64, on bool) int64 {
	if permission < 0 || permission > int64(core.BFloat16Sums) {
		return 0
	}
	return truth(core.Permit(core.Permission(permission), on))
}

// DeviceLimit returns one of the limits of an open GPU: 0 the bytes of a tensor, 1 those of a workgroup's memory, 2 the invocations
// of a workgroup, 3 the workgroups along a side of a grid, 4 the bytes that the device may hold, 0 of them meaning what the driver
// gives; 5 is 1 where the GPU is made of software. What else is known of a GPU, 0 where it is not: 6 the bytes of its memory, 7 its
// multiprocessors, 8 and 9 the major and the minor number of its compute capability. CPU devices have none of these.
func DeviceLimit(d Device, limit int64) int64 {
	g, ok := device(d).(*gpu.Device)
	if !ok {
		return 0
	}
	l := g.Limits()
	software := 0
	if g.Software() {
		software = 1
	}
	a := g.Adapter()
	limits := [...]int{
		l.Binding, l.WorkgroupStorage, l.Invocations, l.Workgroups, g.MemoryLimit(), software,
		a.Memory, a.Multiprocessors, a.ComputeCapability / 10, a.ComputeCapability % 10,
	}
	if limit < 0 || limit >= int64(len(limits)) {
		return 0
	}
	return int64(limits[limit])
}

// DeviceCount returns how many devices of a kind, such as "cpu", can be opened.
func DeviceCount(kind string) int64 { return int64(core.DeviceCount(kind)) }

// DeviceDefault returns the number of the calling thread's default device.
func DeviceDefault() (status Device) {
	defer protect("get_default_device", &status)
	d, err := core.CurrentContext().DefaultDevice()
	if err != nil {
		return failure(err)
	}
	return int64(d.Ordinal())
}

// DeviceSetDefault sets the calling rank's default device; -1 means cpu:0.
func DeviceSetDefault(d Device) Status {
	if d >= 0 && device(d) == nil {
		return failf(core.DeviceError, "set_default_device", "%d is not the number of an open device", d)
	}
	core.CurrentContext().SetDefaultDevice(device(d))
	return 0
}

// DeviceSynchronize waits until a device has done what was launched, in a rank what the rank launched, and returns the first error
// that nobody has read. -1 means all devices.
//
//plait:waits
func DeviceSynchronize(d Device) (status Status) {
	defer protect("synchronize", &status)
	if d < 0 {
		return failure(core.Synchronize())
	}
	v := device(d)
	if v == nil {
		return failf(core.DeviceError, "synchronize", "%d is not the number of an open device", d)
	}
	return failure(v.Synchronize())
}

// DtypeDefault returns the number of the dtype of new floating-point tensors.
func DtypeDefault() DType { return int64(core.CurrentContext().DefaultDType()) }

// DtypeSetDefault sets the dtype of new floating-point tensors of the calling rank.
func DtypeSetDefault(d DType) Status {
	return failure(core.CurrentContext().SetDefaultDType(numbered(d)))
}

// DtypeName returns the name of a dtype, such as "float32", and nothing for a number that is none's: they count from 0.
func DtypeName(d DType) string {
	if v := numbered(d); v.Valid() {
		return v.String()
	}
	return ""
}

// DtypeSize returns the bytes of an element; 0 for a number that is no dtype's.
func DtypeSize(d DType) int64 {
	if v := numbered(d); v.Valid() {
		return int64(v.Size())
	}
	return 0
}

// ThreadsGet returns how many threads the CPU devices share.
func ThreadsGet() int64 { return int64(cpu.NumThreads()) }

// ThreadsSet sets how many threads the CPU devices share.
//
//plait:waits
func ThreadsSet(n int64) Status { return failure(cpu.SetNumThreads(int(n))) }

// CpuMemoryLimit returns the bytes that all CPU devices may hold together.
func CpuMemoryLimit() int64 { return int64(cpu.MemoryLimit()) }

// CpuSetMemoryLimit sets the bytes that all CPU devices may hold together.
func CpuSetMemoryLimit(bytes int64) Status {
	cpu.SetMemoryLimit(int(bytes))
	return 0
}

// EventRecord returns an object that stands for all that was launched so far on the calling thread's current stream of a
// device.
func EventRecord(on Device) (status Object) {
	defer protect("event", &status)
	d := device(on)
	if d == nil {
		return failf(core.DeviceError, "event", "%d is not the number of an open device", on)
	}
	return handle.AddObject(core.CurrentContext().Stream(d).Record())
}

// EventDone returns 1 if the event has passed, 0 if not.
func EventDone(event Object) Status {
	e, ok := handle.Object[core.Event](event)
	if !ok {
		return failf(core.TypeError, "event", "%d is not the handle of an event", event)
	}
	return truth(e.Done())
}

// EventWait waits until the event has passed.
//
//plait:waits
func EventWait(event Object) (status Status) {
	defer protect("event", &status)
	e, ok := handle.Object[core.Event](event)
	if !ok {
		return failf(core.TypeError, "event", "%d is not the handle of an event", event)
	}
	e.Wait()
	return 0
}

// EventWaitFor waits until the event has passed, at most for the given nanoseconds, and returns 1 if it has passed, 0 if not. On a rank's main
// thread the wait counts in the detection of deadlocks: if all ranks wait, and the event needs a collective that another rank has not called,
// that collective fails.
//
//plait:waits
func EventWaitFor(event Object, nanoseconds int64) (status Status) {
	defer protect("event", &status)
	e, ok := handle.Object[core.Event](event)
	if !ok {
		return failf(core.TypeError, "event", "%d is not the handle of an event", event)
	}
	return truth(core.WaitOn(e, time.Duration(nanoseconds)))
}

// StreamWait makes what is launched from now on, on the calling thread's current stream of a device, wait for the event.
func StreamWait(on Device, event Object) (status Status) {
	defer protect("stream", &status)
	e, ok := handle.Object[core.Event](event)
	d := device(on)
	if !ok || d == nil {
		return failf(core.TypeError, "stream", "want an open device and an event, got %d and %d", on, event)
	}
	core.CurrentContext().Stream(d).Wait(e)
	return 0
}

// ObjectRelease ends the life of an object's handle.
func ObjectRelease(h Object) Status {
	p := handle.Objects.Take(h)
	if p == nil {
		return 0
	}
	switch v := (*p).(type) {
	case interface{ Close() }:
		v.Close()
	case interface{ Release() }:
		v.Release()
	case []*core.Tensor:
		for _, t := range v {
			t.Release()
		}
	}
	return 0
}

// ObjectCount returns how many objects and errors have handles.
func ObjectCount() int64 { return handle.Objects.Len() + handle.Errors() }

// TensorMetaDigest returns a text that is the same for tensors of the meta device that [TensorMaterialize] gives the same values; it is empty for
// other tensors.
//
//plait:waits
func TensorMetaDigest(t Tensor) string {
	x := tensorOrNil(t)
	if x == nil || x.Device() == nil || x.Device().String() != core.MetaKind {
		return ""
	}
	defer using(x)()
	digest, err := meta.Digest(x)
	if err != nil {
		return err.Error()
	}
	return strconv.FormatUint(digest, 16)
}

// TensorMaterialize returns a tensor on a device, -1 meaning the rank's own, with the values that a tensor of the meta device
// would have.
//
//plait:waits
func TensorMaterialize(t Tensor, d Device) (status Tensor) {
	defer protect("materialize", &status)
	defer using(tensor(t))()
	dev := device(d)
	if dev == nil {
		var err error
		if dev, err = core.CurrentContext().Home(); err != nil {
			return failure(err)
		}
	}
	return result(meta.Materialize(tensor(t), dev))
}
