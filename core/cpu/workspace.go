package cpu

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
)

// workspace provides the scratch memory of a stream's kernels, within the memory limits. Statistics count it only while a call uses it.
// Between calls it is kept until caches are emptied, like freed tensors' memory.
type workspace struct{ *stream }

// Alloc implements [kernel.Memory]. It does not block: a running call cannot wait for calls behind it.
func (w workspace) Alloc(n int) (unsafe.Pointer, int, error) {
	d, class := w.device, backend.SizeClass(n, unit)
	if core.AllocFault(w.stream, n) {
		return nil, 0, d.outOfMemory("workspace", n)
	}
	m, ok := d.reserve(class)
	if !ok {
		if m, ok = d.reserveAfterTrim(class); !ok {
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
