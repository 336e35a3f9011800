package indexing

/*
#include "c/indexing.h"
*/
import "C"

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

// nonzeroCall writes the coordinates of the nonzero elements of the contiguous input to Outs[0], one row for each.
// Outs[0] must have exactly that many rows.
func nonzeroCall(ctx *kernel.Context, c *core.Call) error {
	in := &c.Ins[0]
	n := in.Numel()
	if n == 0 || c.Outs[0].Numel() == 0 {
		return nil
	}
	offsets, err := ctx.Scratch((n/C.NONZERO_CHUNK + 1) * 8)
	if err != nil {
		return err
	}
	var shape [core.MaxDims]C.int64_t
	for i, d := range in.Shape {
		shape[i] = C.int64_t(d)
	}
	C.plaitk_indexing_nonzero((*C.plait_pool)(ctx.Pool), in.Ptr(), C.int32_t(in.DType), C.int64_t(n), C.int32_t(len(in.Shape)),
		&shape[0], (*C.int64_t)(offsets), (*C.int64_t)(c.Outs[0].Ptr()))
	return nil
}
