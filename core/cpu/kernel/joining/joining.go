// Package joining joins tensors on the CPU.
package joining

/*
#include "c/joining.h"
*/
import "C"

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
	_ "github.com/plait-ml/plait/core/cpu/kernel/copying" // whose copies it makes
)

func init() { kernel.Register(contract.Cat, catCall) }

// view converts an operand's view for C.
func view(v *kernel.View) *C.plait_view { return (*C.plait_view)(unsafe.Pointer(v)) }

// kernel.View and plait_view must have the same size.
var _ = [1]struct{}{}[unsafe.Sizeof(kernel.View{})-unsafe.Sizeof(C.plait_view{})]

// Bytes of scratch that cat needs for each input.
const (
	planBytes = C.sizeof_plaitk_copy_plan
	viewBytes = C.sizeof_plait_view
)

func catCall(ctx *kernel.Context, c *core.Call) error {
	n := len(c.Ins)
	p, err := ctx.Scratch(n * (viewBytes + planBytes))
	if err != nil {
		return err
	}
	ins := unsafe.Slice((*kernel.View)(p), n)
	for i := range ins {
		ins[i] = kernel.ViewOf(&c.Ins[i])
	}
	out := kernel.ViewOf(&c.Outs[0])
	cat(ctx.Pool, &out, contract.Dim(c), ins, unsafe.Add(p, n*viewBytes))
	return nil
}

func cat(pool unsafe.Pointer, out *kernel.View, dim int, ins []kernel.View, scratch unsafe.Pointer) {
	C.plaitk_joining_cat((*C.plait_pool)(pool), view(out), C.int64_t(dim), C.int64_t(len(ins)), view(unsafe.SliceData(ins)),
		(*C.plaitk_copy_plan)(scratch))
}
