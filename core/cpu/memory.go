package cpu

/*
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

// Maps n bytes at a multiple of align, a power of two: in huge pages if that is the size of one or more.
static void *plaitk_cpu_map(size_t n, size_t align) {
  char *p = mmap(NULL, n + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return NULL;
  size_t before = -(uintptr_t)p & (align - 1);
  if (before > 0) munmap(p, before);
  munmap(p + before + n, align - before);
#ifdef MADV_HUGEPAGE
  if (align >= (2u << 20)) madvise(p + before, n, MADV_HUGEPAGE);
#endif
  return p + before;
}
static void *plaitk_cpu_alloc(size_t n) {
  void *p = NULL;
  return posix_memalign(&p, 64, n) == 0 ? p : NULL;
}
*/
import "C"

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/plait-ml/plait/core"
)

const (
	// mapThreshold is the size from which pieces are mapped on their own, so that giving them back returns them to the system.
	mapThreshold = 1 << 20
	pageSize     = 4 << 10
)

// sizeClass rounds a size up so that at most an eighth is wasted and pieces are found again.
func sizeClass(bytes int) int {
	n := max(bytes, 64)
	step := max(1<<(bits.Len(uint(n-1))-4), 64)
	return (n + step - 1) &^ (step - 1)
}

// classIndex numbers the classes that sizeClass returns, from 0 on: 16 up to 1 KiB, then 8 for each doubling.
func classIndex(class int) int {
	n := uint(class - 1)
	shift := max(bits.Len(n), 10) - 4
	return (shift-6)<<3 + int(n>>shift)
}

func systemAlloc(size int) unsafe.Pointer {
	switch {
	case size >= slabSize:
		return C.plaitk_cpu_map(C.size_t(size), slabSize)
	case size >= mapThreshold:
		return C.plaitk_cpu_map(C.size_t(size), pageSize)
	}
	return C.plaitk_cpu_alloc(C.size_t(size))
}

func systemFree(p unsafe.Pointer, size int) {
	if size >= mapThreshold {
		C.munmap(p, C.size_t(size))
		return
	}
	C.free(p)
}

// block is a free piece of memory in a stream's cache.
type block struct {
	memory core.Memory
	freed  uint64       // the stream's position when it was freed
	after  []core.Event // of other streams that may still use it
}

// cache holds the free pieces of one stream by size class. The piece freed last is handed out first.
type cache struct {
	device *Device
	mu     sync.Mutex
	free   [][]block // by class index
	closed bool
}

func (c *cache) take(class int) (block, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	index := classIndex(class)
	if index >= len(c.free) || len(c.free[index]) == 0 {
		return block{}, false
	}
	list := &c.free[index]
	last := len(*list) - 1
	b := (*list)[last]
	(*list)[last] = block{}
	*list = (*list)[:last]
	return b, true
}

func (c *cache) put(b block) {
	c.mu.Lock()
	if !c.closed {
		index := classIndex(b.memory.Size)
		for index >= len(c.free) {
			c.free = append(c.free, nil)
		}
		c.free[index] = append(c.free[index], b)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	for _, e := range b.after {
		e.Wait()
	}
	c.device.release(b.memory)
}

// close gives every piece back to the system once nothing uses it, now and for pieces still to come.
func (c *cache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, list := range c.free {
		for _, b := range list {
			for _, e := range b.after {
				e.Wait()
			}
			c.device.release(b.memory)
		}
	}
	c.free = nil
}

// empty gives the pieces that no running call uses back to the system.
func (c *cache) empty(done uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, list := range c.free {
		kept := list[:0]
		for _, b := range list {
			if b.freed > done || pending(b.after) {
				kept = append(kept, b)
				continue
			}
			c.device.release(b.memory)
		}
		clear(list[len(kept):])
		c.free[i] = kept
	}
}

func pending(events []core.Event) bool {
	for _, e := range events {
		if !e.Done() {
			return true
		}
	}
	return false
}

// reserve takes a piece of the given class from a slab or the system, within the budget; ok is false if there is none.
func (d *Device) reserve(class int) (m core.Memory, ok bool) {
	var p unsafe.Pointer
	if class <= slabPiece {
		p = d.slabs.take(class, func() unsafe.Pointer { return d.fromSystem(slabSize) })
	}
	if p == nil {
		p = d.fromSystem(class)
	}
	if p == nil {
		return core.Memory{}, false
	}
	return core.Memory{Ptr: p, Size: class}.Shadowed(), true
}

func (d *Device) release(m core.Memory) {
	p, size := m.Ptr, m.Size
	if ours, slab := d.slabs.give(p, size); ours {
		p, size = slab, slabSize
	}
	if p != nil {
		d.toSystem(p, size)
	}
}

// fromSystem takes memory from the system within the device's limit and the budget, or returns nil.
func (d *Device) fromSystem(size int) unsafe.Pointer {
	own := d.limit.Load()
	if d.reserved.Add(int64(size)) <= own || own == 0 {
		if budget.used.Add(int64(size)) <= int64(MemoryLimit()) {
			if p := systemAlloc(size); p != nil {
				return p
			}
		}
		budget.used.Add(-int64(size))
	}
	d.reserved.Add(-int64(size))
	return nil
}

func (d *Device) toSystem(p unsafe.Pointer, size int) {
	systemFree(p, size)
	budget.used.Add(-int64(size))
	d.reserved.Add(-int64(size))
}
