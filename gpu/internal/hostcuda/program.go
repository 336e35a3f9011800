//go:build cgo && linux && amd64

package hostcuda

/*
#cgo CFLAGS: -O2 -Wall -Wextra -U_FORTIFY_SOURCE
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/plait-ml/plait/gpu/driver"
)

// A program is a compiled program that the process has loaded.
type program struct {
	name     string
	p        *C.plaitk_host_program
	threads  int
	barriers bool
}

// load compiles a program, unless that has been done, and loads it.
func load(p driver.Program) (*program, error) {
	if err := Compile([]driver.Program{p}); err != nil {
		return nil, err
	}
	c, err := cc()
	if err != nil {
		return nil, err
	}
	_, body, err := split(p.Source)
	if err != nil {
		return nil, err
	}
	id := c.digest(p.Source)
	path, symbol := C.CString(c.file(id)), C.CString("program_"+id)
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(symbol))
	library := C.dlopen(path, C.RTLD_NOW|C.RTLD_LOCAL)
	if library == nil {
		return nil, errors.New(C.GoString(C.dlerror()))
	}
	at := C.dlsym(library, symbol)
	if at == nil {
		return nil, errors.New(C.GoString(C.dlerror()))
	}
	barriers := strings.Contains(body, "workgroupBarrier") || strings.Contains(body, "__syncthreads")
	return &program{p.Name, (*C.plaitk_host_program)(at), p.Threads, barriers}, nil
}

// one is held while a program runs: workgroup memory is the library's.
var one sync.Mutex

// run runs a grid of workgroups. params and the buffers lie in memory that is not Go's.
func (p *program) run(params unsafe.Pointer, g *group, x, y, z uint32, backward bool) error {
	one.Lock()
	defer one.Unlock()
	var text [C.PLAITK_HOST_TEXT]C.char
	var barriers, reverse C.int
	if p.barriers {
		barriers = 1
	}
	if backward {
		reverse = 1
	}
	grid := C.plaitk_host_size{C.uint32_t(x), C.uint32_t(y), C.uint32_t(z)}
	if C.plaitk_host_run(p.p, params, g.at, C.uint32_t(p.threads), grid, barriers, reverse, &text[0]) == 0 {
		return fmt.Errorf("%s: %s", p.name, C.GoString(&text[0]))
	}
	for i, b := range g.buffers {
		if b.spoiled() {
			return fmt.Errorf("%s has written behind the data of buffer %d, which has %d bytes", p.name, i+1, b.size)
		}
	}
	return nil
}

// A group is the buffers that a program binds.
type group struct {
	buffers []*buffer
	at      *C.plaitk_host_buffer
}

func newGroup(buffers []*buffer) *group {
	g := &group{buffers, (*C.plaitk_host_buffer)(C.calloc(C.size_t(len(buffers)+1), C.sizeof_plaitk_host_buffer))}
	bound := unsafe.Slice(g.at, len(buffers))
	for i, b := range buffers {
		bound[i] = C.plaitk_host_buffer{at: b.at(), bytes: C.uint64_t(b.size + padding)}
	}
	return g
}

// Release implements [driver.BindGroup].
func (g *group) Release() { C.free(unsafe.Pointer(g.at)) }
