package loss

/*
#include "c/ctc.h"
*/
import "C"

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.CTCLoss, ctc)
	kernel.Register(contract.CTCLossBackward, ctcBackward)
}

// temporal returns what the kernels take, and scratch.
func temporal(ctx *kernel.Context, c *core.Call) (p *C.struct_plaitk_ctc, lengths *C.int64_t, scratch unsafe.Pointer, err error) {
	x, targets, a := &c.Ins[0], &c.Ins[1], contract.CTCOf(c)
	if d := x.DType; d != core.Float32 && d != core.Float64 || targets.DType != core.Int64 {
		return nil, nil, nil, core.Errorf(core.DTypeError, c.Op, "got operands of %v and %v, want float32 or float64, and int64", d, targets.DType)
	}
	p = &C.struct_plaitk_ctc{x: x.Ptr(), targets: targets.Ptr(), dtype: C.int64_t(x.DType), steps: C.int64_t(x.Shape[0]),
		samples: C.int64_t(x.Shape[1]), classes: C.int64_t(x.Shape[2]), places: C.int64_t(2*a.Labels + 1), blank: C.int64_t(a.Blank)}
	scratch, err = ctx.Scratch(int(C.plaitk_ctc_scratch(p)))
	return p, (*C.int64_t)(unsafe.SliceData(a.Samples)), scratch, err
}

func ctc(ctx *kernel.Context, c *core.Call) error {
	p, lengths, scratch, err := temporal(ctx, c)
	if err != nil {
		return err
	}
	var forward unsafe.Pointer
	if len(c.Outs) > 1 {
		forward = kernel.Ptr(&c.Outs[1])
	}
	if at := C.plaitk_ctc((*C.plait_pool)(ctx.Pool), p, lengths, c.Outs[0].Ptr(), forward, scratch); at >= 0 {
		return core.Errorf(core.IndexError, c.Op, "target %d at position %d is no class, got %d classes",
			*(*int64)(unsafe.Add(c.Ins[1].Ptr(), int(at)*8)), int64(at), c.Ins[0].Shape[2])
	}
	return nil
}

func ctcBackward(ctx *kernel.Context, c *core.Call) error {
	p, lengths, scratch, err := temporal(ctx, c)
	if err != nil {
		return err
	}
	C.plaitk_ctc_backward((*C.plait_pool)(ctx.Pool), p, lengths, c.Ins[2].Ptr(), c.Ins[3].Ptr(), c.Outs[0].Ptr(), scratch)
	return nil
}
