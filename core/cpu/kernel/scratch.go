package kernel

import (
	"sync/atomic"
	"unsafe"

	"github.com/plait-ml/plait/core"
)

/*
#include <stdlib.h>
*/
import "C"

// A Context is what a stream provides to the kernels that it runs.
type Context struct {
	// Pool is the device's plait_pool; nil for calls that run on the launching thread.
	Pool unsafe.Pointer
	// Memory is the source of scratch memory; nil means the system.
	Memory Memory

	small block
	table block
	kept  atomic.Pointer[block] // scratch memory of earlier calls, kept for the next; nil while a call uses it
	lent  *block                // scratch memory of the current call
	bytes int                   // bytes of it that the call asked for
}

// A Memory provides scratch memory to kernels.
type Memory interface {
	// Alloc returns at least n bytes, aligned to 64, and their number.
	Alloc(n int) (p unsafe.Pointer, size int, err error)
	// Free takes a block of Alloc back.
	Free(p unsafe.Pointer, size int)
	// Use adds n bytes, which may be negative, to the kernels' memory statistics.
	Use(n int)
}

type block struct {
	p    unsafe.Pointer
	size int
}

// smallSize is the size of the block that a context allocates at its first request and keeps. Most calls need no more.
const smallSize = 64 << 10

// Scratch returns at least n bytes, aligned to 64, which the kernel may use until it returns or calls Scratch again.
// The contents are undefined. An error comes from the memory.
func (x *Context) Scratch(n int) (unsafe.Pointer, error) {
	if n <= x.small.size {
		return x.small.p, nil
	}
	return x.borrow(n)
}

func (x *Context) borrow(n int) (unsafe.Pointer, error) {
	if x.Memory == nil {
		x.Memory = system{}
	}
	var err error
	if n <= smallSize {
		x.small.p, x.small.size, err = x.Memory.Alloc(smallSize)
		return x.small.p, err
	}
	x.Done()
	b := x.kept.Swap(nil)
	if b == nil || b.size < n {
		if b != nil {
			x.Memory.Free(b.p, b.size)
		}
		b = new(block)
		if b.p, b.size, err = x.Memory.Alloc(n); err != nil {
			return nil, err
		}
	}
	x.lent, x.bytes = b, n
	x.Memory.Use(n)
	return b.p, nil
}

// Table returns at least n bytes, aligned to 64, for the description of operands that a kernel passes to C. They are
// valid until the kernel returns or calls Table again. They do not count against the memory budget, and neither do the
// call's operands: a call that has room for its operands also has room for their table.
func (x *Context) Table(n int) (unsafe.Pointer, error) {
	if n <= x.table.size {
		return x.table.p, nil
	}
	system{}.Free(x.table.p, x.table.size)
	x.table = block{}
	p, size, err := system{}.Alloc(max(n, 4<<10))
	if err == nil {
		x.table = block{p, size}
	}
	return p, err
}

// Done ends the use of the current call's scratch memory. A stream calls it when the kernel has returned.
func (x *Context) Done() {
	if x.lent != nil {
		x.giveBack()
	}
}

func (x *Context) giveBack() {
	x.Memory.Use(-x.bytes)
	x.kept.Store(x.lent)
	x.lent = nil
}

// Trim frees memory that no call uses. Any goroutine may call it.
func (x *Context) Trim() {
	if b := x.kept.Swap(nil); b != nil {
		x.Memory.Free(b.p, b.size)
	}
}

// FreeScratch frees all memory, after the last call.
func (x *Context) FreeScratch() {
	x.Done()
	x.Trim()
	if x.small.p != nil {
		x.Memory.Free(x.small.p, x.small.size)
		x.small = block{}
	}
	system{}.Free(x.table.p, x.table.size)
	x.table = block{}
}

// system is the C allocator as a [Memory]; no budget or statistics count it.
type system struct{}

func (system) Alloc(n int) (unsafe.Pointer, int, error) {
	n = (n + 63) &^ 63
	p := C.aligned_alloc(64, C.size_t(n))
	if p == nil {
		return nil, 0, core.Errorf(core.MemoryError, "workspace", "no memory for %d bytes", n)
	}
	return p, n, nil
}

func (system) Free(p unsafe.Pointer, _ int) { C.free(p) }

func (system) Use(int) {}
