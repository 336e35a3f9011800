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
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
)

const (
	// mapThreshold is the size from which blocks are mapped separately, so that freeing them returns memory to the system.
	mapThreshold = 1 << 20
	pageSize     = 4 << 10
	// unit is the unit of size classes.
	unit = 64
)

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

// Allocate implements [backend.Allocator].
func (d *Device) Allocate(rank, class, bytes int) (core.Memory, error) {
	if m, ok := d.reserve(class); ok {
		return m, nil
	}
	var streams []*backend.Stream
	for _, o := range allDevices() {
		streams = append(streams, o.Streams()...)
	}
	backend.Settle(rank, streams)
	if m, ok := d.reserveAfterTrim(class); ok {
		return m, nil
	}
	return core.Memory{}, d.outOfMemory("allocate", bytes)
}

// reserveAfterTrim retries reserve after it has emptied the caches of all CPU devices.
func (d *Device) reserveAfterTrim(class int) (core.Memory, bool) {
	for _, o := range allDevices() {
		o.EmptyCache()
	}
	return d.reserve(class)
}

func (d *Device) outOfMemory(what string, bytes int) error {
	if own := d.limit.Load(); own > 0 {
		return core.Errorf(core.MemoryError, what,
			"out of memory: no room for %d bytes on %v; %d bytes of it are in use, the device holds %d of %d allowed bytes",
			bytes, d, core.MemoryUsage(d).Current, d.reserved.Load(), own)
	}
	return core.Errorf(core.MemoryError, what,
		"out of memory: no room for %d bytes on %v; %d bytes of it are in use, CPU devices hold %d of %d allowed bytes (PLAIT_CPU_MEMORY)",
		bytes, d, core.MemoryUsage(d).Current, budget.used.Load(), MemoryLimit())
}

// reserve takes a block of the size class from a slab or the system, within the limits; ok is false if there is none.
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

// Release implements [backend.Allocator].
func (d *Device) Release(m core.Memory) {
	p, size := m.Ptr, m.Size
	if ours, slab := d.slabs.put(p, size); ours {
		p, size = slab, slabSize
	}
	if p != nil {
		d.toSystem(p, size)
	}
}

// fromSystem allocates memory from the system within the device's limit and the budget, or returns nil.
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
