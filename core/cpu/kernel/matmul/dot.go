package matmul

/*
#include "c/dot.h"
*/
import "C"

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() { kernel.Register(contract.Dot, dot) }

// dot computes a dot product of vectors.
func dot(ctx *kernel.Context, c *core.Call) error {
	x, y, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	n := x.Shape[0]
	pieces := (n + C.PLAITK_DOT_PIECE - 1) / C.PLAITK_DOT_PIECE
	sums, err := ctx.Scratch(max(1, pieces) * C.PLAITK_DOT_SUMS * 8)
	if err != nil {
		return err
	}
	C.plaitk_matmul_dot((*C.plait_pool)(ctx.Pool), C.int(x.DType), C.int(contract.Flag(x.Complex())), C.int(c.Ints[0]),
		x.Ptr(), y.Ptr(), C.int64_t(n), out.Ptr(), (*C.double)(sums))
	return nil
}
