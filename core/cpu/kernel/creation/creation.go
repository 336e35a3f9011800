// Package creation makes tensors of numbers alone on the CPU: sequences, and the indices of triangles.
package creation

/*
#cgo CFLAGS: -DPLAIT_HEADERS=0xe25243b1
#cgo noescape plaitk_creation_arange
#cgo nocallback plaitk_creation_arange
#cgo noescape plaitk_creation_linspace
#cgo nocallback plaitk_creation_linspace
#cgo noescape plaitk_creation_logspace
#cgo nocallback plaitk_creation_logspace
#cgo noescape plaitk_creation_triangle_indices
#cgo nocallback plaitk_creation_triangle_indices
#include "c/creation.h"
*/
import "C"

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
	_ "github.com/plait-ml/plait/core/cpu/kernel/copying"    // whose copies it makes
	_ "github.com/plait-ml/plait/core/cpu/kernel/creation/c" // its kernels
)

func init() {
	kernel.Register(contract.Arange, arangeCall)
	kernel.Register(contract.Linspace, linspaceCall)
	kernel.Register(contract.Logspace, logspaceCall)
	kernel.Register(contract.TriangleIndices, triangleIndicesCall)
}

// view is how C sees an operand.
func view(v *kernel.View) *C.plait_view { return (*C.plait_view)(unsafe.Pointer(v)) }

// The two are one layout.
var _ = [1]struct{}{}[unsafe.Sizeof(kernel.View{})-unsafe.Sizeof(C.plait_view{})]

// arange: Outs[0][i] = Ints[0] + i Ints[1] for an integer dtype, Floats[0] + i Floats[1] for the others.
func arangeCall(ctx *kernel.Context, c *core.Call) error {
	out := kernel.ViewOf(&c.Outs[0])
	arange(ctx.Pool, &out, c.Ints[0], c.Ints[1], c.Floats[0], c.Floats[1])
	return nil
}

func arange(pool unsafe.Pointer, out *kernel.View, istart, istep int64, start, step float64) {
	C.plaitk_creation_arange((*C.plait_pool)(pool), view(out), C.int64_t(istart), C.int64_t(istep), C.double(start), C.double(step))
}

// linspace: Outs[0] = numbers from Floats[0] to Floats[1], both included.
func linspaceCall(ctx *kernel.Context, c *core.Call) error {
	out := kernel.ViewOf(&c.Outs[0])
	linspace(ctx.Pool, &out, c.Floats[0], c.Floats[1])
	return nil
}

func linspace(pool unsafe.Pointer, out *kernel.View, start, end float64) {
	C.plaitk_creation_linspace((*C.plait_pool)(pool), view(out), C.double(start), C.double(end))
}

// logspace: Outs[0] = Floats[2] to the powers from Floats[0] to Floats[1], both included.
func logspaceCall(ctx *kernel.Context, c *core.Call) error {
	out := kernel.ViewOf(&c.Outs[0])
	logspace(ctx.Pool, &out, c.Floats[0], c.Floats[1], c.Floats[2])
	return nil
}

func logspace(pool unsafe.Pointer, out *kernel.View, start, end, base float64) {
	C.plaitk_creation_logspace((*C.plait_pool)(pool), view(out), C.double(start), C.double(end), C.double(base))
}

// triangle_indices: Outs[0], int64 of shape [2, n], = the rows and columns of the triangle, below the diagonal Ints[2]
// (above it if Ints[3]), of a matrix with Ints[0] rows and Ints[1] columns.
func triangleIndicesCall(_ *kernel.Context, c *core.Call) error {
	out := kernel.ViewOf(&c.Outs[0])
	triangleIndices(&out, int(c.Ints[0]), int(c.Ints[1]), int(c.Ints[2]), c.Ints[3] != 0)
	return nil
}

func triangleIndices(out *kernel.View, rows, cols, diagonal int, upper bool) {
	C.plaitk_creation_triangle_indices(view(out), C.int64_t(rows), C.int64_t(cols), C.int64_t(diagonal), flag(upper))
}

func flag(b bool) C.int64_t {
	if b {
		return 1
	}
	return 0
}
