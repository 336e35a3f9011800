//go:build cgo && ((linux && amd64) || darwin)

// Package native is the GPU's driver as the device uses it: wgpu-native behind a C shim. It alone knows which version of
// the library is underneath. The library is the static one of the module cogentcore/webgpu, which finds the system's
// Vulkan loader when it is first asked for adapters.
//
// Everything of a [GPU] is called from one goroutine at a time.
package native

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

	_ "github.com/cogentcore/webgpu/wgpu" // brings the library to the link
)

// Unsupported is why there are no GPUs on this platform; empty where there may be.
const Unsupported = ""

// maxAdapters bounds the list of adapters.
const maxAdapters = 64

// Loader returns the name of the library that finds GPUs' drivers, and whether it is there.
func Loader() (name string, found bool) {
	if runtime.GOOS == "darwin" {
		return "Metal", true // a part of the system
	}
	return "libvulkan.so.1", C.plaitk_gpu_loader() != 0
}

// Adapters lists the adapters of Vulkan or Metal, each GPU once, software ones included.
func Adapters() []Adapter {
	var raw [maxAdapters]C.plaitk_gpu_adapter
	n := min(int(C.plaitk_gpu_adapters(&raw[0], maxAdapters)), maxAdapters)
	out := make([]Adapter, n)
	for i := range out {
		a := &raw[i]
		backend := "unknown"
		switch a.backend {
		case C.WGPU_BACKEND_VULKAN:
			backend = "Vulkan"
		case C.WGPU_BACKEND_METAL:
			backend = "Metal"
		}
		out[i] = Adapter{
			Index: i, Name: C.GoString(&a.name[0]), Backend: backend,
			Software: a._type == C.WGPU_ADAPTER_CPU, Discrete: a._type == C.WGPU_ADAPTER_DISCRETE,
			Vendor: uint32(a.vendor), Device: uint32(a.device),
		}
	}
	return out
}

// A GPU is an open device with its queue.
type GPU struct {
	g      *C.plaitk_gpu
	Limits Limits
}

// Open opens the adapter with the given index in the list of [Adapters], with all its limits.
func Open(index int) (*GPU, error) {
	text := (*C.char)(C.calloc(1, C.PLAITK_GPU_TEXT))
	defer C.free(unsafe.Pointer(text))
	g := C.plaitk_gpu_open(C.int(index), text)
	if g == nil {
		return nil, errors.New(C.GoString(text))
	}
	l := &g.limits
	return &GPU{g, Limits{
		Buffer: int(l.buffer), Binding: int(l.storage_binding), Bindings: int(l.storage_buffers),
		UniformAlignment: int(l.uniform_alignment), UniformBinding: int(l.uniform_binding),
		BothWays: g.both_ways != 0, WorkgroupStorage: int(l.workgroup_storage), Invocations: int(l.workgroup_invocations), Workgroups: int(l.workgroups),
	}}, nil
}

// Close gives the device up. Nothing may be in flight.
func (g *GPU) Close() { C.plaitk_gpu_close(g.g) }

// TakeError returns the first error since the last call, or nil.
func (g *GPU) TakeError() error {
	if g.g.failed == 0 {
		return nil
	}
	g.g.failed = 0
	return errors.New(C.GoString(&g.g.error[0]))
}

// Lost reports whether the device is gone for good.
func (g *GPU) Lost() bool { return g.g.lost != 0 }

// Leave lets nothing into the drivers any more, as if all devices were lost and none could be opened, and waits until they have
// done what they were given, ten seconds at most. It reports whether they have. From any goroutine.
func Leave() bool { return C.plaitk_gpu_leave() != 0 }

// Lose has the device count as lost from now on, as when its driver says so; for tests.
func (g *GPU) Lose(reason string) {
	text := C.CString(reason)
	defer C.free(unsafe.Pointer(text))
	C.plaitk_gpu_lose(g.g, text)
}

// Poll lets what has ended say so.
func (g *GPU) Poll() { C.plaitk_gpu_poll(g.g) }

// Pause blocks the calling thread for about d.
func Pause(d time.Duration) { C.usleep(C.useconds_t(d.Microseconds())) }

// A Status is a word that the driver changes when something ends.
type Status struct{ p *C.plaitk_gpu_status }

// NewStatus returns a pending status. Free it after it is done.
func NewStatus() Status {
	return Status{(*C.plaitk_gpu_status)(C.calloc(1, C.sizeof_plaitk_gpu_status))}
}

// Free gives the word back.
func (s Status) Free() { C.free(unsafe.Pointer(s.p)) }

// Done reports whether what the status stands for has ended, and whether without success.
func (s Status) Done() (done, failed bool) {
	v := C.plaitk_gpu_look(s.p)
	return v != 0, v > 1
}

// A Buffer is a piece of memory of the driver's.
type Buffer struct {
	b    C.WGPUBuffer
	Size int
}

// NewBuffer makes a buffer, a multiple of 4 bytes. mapped makes it one that the host can write to at once.
func (g *GPU) NewBuffer(usage Usage, size int, mapped bool) (*Buffer, error) {
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
	return &Buffer{b, size}, nil
}

// Release gives the buffer back. No command that uses it may come later.
func (b *Buffer) Release() {
	C.wgpuBufferDestroy(b.b)
	C.wgpuBufferRelease(b.b)
}

// Map asks for the buffer's memory, for writing or for reading; it is there when the status is done.
func (b *Buffer) Map(write bool, s Status) {
	mode := C.uint32_t(1)
	if write {
		mode = 2
	}
	C.plaitk_gpu_map(b.b, mode, C.uint64_t(b.Size), s.p)
}

// Mapped returns the memory of a mapped buffer.
func (b *Buffer) Mapped() []byte {
	p := C.wgpuBufferGetMappedRange(b.b, 0, C.size_t(b.Size))
	return unsafe.Slice((*byte)(p), b.Size)
}

// Unmap ends the host's access.
func (b *Buffer) Unmap() { C.wgpuBufferUnmap(b.b) }

// A Layout is the bindings of a program: its parameters, and n buffers.
type Layout struct {
	group    C.WGPUBindGroupLayout
	pipeline C.WGPUPipelineLayout
	n        int
}

// NewLayout makes the layout for n buffers and parameters of the given size.
func (g *GPU) NewLayout(n, params int) *Layout {
	l := &Layout{n: n}
	l.group = C.plaitk_gpu_layout(g.g, C.int(n), C.uint64_t(params), &l.pipeline)
	return l
}

// Release gives the layout back.
func (l *Layout) Release() {
	C.wgpuPipelineLayoutRelease(l.pipeline)
	C.wgpuBindGroupLayoutRelease(l.group)
}

// A Pipeline is a compiled program.
type Pipeline struct{ p C.WGPUComputePipeline }

// NewPipeline compiles a program.
func (g *GPU) NewPipeline(l *Layout, source string) (*Pipeline, error) {
	text := C.CString(source)
	defer C.free(unsafe.Pointer(text))
	p := C.plaitk_gpu_pipeline(g.g, l.pipeline, text)
	if p == nil {
		if err := g.TakeError(); err != nil {
			return nil, err
		}
		return nil, errors.New("the driver made no pipeline")
	}
	return &Pipeline{p}, nil
}

// Release gives the pipeline back.
func (p *Pipeline) Release() { C.wgpuComputePipelineRelease(p.p) }

// A Group is buffers bound for a layout.
type Group struct{ g C.WGPUBindGroup }

// NewGroup binds whole buffers, and windows into the parameters.
func (g *GPU) NewGroup(l *Layout, params *Buffer, window int, buffers []*Buffer) (*Group, error) {
	var handles [32]C.WGPUBuffer
	var sizes [32]C.uint64_t
	for i, b := range buffers {
		handles[i], sizes[i] = b.b, C.uint64_t(b.Size)
	}
	group := C.plaitk_gpu_group(g.g, l.group, params.b, C.uint64_t(window), C.int(len(buffers)), &handles[0], &sizes[0])
	runtime.KeepAlive(buffers)
	if group == nil {
		if err := g.TakeError(); err != nil {
			return nil, err
		}
		return nil, errors.New("the driver made no bind group")
	}
	return &Group{group}, nil
}

// Release gives the group back.
func (g *Group) Release() { C.wgpuBindGroupRelease(g.g) }

// A List is commands in the order in which the GPU runs them.
type List struct{ commands []C.plaitk_gpu_command }

// Len returns the number of commands.
func (l *List) Len() int { return len(l.commands) }

// Reset empties the list.
func (l *List) Reset() { l.commands = l.commands[:0] }

// Dispatch adds a run of a pipeline over a grid of workgroups. params is the offset of its parameters, in bytes.
func (l *List) Dispatch(p *Pipeline, g *Group, params, x, y, z uint32) {
	l.commands = append(l.commands, C.plaitk_gpu_command{
		kind: C.PLAITK_GPU_DISPATCH, pipeline: p.p, group: g.g, params: C.uint32_t(params),
		x: C.uint32_t(x), y: C.uint32_t(y), z: C.uint32_t(z),
	})
}

// Copy adds a copy between buffers; offsets and size are multiples of 4.
func (l *List) Copy(to *Buffer, toOffset int, from *Buffer, fromOffset, size int) {
	l.commands = append(l.commands, C.plaitk_gpu_command{
		kind: C.PLAITK_GPU_COPY, from: from.b, to: to.b,
		from_offset: C.uint64_t(fromOffset), to_offset: C.uint64_t(toOffset), size: C.uint64_t(size),
	})
}

// Clear adds the setting of bytes to zero; offset and size are multiples of 4, size not 0.
func (l *List) Clear(to *Buffer, offset, size int) {
	l.commands = append(l.commands, C.plaitk_gpu_command{
		kind: C.PLAITK_GPU_CLEAR, to: to.b, to_offset: C.uint64_t(offset), size: C.uint64_t(size),
	})
}

// Submit writes data to the buffer of parameters, encodes the list and submits it. s is done when the GPU is.
func (g *GPU) Submit(l *List, params *Buffer, data []byte, s Status) {
	var first *C.plaitk_gpu_command
	if len(l.commands) > 0 {
		first = &l.commands[0]
	}
	C.plaitk_gpu_submit(g.g, first, C.int(len(l.commands)), params.b, unsafe.Pointer(unsafe.SliceData(data)),
		C.uint64_t(len(data)), s.p)
}
