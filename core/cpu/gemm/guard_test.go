//go:build unix

package gemm_test

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/gemm"
)

// guarded returns n bytes between two inaccessible pages. The bytes touch the page after them if atEnd, otherwise the
// page before.
func guarded(t *testing.T, n int, atEnd bool) unsafe.Pointer {
	p, mapped := between(t, n, atEnd)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(mapped)) })
	return p
}

// between is guarded for a caller that unmaps the memory itself.
func between(t *testing.T, n int, atEnd bool) (p unsafe.Pointer, mapped []byte) {
	page := syscall.Getpagesize()
	pages := (n + page - 1) / page
	mem, err := syscall.Mmap(-1, 0, (pages+2)*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	require.NoError(t, syscall.Mprotect(mem[:page], syscall.PROT_NONE))
	require.NoError(t, syscall.Mprotect(mem[(pages+1)*page:], syscall.PROT_NONE))
	if atEnd {
		return unsafe.Pointer(&mem[(pages+1)*page-n]), mem
	}
	return unsafe.Pointer(&mem[page]), mem
}

// guardedMemory is scratch memory between two inaccessible pages, filled with NaN. It has exactly the bytes that a
// product asks for, rounded up to the alignment.
type guardedMemory struct {
	t      *testing.T
	mapped []byte
}

func newGuardedMemory(t *testing.T) *guardedMemory {
	m := &guardedMemory{t: t}
	t.Cleanup(m.free)
	return m
}

func (m *guardedMemory) free() {
	if m.mapped != nil {
		require.NoError(m.t, syscall.Munmap(m.mapped))
		m.mapped = nil
	}
}

func (m *guardedMemory) Scratch(n int) (unsafe.Pointer, error) {
	m.free()
	n = (n + 63) &^ 63
	p, mapped := between(m.t, n, true)
	m.mapped = mapped
	for i := range min(n, 1<<18) {
		*(*byte)(unsafe.Add(p, i)) = 0xff
	}
	return p, nil
}

// An access outside an operand ends the test with a segmentation fault.
func TestStaysInsideOperands(t *testing.T) {
	memory := newGuardedMemory(t)
	forEachVariant(t, func(t *testing.T) {
		for _, dtype := range []core.DType{core.Float32, core.Float64, core.BFloat16} {
			for _, s := range [][3]int{{1, 1, 1}, {1, 7, 9}, {3, 33, 70}, {13, 19, 21}, {100, 101, 103}, {5, 3, 4100}} {
				m, n, k := s[0], s[1], s[2]
				for mask := range 8 {
					size := dtype.Size()
					a, b, c := guarded(t, m*k*size, mask&4 == 0), guarded(t, k*n*size, mask&4 == 0),
						guarded(t, m*n*size, mask&4 == 0)
					p := gemm.Product{M: m, N: n, K: k, In: int(dtype), Out: int(dtype), Alpha: 1,
						A: gemm.Matrix{Data: a, Row: k, Col: 1}, B: gemm.Matrix{Data: b, Row: n, Col: 1},
						C: gemm.Matrix{Data: c, Row: n, Col: 1}}
					if mask&1 != 0 {
						p.A.Row, p.A.Col = 1, m
					}
					if mask&2 != 0 {
						p.B.Row, p.B.Col = 1, k
					}
					require.NoError(t, p.Run(nil, memory))
				}
			}
		}
	})
}
