//go:build cgo && linux && amd64

package cuda

// #include "shim.h"
// #cgo nocallback plaitk_cu_give
// #cgo noescape plaitk_cu_give
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/plait-ml/plait/gpu/cuda/cublaslt"
	"github.com/plait-ml/plait/gpu/driver"
)

// A commands is a list of commands as the shim takes them.
type commands struct {
	device   *device
	list     []C.plaitk_cu_command
	products []cublaslt.Command
	graphs   []*graph
	copies   bool // some of them copy from the parameters
}

// NewCommandList implements [driver.GPU].
func (g *device) NewCommandList() driver.CommandList { return &commands{device: g} }

// Len implements [driver.CommandList].
func (l *commands) Len() int { return len(l.list) }

// Reset implements [driver.CommandList].
func (l *commands) Reset() {
	l.list, l.products, l.graphs, l.copies = l.list[:0], l.products[:0], nil, false
}

// Dispatch implements [driver.CommandList].
func (l *commands) Dispatch(p driver.Pipeline, g driver.BindGroup, params, x, y, z uint32) {
	l.list = append(l.list, C.plaitk_cu_command{
		kind: C.PLAITK_CU_DISPATCH, program: p.(*pipeline).p, group: g.(*group).g, params: C.uint32_t(params),
		x: C.uint32_t(x), y: C.uint32_t(y), z: C.uint32_t(z),
	})
}

// Product implements [driver.ProductList].
func (l *commands) Product(p *driver.Product) (ok bool, err error) {
	if l.device.library == nil {
		return false, nil
	}
	c, ok, err := l.device.library.Command(p, func(b driver.Buffer) uint64 { return uint64(b.(*buffer).at) })
	if ok {
		l.list = append(l.list, C.plaitk_cu_command{kind: C.PLAITK_CU_PRODUCT, x: C.uint32_t(len(l.products))})
		l.products = append(l.products, c)
	}
	return ok, err
}

// Copy implements [driver.CommandList].
func (l *commands) Copy(to driver.Buffer, toOffset int, from driver.Buffer, fromOffset, size int) {
	c := C.plaitk_cu_command{kind: C.PLAITK_CU_COPY, to: address(to, toOffset), size: C.uint64_t(size)}
	if b := from.(*buffer); b.kind == parameters {
		c.kind, c.from = C.PLAITK_CU_COPY_PARAMS, C.uint64_t(fromOffset)
		l.copies = true
	} else {
		c.from = address(from, fromOffset)
	}
	l.list = append(l.list, c)
}

// Clear implements [driver.CommandList].
func (l *commands) Clear(to driver.Buffer, offset, size int) {
	l.list = append(l.list, C.plaitk_cu_command{kind: C.PLAITK_CU_CLEAR, to: address(to, offset), size: C.uint64_t(size)})
}

func address(b driver.Buffer, offset int) C.uint64_t {
	return C.uint64_t(b.(*buffer).at) + C.uint64_t(offset)
}

// programs returns the names of the programs that the commands run.
func (l *commands) programs() (names []string) {
	for i := range l.list {
		if p := l.list[i].program; p != nil {
			if name := C.GoString(&p.name[0]); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	for _, x := range l.graphs {
		for _, name := range x.names {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// Submit implements [driver.GPU]. Programs get their parameters by value. Data that commands copy from the parameters goes through pinned
// memory, since the GPU reads it later.
func (g *device) Submit(l driver.CommandList, _ driver.Buffer, data []byte, s driver.Status) {
	g.submit(nil, l, data, s)
}

// yieldAfter is how many commands Submit gives before it yields. A launch takes two to four microseconds.
const yieldAfter = 8

func (g *device) submit(q *C.plaitk_cu_queue, l driver.CommandList, data []byte, s driver.Status) {
	st, c := s.(*status), l.(*commands)
	st.list = c
	var copied *C.char
	if c.copies {
		b, err := g.pinned(len(data))
		if err != nil {
			g.Lose(fmt.Sprintf("no pinned memory for %d bytes: %v", len(data), err))
		} else {
			copy(b.Mapped(), data)
			copied = (*C.char)(unsafe.Pointer(unsafe.SliceData(b.Mapped())))
			st.after = b
		}
	}
	products := (*C.plaitk_lt_product)(unsafe.Pointer(unsafe.SliceData(c.products)))
	params := (*C.char)(unsafe.Pointer(unsafe.SliceData(data)))
	each := len(c.list)
	if q == nil && g.yield != nil {
		each = yieldAfter
	}
	for list := c.list; len(list) > 0; {
		n := min(each, len(list))
		part := list[:n:n] // cgo looks for Go's pointers up to the capacity
		if C.plaitk_cu_give(g.g, q, &part[0], C.int(len(part)), products, params, copied) == 0 {
			break
		}
		if list = list[len(part):]; len(list) > 0 {
			g.yield()
		}
	}
	C.plaitk_cu_record(g.g, q, st.e)
}
