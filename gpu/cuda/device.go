//go:build cgo && linux && amd64

package cuda

// #include <stdlib.h>
// #include <unistd.h>
// #include "shim.h"
// #cgo nocallback plaitk_cu_look
// #cgo nocallback plaitk_cu_record
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/plait-ml/plait/gpu/cuda/cublaslt"
	"github.com/plait-ml/plait/gpu/cuda/nvrtc"
	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/shader"
)

// maxBuffer is the size of the largest buffer: programs index elements of 4 bytes with 32 bits.
const maxBuffer = 16<<30 - 1<<20

// A device is an open GPU.
type device struct {
	g          *C.plaitk_cu
	capability int
	limits     driver.Limits
	spare      []*buffer // pinned buffers for copies from the parameters
	library    *cublaslt.Handle
	noLibrary  error  // why there is no library of matrix products
	yield      func() // see Yield; nil for nothing
}

// openLibrary opens the library of matrix products, if it is there.
func (g *device) openLibrary() {
	if g.noLibrary = cublaslt.Load(); g.noLibrary != nil {
		return
	}
	if g.library, g.noLibrary = cublaslt.Open(unsafe.Pointer(g.g.context)); g.noLibrary == nil {
		g.g.lt = (*C.plaitk_lt)(g.library.Pointer())
		*(*unsafe.Pointer)(unsafe.Pointer(&g.g.product)) = cublaslt.Function()
	}
}

// Products implements [driver.ProductGPU].
func (g *device) Products() error { return g.noLibrary }

// Limits implements [driver.GPU].
func (g *device) Limits() driver.Limits { return g.limits }

// Language implements [driver.GPU].
func (g *device) Language() shader.Language { return shader.CUDA{} }

// Close implements [driver.GPU].
func (g *device) Close() {
	for _, b := range g.spare {
		b.Release()
	}
	if g.library != nil {
		g.library.Close()
	}
	C.plaitk_cu_close(g.g)
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

// Lose implements [driver.GPU].
func (g *device) Lose(reason string) {
	text := C.CString(reason)
	defer C.free(unsafe.Pointer(text))
	C.plaitk_cu_lose(g.g, text)
}

// Poll implements [driver.GPU]. Statuses ask the driver themselves.
func (g *device) Poll() {}

// Pause implements [driver.GPU].
func (g *device) Pause(d time.Duration) { C.usleep(C.useconds_t(d.Microseconds())) }

// A status is an event of the device's stream.
type status struct {
	g     *device
	e     *C.plaitk_cu_event
	list  *commands // what was submitted before it, if that is known
	after *buffer   // goes back to the spare ones when the event is done
}

// NewStatus implements [driver.GPU].
func (g *device) NewStatus() driver.Status { return &status{g: g, e: C.plaitk_cu_new_event(g.g)} }

// Done implements [driver.Status].
func (s *status) Done() (done, failed bool) {
	lost := s.g.Lost()
	switch C.plaitk_cu_look(s.g.g, s.e) {
	case C.PLAITK_CU_DONE:
		return true, false
	case C.PLAITK_CU_FAILED:
		if !lost && s.list != nil {
			s.g.blame(s.list)
		}
		return true, true
	}
	return false, false
}

// blame adds the names of the programs that may have failed to the error of a device that has just been lost.
func (g *device) blame(l *commands) {
	names := l.programs()
	if len(names) == 0 {
		return
	}
	const most = 8
	which := "program " + names[0]
	if len(names) > 1 {
		which = fmt.Sprintf("one of the programs %s", strings.Join(names[:min(len(names), most)], ", "))
		if len(names) > most {
			which += fmt.Sprintf(" and %d others", len(names)-most)
		}
		which += " (PLAIT_SYNC=1 runs calls one by one)"
	}
	before := g.TakeError()
	g.Lose(fmt.Sprintf("%v, in %s", before, which))
}

// Free implements [driver.Status].
func (s *status) Free() {
	C.plaitk_cu_free_event(s.g.g, s.e)
	if s.after != nil {
		s.g.spare = append(s.g.spare, s.after)
	}
}

// A memoryKind is where a buffer lies.
type memoryKind uint8

const (
	onDevice   memoryKind = iota
	onHost                // pinned memory
	parameters            // the parameters of a submission, which have no memory of their own
	shared                // another process's
)

type buffer struct {
	g    *device
	kind memoryKind
	at   C.CUdeviceptr
	size int
}

// NewBuffer implements [driver.GPU].
func (g *device) NewBuffer(usage driver.Usage, size int, _ bool) (driver.Buffer, error) {
	b := &buffer{g: g, size: size}
	host := C.int(0)
	switch {
	case usage&driver.Uniform != 0:
		b.kind = parameters
		return b, nil
	case usage&(driver.MapRead|driver.MapWrite) != 0:
		b.kind, host = onHost, 1
	}
	if size > maxBuffer {
		return nil, fmt.Errorf("a buffer of %d bytes is past the limit of %d", size, maxBuffer)
	}
	if b.at = C.plaitk_cu_alloc(g.g, C.uint64_t(size), host); b.at == 0 {
		if err := g.TakeError(); err != nil {
			return nil, err
		}
		return nil, errors.New("the driver made no buffer")
	}
	return b, nil
}

// Size implements [driver.Buffer].
func (b *buffer) Size() int { return b.size }

// Release implements [driver.Buffer]. The driver waits until the GPU has done what it was given.
func (b *buffer) Release() {
	switch b.kind {
	case onDevice:
		C.plaitk_cu_free(b.g.g, b.at, 0)
	case onHost:
		C.plaitk_cu_free(b.g.g, b.at, 1)
	case shared:
		C.plaitk_cu_close_shared(b.g.g, b.at)
	}
}

// Map implements [driver.Buffer]. Pinned memory is always mapped; the status is done when the GPU has done what it was given before.
func (b *buffer) Map(_ bool, s driver.Status) { C.plaitk_cu_record(b.g.g, nil, s.(*status).e) }

// Mapped implements [driver.Buffer].
func (b *buffer) Mapped() []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&b.at))), b.size)
}

// Unmap implements [driver.Buffer].
func (b *buffer) Unmap() {}

type pipeline struct {
	g *device
	p *C.plaitk_cu_program
}

// NewPipeline implements [driver.GPU]. It compiles the program, or takes what an earlier process compiled.
func (g *device) NewPipeline(program driver.Program) (driver.Pipeline, error) {
	if program.Buffers > C.PLAITK_CU_BUFFERS {
		return nil, fmt.Errorf("it binds %d buffers, the limit is %d", program.Buffers, C.PLAITK_CU_BUFFERS)
	}
	image, err := nvrtc.Compile(program.Source, program.Name, g.capability)
	if err != nil {
		return nil, err
	}
	name := C.CString(program.Name)
	defer C.free(unsafe.Pointer(name))
	p := C.plaitk_cu_load(g.g, name, unsafe.Pointer(unsafe.SliceData(image)), C.uint32_t(program.Threads), C.uint32_t(program.Dynamic))
	if p == nil {
		if err := g.TakeError(); err != nil {
			return nil, err
		}
		return nil, errors.New("the driver loaded no program")
	}
	return &pipeline{g, p}, nil
}

// Release implements [driver.Pipeline].
func (p *pipeline) Release() { C.plaitk_cu_unload(p.g.g, p.p) }

type group struct{ g *C.plaitk_cu_group }

// NewBindGroup implements [driver.GPU].
func (g *device) NewBindGroup(_ driver.Buffer, _ int, buffers []driver.Buffer) (driver.BindGroup, error) {
	bound := (*C.plaitk_cu_group)(C.calloc(1, C.sizeof_plaitk_cu_group))
	bound.count = C.int32_t(len(buffers))
	for i, b := range buffers {
		bound.buffers[i] = C.plaitk_cu_buffer{at: b.(*buffer).at, bytes: C.uint64_t(b.Size() + C.PLAITK_CU_PADDING)}
	}
	return &group{bound}, nil
}

// Release implements [driver.BindGroup].
func (g *group) Release() { C.free(unsafe.Pointer(g.g)) }

// pinned returns pinned memory of at least the given size, for the data of a submission.
func (g *device) pinned(size int) (*buffer, error) {
	if i := slices.IndexFunc(g.spare, func(b *buffer) bool { return b.size >= size }); i >= 0 {
		b := g.spare[i]
		g.spare = slices.Delete(g.spare, i, i+1)
		return b, nil
	}
	const least = 1 << 20
	b, err := g.NewBuffer(driver.MapWrite, max(size, least), true)
	if err != nil {
		return nil, err
	}
	return b.(*buffer), nil
}
