package collective

import (
	"math/bits"
	"runtime"
	"sync"
)

// keptBytes is how much memory for transfers is kept for later ones.
const keptBytes = 32 << 20

// buffers is the memory for the data of other processes.
var buffers hostBuffers

// hostBuffers is a list of free buffers.
type hostBuffers struct {
	mu   sync.Mutex
	free map[int][]*hostBuffer // by size
	kept int                   // bytes in free
}

// A hostBuffer is pinned memory, which a transport and kernels may use.
type hostBuffer struct {
	bytes []byte
	size  int
	pin   runtime.Pinner
}

// get returns a buffer of n bytes with any contents.
func (h *hostBuffers) get(n int) *hostBuffer {
	size := max(1<<bits.Len(uint(n-1)), 4096)
	h.mu.Lock()
	defer h.mu.Unlock()
	var b *hostBuffer
	if list := h.free[size]; len(list) > 0 {
		b = list[len(list)-1]
		h.free[size] = list[:len(list)-1]
		h.kept -= size
	} else {
		b = &hostBuffer{bytes: make([]byte, size), size: size}
		b.pin.Pin(&b.bytes[0])
	}
	b.bytes = b.bytes[:n]
	return b
}

// release gives the buffer back.
func (b *hostBuffer) release() {
	h := &buffers
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.kept+b.size > keptBytes {
		b.pin.Unpin()
		return
	}
	if h.free == nil {
		h.free = map[int][]*hostBuffer{}
	}
	h.free[b.size] = append(h.free[b.size], b)
	h.kept += b.size
}
