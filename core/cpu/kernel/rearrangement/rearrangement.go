// Package rearrangement keeps and repeats elements by their positions on the CPU.
package rearrangement

/*
#include "c/rearrangement.h"
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
	kernel.Register(contract.Triangle, triangleCall)
	kernel.Register(contract.RepeatIndex, repeatCall)
}

// view converts an operand's view for C.
func view(v *kernel.View) *C.plait_view { return (*C.plait_view)(unsafe.Pointer(v)) }

// kernel.View and plait_view must have the same size.
var _ = [1]struct{}{}[unsafe.Sizeof(kernel.View{})-unsafe.Sizeof(C.plait_view{})]

func triangleCall(ctx *kernel.Context, c *core.Call) error {
	out, in := kernel.ViewOf(&c.Outs[0]), kernel.ViewOf(&c.Ins[0])
	a := contract.TriangleOf(c)
	triangle(ctx.Pool, &out, &in, int(a.Diagonal), a.Upper)
	return nil
}

func triangle(pool unsafe.Pointer, out, in *kernel.View, diagonal int, upper bool) {
	C.plaitk_rearrangement_triangle((*C.plait_pool)(pool), view(out), view(in), C.int64_t(diagonal), C.int64_t(contract.Flag(upper)))
}

func repeatCall(_ *kernel.Context, c *core.Call) error {
	out, repeats := kernel.ViewOf(&c.Outs[0]), kernel.ViewOf(&c.Ins[0])
	if got, want := int(C.plaitk_rearrangement_repeat(view(&out), view(&repeats))), c.Outs[0].Numel(); got != want {
		return core.Errorf(core.StateError, c.Op, "the result would have %d elements, the values read before gave %d", got, want)
	}
	return nil
}
