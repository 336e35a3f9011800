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

// guarded returns n bytes between pages that must not be touched, against the one after if atEnd and the one before
// otherwise.
func guarded(t *testing.T, n int, atEnd bool) unsafe.Pointer {
	page := syscall.Getpagesize()
	pages := (n + page - 1) / page
	mem, err := syscall.Mmap(-1, 0, (pages+2)*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(mem)) })
	require.NoError(t, syscall.Mprotect(mem[:page], syscall.PROT_NONE))
	require.NoError(t, syscall.Mprotect(mem[(pages+1)*page:], syscall.PROT_NONE))
	if atEnd {
		return unsafe.Pointer(&mem[(pages+1)*page-n])
	}
	return unsafe.Pointer(&mem[page])
}

// A read or write beside an operand ends the test with a fault.
func TestStaysInsideOperands(t *testing.T) {
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
					require.NoError(t, p.Run(nil))
				}
			}
		}
	})
}
