package copying

/*
#include "c/copying.h"
*/
import "C"

import (
	"unsafe"
)

// A view is an operand: shape, strides in elements, and the address of the element at index 0.
type view = C.plait_view

func newView(p unsafe.Pointer, dtype int, shape, strides []int) view {
	v := view{data: (*C.char)(p), dtype: C.int64_t(dtype), ndim: C.int64_t(len(shape))}
	for i := range shape {
		v.shape[i], v.stride[i] = C.int64_t(shape[i]), C.int64_t(strides[i])
	}
	return v
}

func copyTo(pool unsafe.Pointer, out, in *view) {
	C.plaitk_copying_copy((*C.plait_pool)(pool), out, in)
}

func fill(pool unsafe.Pointer, out *view, integer int64, real float64) {
	C.plaitk_copying_fill((*C.plait_pool)(pool), out, C.int64_t(integer), C.double(real))
}

// withoutAVX512 says whether conversions do without AVX-512. For tests, while no kernel runs.
func withoutAVX512(without bool) { C.plaitk_copying_without_avx512(C.bool(without)) }
