package blas

/*
#include "blas.h"
*/
import "C"

import "unsafe"

// Alone computes C = A @ B of contiguous float32 or float64 matrices by the loaded library, on the library's own
// threads. Benchmarks use it for comparison. A library must be loaded.
func Alone(threads int, float64s, ta, tb bool, m, n, k int, a, b, c unsafe.Pointer) {
	flag := func(b bool) C.int {
		if b {
			return 1
		}
		return 0
	}
	C.plaitk_blas_alone(C.int(threads), flag(float64s), flag(ta), flag(tb), C.int64_t(m), C.int64_t(n), C.int64_t(k), a, b, c)
}
