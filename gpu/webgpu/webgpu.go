//go:build cgo && ((linux && amd64) || darwin)

// Package webgpu is the driver for GPUs with Vulkan or Metal. It wraps wgpu-native in a C shim, and is the only package that depends on the
// version of that library. The library is linked statically from the module cogentcore/webgpu; it loads the system's Vulkan loader when
// adapters are first listed.
//
// A [driver.GPU] of this package is used by one goroutine at a time.
package webgpu

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#cgo linux,amd64 LDFLAGS: -Wl,--wrap=dlsym
#cgo noescape plaitk_gpu_submit
#cgo nocallback plaitk_gpu_submit
#cgo nocallback plaitk_gpu_poll
#cgo noescape plaitk_gpu_group
#cgo nocallback plaitk_gpu_group
#include <stdlib.h>
#include <unistd.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"runtime"
	"time"
	"unsafe"

	_ "github.com/cogentcore/webgpu/wgpu" // links wgpu-native

	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/shader"
)

// Driver is the driver for WebGPU.
var Driver driver.Driver = webGPU{}

type webGPU struct{}

// Name implements [driver.Driver].
func (webGPU) Name() string { return "webgpu" }

// Missing implements [driver.Driver].
func (webGPU) Missing() string {
	if name, found := loader(); !found {
		return "the Vulkan loader, " + name + ", is not installed"
	}
	return ""
}

// idleBatch is how many commands are worth a submission to an idle GPU: it costs about as much as recording ten of them.
const idleBatch = 16

// maxAdapters is how many adapters are listed at most.
const maxAdapters = 64

// loader returns the name of the library that finds GPU drivers, and whether it is installed.
func loader() (name string, found bool) {
	if runtime.GOOS == "darwin" {
		return "Metal", true // Metal is part of the system
	}
	return "libvulkan.so.1", C.plaitk_gpu_loader() != 0
}

// Adapters implements [driver.Driver]. It lists the adapters of Vulkan or Metal; each GPU occurs once.
func (webGPU) Adapters() []driver.Adapter {
	var raw [maxAdapters]C.plaitk_gpu_adapter
	n := min(int(C.plaitk_gpu_adapters(&raw[0], maxAdapters)), maxAdapters)
	out := make([]driver.Adapter, n)
	for i := range out {
		a := &raw[i]
		backend := "unknown"
		switch a.backend {
		case C.WGPU_BACKEND_VULKAN:
			backend = "Vulkan"
		case C.WGPU_BACKEND_METAL:
			backend = "Metal"
		}
		out[i] = driver.Adapter{
			Index: i, Name: C.GoString(&a.name[0]), Backend: backend,
			Software: a._type == C.WGPU_ADAPTER_CPU, Discrete: a._type == C.WGPU_ADAPTER_DISCRETE,
			Vendor: uint32(a.vendor), Device: uint32(a.device),
		}
	}
	if runtime.GOOS != "darwin" && len(out) > 0 {
		identify(out, vulkanDevices())
	}
	return out
}

// A device is an open GPU.
type device struct {
	g       *C.plaitk_gpu
	limits  driver.Limits
	layouts map[int]*layout // by number of buffers
}

// Open implements [driver.Driver]. The device gets all limits of its adapter.
func (webGPU) Open(index int) (driver.GPU, error) {
	text := (*C.char)(C.calloc(1, C.PLAITK_GPU_TEXT))
	defer C.free(unsafe.Pointer(text))
	g := C.plaitk_gpu_open(C.int(index), text)
	if g == nil {
		return nil, errors.New(C.GoString(text))
	}
	l := &g.limits
	return &device{g, driver.Limits{
		Buffer: int(l.buffer), Binding: int(l.storage_binding), Bindings: int(l.storage_buffers),
		UniformAlignment: int(l.uniform_alignment), UniformBinding: int(l.uniform_binding),
		MappablePrimary: g.both_ways != 0, IdleBatch: idleBatch, WorkgroupStorage: int(l.workgroup_storage), Invocations: int(l.workgroup_invocations), Workgroups: int(l.workgroups),
	}, map[int]*layout{}}, nil
}

// Limits implements [driver.GPU].
func (g *device) Limits() driver.Limits { return g.limits }

// Close implements [driver.GPU].
func (g *device) Close() {
	for _, l := range g.layouts {
		C.wgpuPipelineLayoutRelease(l.pipeline)
		C.wgpuBindGroupLayoutRelease(l.group)
	}
	C.plaitk_gpu_close(g.g)
}

// TakeError implements [driver.GPU].
func (g *device) TakeError() error {
	if g.g.failed == 0 {
		return nil
	}
	g.g.failed = 0
	return errors.New(C.GoString(&g.g.error[0]))
}

// Lost implements [driver.GPU].
func (g *device) Lost() bool { return g.g.lost != 0 }

// Shutdown implements [driver.Driver].
func (webGPU) Shutdown() bool { return C.plaitk_gpu_leave() != 0 }

// Lose implements [driver.GPU].
func (g *device) Lose(reason string) {
	text := C.CString(reason)
	defer C.free(unsafe.Pointer(text))
	C.plaitk_gpu_lose(g.g, text)
}

// Poll implements [driver.GPU].
func (g *device) Poll() { C.plaitk_gpu_poll(g.g) }

// Pause implements [driver.GPU].
func (g *device) Pause(d time.Duration) { C.usleep(C.useconds_t(d.Microseconds())) }

// A status is a word that wgpu-native's callback sets when an operation ends.
type status struct{ p *C.plaitk_gpu_status }

// NewStatus implements [driver.GPU].
func (g *device) NewStatus() driver.Status {
	return status{(*C.plaitk_gpu_status)(C.calloc(1, C.sizeof_plaitk_gpu_status))}
}

// Free implements [driver.Status].
func (s status) Free() { C.free(unsafe.Pointer(s.p)) }

// Done implements [driver.Status].
func (s status) Done() (done, failed bool) {
	v := C.plaitk_gpu_look(s.p)
	return v != 0, v > 1
}

type buffer struct {
	b    C.WGPUBuffer
	size int
}

// NewBuffer implements [driver.GPU].
func (g *device) NewBuffer(usage driver.Usage, size int, mapped bool) (driver.Buffer, error) {
	m := C.int(0)
	if mapped {
		m = 1
	}
	b := C.plaitk_gpu_buffer(g.g, C.uint32_t(usage), C.uint64_t(size), m)
	if b == nil {
		if err := g.TakeError(); err != nil {
			return nil, err
		}
		return nil, errors.New("the driver made no buffer")
	}
	return &buffer{b, size}, nil
}

// Size implements [driver.Buffer].
func (b *buffer) Size() int { return b.size }

// Release implements [driver.Buffer].
func (b *buffer) Release() {
	C.wgpuBufferDestroy(b.b)
	C.wgpuBufferRelease(b.b)
}

// Map implements [driver.Buffer].
func (b *buffer) Map(write bool, s driver.Status) {
	mode := C.uint32_t(1)
	if write {
		mode = 2
	}
	C.plaitk_gpu_map(b.b, mode, C.uint64_t(b.size), s.(status).p)
}

// Mapped implements [driver.Buffer].
func (b *buffer) Mapped() []byte {
	p := C.wgpuBufferGetMappedRange(b.b, 0, C.size_t(b.size))
	return unsafe.Slice((*byte)(p), b.size)
}

// Unmap implements [driver.Buffer].
func (b *buffer) Unmap() { C.wgpuBufferUnmap(b.b) }

// A layout is the layout of a program's bindings: its parameters and a number of buffers.
type layout struct {
	group    C.WGPUBindGroupLayout
	pipeline C.WGPUPipelineLayout
}

// layout returns the layout for a number of buffers. The size of parameters is the same on every call.
func (g *device) layout(buffers, params int) *layout {
	l := g.layouts[buffers]
	if l == nil {
		l = &layout{}
		l.group = C.plaitk_gpu_layout(g.g, C.int(buffers), C.uint64_t(params), &l.pipeline)
		g.layouts[buffers] = l
	}
	return l
}

type pipeline struct{ p C.WGPUComputePipeline }

// Language implements [driver.GPU].
func (*device) Language() shader.Language { return shader.WGSL{} }

// NewPipeline implements [driver.GPU].
func (g *device) NewPipeline(program driver.Program) (driver.Pipeline, error) {
	text := C.CString(program.Source)
	defer C.free(unsafe.Pointer(text))
	p := C.plaitk_gpu_pipeline(g.g, g.layout(program.Buffers, program.Params).pipeline, text)
	if p == nil {
		if err := g.TakeError(); err != nil {
			return nil, err
		}
		return nil, errors.New("the driver made no pipeline")
	}
	return &pipeline{p}, nil
}

// Release implements [driver.Pipeline].
func (p *pipeline) Release() { C.wgpuComputePipelineRelease(p.p) }

type group struct{ g C.WGPUBindGroup }

// NewBindGroup implements [driver.GPU].
func (g *device) NewBindGroup(params driver.Buffer, window int, buffers []driver.Buffer) (driver.BindGroup, error) {
	var handles [32]C.WGPUBuffer
	var sizes [32]C.uint64_t
	for i, b := range buffers {
		handles[i], sizes[i] = b.(*buffer).b, C.uint64_t(b.Size())
	}
	l := g.layout(len(buffers), window)
	bound := C.plaitk_gpu_group(g.g, l.group, params.(*buffer).b, C.uint64_t(window), C.int(len(buffers)), &handles[0], &sizes[0])
	runtime.KeepAlive(buffers)
	if bound == nil {
		if err := g.TakeError(); err != nil {
			return nil, err
		}
		return nil, errors.New("the driver made no bind group")
	}
	return &group{bound}, nil
}

// Release implements [driver.BindGroup].
func (g *group) Release() { C.wgpuBindGroupRelease(g.g) }

type list struct{ commands []C.plaitk_gpu_command }

// NewCommandList implements [driver.GPU].
func (g *device) NewCommandList() driver.CommandList { return &list{} }

// Len implements [driver.CommandList].
func (l *list) Len() int { return len(l.commands) }

// Reset implements [driver.CommandList].
func (l *list) Reset() { l.commands = l.commands[:0] }

// Dispatch implements [driver.CommandList].
func (l *list) Dispatch(p driver.Pipeline, g driver.BindGroup, params, x, y, z uint32) {
	l.commands = append(l.commands, C.plaitk_gpu_command{
		kind: C.PLAITK_GPU_DISPATCH, pipeline: p.(*pipeline).p, group: g.(*group).g, params: C.uint32_t(params),
		x: C.uint32_t(x), y: C.uint32_t(y), z: C.uint32_t(z),
	})
}

// Copy implements [driver.CommandList].
func (l *list) Copy(to driver.Buffer, toOffset int, from driver.Buffer, fromOffset, size int) {
	l.commands = append(l.commands, C.plaitk_gpu_command{
		kind: C.PLAITK_GPU_COPY, from: from.(*buffer).b, to: to.(*buffer).b,
		from_offset: C.uint64_t(fromOffset), to_offset: C.uint64_t(toOffset), size: C.uint64_t(size),
	})
}

// Clear implements [driver.CommandList].
func (l *list) Clear(to driver.Buffer, offset, size int) {
	l.commands = append(l.commands, C.plaitk_gpu_command{
		kind: C.PLAITK_GPU_CLEAR, to: to.(*buffer).b, to_offset: C.uint64_t(offset), size: C.uint64_t(size),
	})
}

// Submit implements [driver.GPU].
func (g *device) Submit(l driver.CommandList, params driver.Buffer, data []byte, s driver.Status) {
	var first *C.plaitk_gpu_command
	commands := l.(*list).commands
	if len(commands) > 0 {
		first = &commands[0]
	}
	C.plaitk_gpu_submit(g.g, first, C.int(len(commands)), params.(*buffer).b, unsafe.Pointer(unsafe.SliceData(data)),
		C.uint64_t(len(data)), s.(status).p)
}
