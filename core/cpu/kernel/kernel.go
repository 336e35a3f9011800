// Package kernel is where the CPU's kernels meet its device: the table of implementations by name and what each run is
// given. The families of kernels, in the folders below, register themselves here.
package kernel

import (
	"fmt"
	"unsafe"

	"github.com/plait-ml/plait/core"
)

/*
#include <stdlib.h>
*/
import "C"

// A Func runs a kernel: it turns the call's operands into pointers and makes one call into C. Operands may have any
// strides and, where the kernel does not say otherwise, be empty.
type Func func(ctx *Context, c *core.Call) error

var table []Func

// Register sets the implementation of the kernel with the given name. Families call it from init.
func Register(name string, f Func) {
	id := int(core.Kernel(name))
	for len(table) <= id {
		table = append(table, nil)
	}
	if table[id] != nil {
		panic(fmt.Sprintf("cpu: kernel %q registered twice", name))
	}
	table[id] = f
}

// Lookup returns the implementation of a kernel, or nil.
func Lookup(id core.KernelID) Func {
	if int(id) < len(table) {
		return table[id]
	}
	return nil
}

// A Context is what a stream lends to the kernels it runs.
type Context struct {
	// Pool is the plait_pool of the device, nil for calls that run on the launching thread.
	Pool unsafe.Pointer

	scratch unsafe.Pointer
	size    int
}

// Scratch returns at least n bytes, aligned to 64, that are the kernel's until it returns. Their contents are
// undefined. It returns an error if the system has no more memory.
func (x *Context) Scratch(n int) (unsafe.Pointer, error) {
	if n <= x.size {
		return x.scratch, nil
	}
	x.FreeScratch()
	size := (max(n, 1<<16)*9/8 + 63) &^ 63
	p := C.aligned_alloc(64, C.size_t(size))
	if p == nil {
		return nil, core.Errorf(core.MemoryError, "scratch", "no memory for %d bytes of kernel scratch", size)
	}
	x.scratch, x.size = p, size
	return p, nil
}

// FreeScratch gives the scratch memory back to the system.
func (x *Context) FreeScratch() {
	C.free(x.scratch)
	x.scratch, x.size = nil, 0
}
