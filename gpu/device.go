package gpu

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/fusion"
	"github.com/plait-ml/plait/gpu/shader"
)

// Device is one open GPU.
type Device struct {
	*backend.Device
	adapter        adapter
	limits         driver.Limits
	target         shader.Device
	thread         *driverThread
	sync           bool // wait after each call
	memory         memory
	programs       programs
	fusions        fusion.Cache
	products       products
	staging        stagingPool
	pacing         pacing
	softwarePacing softwarePacing // of software adapters
	params         driver.Buffer
	links          links
	trace          *core.Trace // of calls that may use results of a call that reports a fault
	lost           backend.FirstError
	noGraph        backend.FirstError // why calls are replayed without a graph though the driver has graphs

	uploads, downloads, uploaded, downloaded, peerBytes, dispatches, submits, fused, moved atomic.Int64
}

// newDevice opens an adapter. Its error is the driver's.
func newDevice(index, ordinal int, a adapter) (*Device, error) {
	t, err := startDriverThread(a)
	if err != nil {
		return nil, err
	}
	if environment().sync {
		core.Synchronous()
	}
	d := &Device{
		Device: backend.NewNamedDevice("gpu", a.word(), index, ordinal), adapter: a, limits: t.gpu.Limits(), thread: t,
		sync: environment().sync,
	}
	Benchmark()
	d.target = shader.Device{
		Label: d.String(), Name: a.Name, Software: a.Software, Identity: fmt.Sprintf("%s, %s %04x:%04x", a.Name, a.Backend, a.Vendor, a.Device),
		Driver: driverOf(a), Stored: environment().tune != 0, Tuning: shader.DefaultTuning(a.Software), Benchmark: &benchmark,
		Language: t.gpu.Language(), Compute: a.ComputeCapability,
		Limits: shader.Limits{
			Binding: d.limits.Binding, Bindings: d.limits.Bindings, WorkgroupStorage: d.limits.WorkgroupStorage,
			Invocations: d.limits.Invocations, Workgroups: d.limits.Workgroups,
		},
	}
	d.target.Library = d.products.open(t.gpu)
	d.links.open(d)
	d.memory.open(d)
	d.programs.open(d)
	d.fusions.Open(!environment().fusion)
	t.do(func() {
		d.params, err = t.gpu.NewBuffer(driver.Uniform|driver.CopySource|driver.CopyTarget, paramsRoom, false)
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// HostAccessible implements [core.Device].
func (d *Device) HostAccessible() bool { return false }

// Supports implements [core.Device].
func (d *Device) Supports(k core.KernelID) bool { return kernel.Lookup(k) != nil }

// RowStride returns the best stride of rows of n elements in a matrix that matrix products read: a multiple of 16 bytes, so that rows can be
// loaded as vectors. Rows of less than 1024 elements are not padded.
func (d *Device) RowStride(t core.DType, n int) int {
	if !t.IsFloat() || t == core.Float64 || n < 1024 {
		return n
	}
	each := 16 / t.Size()
	return shader.Ceil(n, each) * each
}

// MixesDTypes reports that kernels take operands of different floating-point dtypes.
func (d *Device) MixesDTypes() bool { return true }

// Float64 reports whether programs can compute in float64.
func (d *Device) Float64() bool { return d.target.Doubles() }

// GraphError returns why the driver has refused to make a graph; nil if it has not.
func (d *Device) GraphError() error { return d.noGraph.Get() }

// Name returns the adapter's name.
func (d *Device) Name() string { return d.adapter.Name }

// Adapter returns what is known of the GPU.
func (d *Device) Adapter() driver.Adapter { return d.adapter.Adapter }

// Driver returns the name of the driver that runs the GPU, "cuda" or "webgpu".
func (d *Device) Driver() string { return d.adapter.driver.Name() }

// DriverReason returns why the other driver does not run the GPU, as in "cuda: libcuda.so.1 is not installed".
func (d *Device) DriverReason() string { return d.adapter.reason }

// Software reports whether the adapter computes on the CPU.
func (d *Device) Software() bool { return d.adapter.Software }

// Limits returns the adapter's limits.
func (d *Device) Limits() driver.Limits { return d.limits }

// MemoryLimit returns how many bytes the device may hold; 0 means that only the driver limits it.
func (d *Device) MemoryLimit() int { return d.memory.limit }

// Traffic counts what a device has transferred and run since it was opened.
type Traffic struct {
	Uploads, Downloads           int // transfers between the host and the device
	UploadedBytes, DownloadBytes int
	PeerBytes                    int // bytes of other GPUs' memory that its calls have read and written
	Dispatches, Submits          int // dispatches, and the batches that they were submitted in
	Fused                        int // calls that ran as part of another call's kernel
	MovedBytes                   int // of the tensors that kernels read and wrote, once for each kernel; scratch memory does not count
}

// Traffic returns the device's counters.
func (d *Device) Traffic() Traffic {
	return Traffic{
		int(d.uploads.Load()), int(d.downloads.Load()), int(d.uploaded.Load()), int(d.downloaded.Load()), int(d.peerBytes.Load()),
		int(d.dispatches.Load()), int(d.submits.Load()), int(d.fused.Load()), int(d.moved.Load()),
	}
}

// Reserved implements [core.Device].
func (d *Device) Reserved() int { return int(d.memory.reserved.Load()) }

// NewStream implements [core.Device].
func (d *Device) NewStream(rank int) core.Stream { return newStream(d, rank) }

// EmptyCache implements [core.Device].
func (d *Device) EmptyCache() {
	for _, s := range d.Streams() {
		s.Cache.Empty(s.Done.Load())
	}
	d.memory.trim()
	d.staging.empty(d)
}

// lose makes err the error of every later call: a lost device does not recover.
func (d *Device) lose(err error) {
	if err == nil {
		err = errors.New("the driver gives no reason")
	}
	err = core.Errorf(core.DeviceError, "gpu", "%v (%s) is lost: %v; start the process again", d, d.Name(), err)
	d.lost.Set(err)
}

// driverOf returns the driver's version if the system knows it. Software adapters have it in their names.
func driverOf(a adapter) string {
	if a.Vendor != nvidia {
		return ""
	}
	v, _ := os.ReadFile("/sys/module/nvidia/version")
	return strings.TrimSpace(string(v))
}
