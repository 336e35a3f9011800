//go:build cgo && linux && amd64

package hostcuda

// #include "shim.h"
import "C"

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"github.com/plait-ml/plait/gpu/driver"
)

// padding is the bytes behind the data of a buffer that programs may read. They may write there too, but no kernel does on purpose.
const padding = 16

// alignment is that of buffers, as GPUs have it.
const alignment = 256

// A buffer is memory between two pages that fault. It ends where the second of them begins.
type buffer struct {
	mapping []byte
	memory  []byte // the data, the padding, and what aligns them
	size    int
}

func newBuffer(usage driver.Usage, size int) (*buffer, error) {
	page := os.Getpagesize()
	room := (size + padding + alignment - 1) / alignment * alignment
	whole := (room + page - 1) / page * page
	m, err := syscall.Mmap(-1, 0, whole+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("no memory for a buffer of %d bytes: %w", size, err)
	}
	for _, guard := range [][]byte{m[:page], m[page+whole:]} {
		if err := syscall.Mprotect(guard, syscall.PROT_NONE); err != nil {
			return nil, err
		}
	}
	b := &buffer{m, m[page+whole-room : page+whole], size}
	if usage&driver.Storage != 0 {
		stale(b.memory)
	} else {
		stale(b.memory[size:])
	}
	return b, nil
}

// stale fills memory with the bits that nothing has written.
func stale(memory []byte) {
	for i := 0; i+2 <= len(memory); i += 2 {
		binary.NativeEndian.PutUint16(memory[i:], C.PLAITK_HOST_STALE)
	}
}

// spoiled reports whether something has been written behind the data, and repairs it.
func (b *buffer) spoiled() bool {
	behind := b.memory[b.size:]
	want := make([]byte, len(behind))
	stale(want)
	if bytes.Equal(behind, want) {
		return false
	}
	copy(behind, want)
	return true
}

func (b *buffer) at() unsafe.Pointer { return unsafe.Pointer(&b.memory[0]) }

// Size implements [driver.Buffer].
func (b *buffer) Size() int { return b.size }

// Map implements [driver.Buffer].
func (b *buffer) Map(_ bool, s driver.Status) { s.(*status).done = true }

// Mapped implements [driver.Buffer].
func (b *buffer) Mapped() []byte { return b.memory[:b.size] }

// Unmap implements [driver.Buffer].
func (b *buffer) Unmap() {}

// Release implements [driver.Buffer].
func (b *buffer) Release() { _ = syscall.Munmap(b.mapping) }
