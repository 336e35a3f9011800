package cpu

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
)

// workspace is the memory that the kernels of a stream need while they run, within the budget as tensors' is. In the statistics
// it is used while a call has it; between calls it is kept, as freed tensors are, until caches are emptied.
type workspace struct{ *stream }

// Alloc implements [kernel.Memory]. It waits for nothing: a call that has begun cannot wait for those behind it.
func (w workspace) Alloc(n int) (unsafe.Pointer, int, error) {
	d, class := w.device, backend.SizeClass(n, unit)
	if core.AllocFault(w.stream, n) {
		return nil, 0, d.outOfMemory("workspace", n)
	}
	m, ok := d.reserve(class)
	if !ok {
		if m, ok = d.scrape(class); !ok {
			return nil, 0, d.outOfMemory("workspace", n)
		}
	}
	return m.Ptr, m.Size, nil
}

// Free implements [kernel.Memory].
func (w workspace) Free(p unsafe.Pointer, size int) {
	w.device.Release(core.Memory{Ptr: p, Size: size})
}

// Use implements [kernel.Memory].
func (w workspace) Use(n int) { w.Counters().CountWorkspace(n) }
