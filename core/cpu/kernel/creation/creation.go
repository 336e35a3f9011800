// Package creation fills tensors from numbers alone on the CPU: sequences, and the indices of triangles.
package creation

/*
#include "c/creation.h"
*/
import "C"

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
	_ "github.com/plait-ml/plait/core/cpu/kernel/copying" // whose copies it makes
)

func init() {
	kernel.Register(contract.Arange, arangeCall)
	kernel.Register(contract.Linspace, linspaceCall)
	kernel.Register(contract.Logspace, logspaceCall)
	kernel.Register(contract.TriangleIndices, triangleIndicesCall)
}

// view converts an operand's view for C.
func view(v *kernel.View) *C.plait_view { return (*C.plait_view)(unsafe.Pointer(v)) }

// kernel.View and plait_view must have the same size.
var _ = [1]struct{}{}[unsafe.Sizeof(kernel.View{})-unsafe.Sizeof(C.plait_view{})]

func arangeCall(ctx *kernel.Context, c *core.Call) error {
	out := kernel.ViewOf(&c.Outs[0])
	a := contract.ArangeOf(c)
	arange(ctx.Pool, &out, a.Start, a.Step, a.FloatStart, a.FloatStep)
	return nil
}

func arange(pool unsafe.Pointer, out *kernel.View, istart, istep int64, start, step float64) {
	C.plaitk_creation_arange((*C.plait_pool)(pool), view(out), C.int64_t(istart), C.int64_t(istep), C.double(start), C.double(step))
}

func linspaceCall(ctx *kernel.Context, c *core.Call) error {
	out := kernel.ViewOf(&c.Outs[0])
	a := contract.SpaceOf(c)
	linspace(ctx.Pool, &out, a.Start, a.End)
	return nil
}

func linspace(pool unsafe.Pointer, out *kernel.View, start, end float64) {
	C.plaitk_creation_linspace((*C.plait_pool)(pool), view(out), C.double(start), C.double(end))
}

func logspaceCall(ctx *kernel.Context, c *core.Call) error {
	out := kernel.ViewOf(&c.Outs[0])
	a := contract.SpaceOf(c)
	logspace(ctx.Pool, &out, a.Start, a.End, a.Base)
	return nil
}

func logspace(pool unsafe.Pointer, out *kernel.View, start, end, base float64) {
	C.plaitk_creation_logspace((*C.plait_pool)(pool), view(out), C.double(start), C.double(end), C.double(base))
}

func triangleIndicesCall(_ *kernel.Context, c *core.Call) error {
	out := kernel.ViewOf(&c.Outs[0])
	a := contract.TriangleIndicesOf(c)
	triangleIndices(&out, a.Rows, a.Columns, a.Diagonal, a.Upper)
	return nil
}

func triangleIndices(out *kernel.View, rows, cols, diagonal int, upper bool) {
	C.plaitk_creation_triangle_indices(view(out), C.int64_t(rows), C.int64_t(cols), C.int64_t(diagonal), C.int64_t(contract.Flag(upper)))
}
