package copying

/*
#cgo CFLAGS: -DPLAIT_HEADERS=0xf6908a39
#cgo noescape plaitk_copying_copy
#cgo nocallback plaitk_copying_copy
#cgo noescape plaitk_copying_fill
#cgo nocallback plaitk_copying_fill
#cgo noescape plaitk_copying_cat
#cgo nocallback plaitk_copying_cat
#cgo noescape plaitk_copying_triangle
#cgo nocallback plaitk_copying_triangle
#cgo noescape plaitk_copying_arange
#cgo nocallback plaitk_copying_arange
#cgo noescape plaitk_copying_linspace
#cgo nocallback plaitk_copying_linspace
#cgo noescape plaitk_copying_logspace
#cgo nocallback plaitk_copying_logspace
#cgo noescape plaitk_copying_triangle_indices
#cgo nocallback plaitk_copying_triangle_indices
#include "c/copying.h"
*/
import "C"

import (
	"unsafe"

	_ "github.com/plait-ml/plait/core/cpu/kernel/copying/c" // its kernels
	_ "github.com/plait-ml/plait/core/cpu/pool"             // defines plait_parallel
)

// A view is one operand: shape, strides in elements, and the address of the element at index 0.
type view = C.plait_view

func newView(p unsafe.Pointer, dtype int, shape, strides []int) view {
	v := view{data: (*C.char)(p), dtype: C.int64_t(dtype), ndim: C.int64_t(len(shape))}
	for i := range shape {
		v.shape[i], v.stride[i] = C.int64_t(shape[i]), C.int64_t(strides[i])
	}
	return v
}

// What cat needs of scratch for each input.
const (
	planBytes = C.sizeof_plaitk_copy_plan
	viewBytes = C.sizeof_plait_view
)

func copyTo(pool unsafe.Pointer, out, in *view) {
	C.plaitk_copying_copy((*C.plait_pool)(pool), out, in)
}

func fill(pool unsafe.Pointer, out *view, integer int64, real float64) {
	C.plaitk_copying_fill((*C.plait_pool)(pool), out, C.int64_t(integer), C.double(real))
}

func cat(pool unsafe.Pointer, out *view, dim int, ins []view, scratch unsafe.Pointer) {
	C.plaitk_copying_cat((*C.plait_pool)(pool), out, C.int64_t(dim), C.int64_t(len(ins)), unsafe.SliceData(ins),
		(*C.plaitk_copy_plan)(scratch))
}

func triangle(pool unsafe.Pointer, out, in *view, diagonal int, upper bool) {
	C.plaitk_copying_triangle((*C.plait_pool)(pool), out, in, C.int64_t(diagonal), flag(upper))
}

func triangleIndices(out *view, rows, cols, diagonal int, upper bool) {
	C.plaitk_copying_triangle_indices(out, C.int64_t(rows), C.int64_t(cols), C.int64_t(diagonal), flag(upper))
}

func arange(pool unsafe.Pointer, out *view, istart, istep int64, start, step float64) {
	C.plaitk_copying_arange((*C.plait_pool)(pool), out, C.int64_t(istart), C.int64_t(istep), C.double(start), C.double(step))
}

func linspace(pool unsafe.Pointer, out *view, start, end float64) {
	C.plaitk_copying_linspace((*C.plait_pool)(pool), out, C.double(start), C.double(end))
}

func logspace(pool unsafe.Pointer, out *view, start, end, base float64) {
	C.plaitk_copying_logspace((*C.plait_pool)(pool), out, C.double(start), C.double(end), C.double(base))
}

func flag(b bool) C.int64_t {
	if b {
		return 1
	}
	return 0
}
