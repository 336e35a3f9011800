// Package distance has the CPU kernel of distances between rows. c/distance.h explains how it works.
package distance

/*
#include "c/distance.h"
*/
import "C"

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.PairNorms, pairs)
}

func pairs(ctx *kernel.Context, c *core.Call) error {
	x, z, y := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	if d := x.DType; !d.IsFloat() || z.DType != d || y.DType != d {
		return core.Errorf(core.DTypeError, c.Op, "got operands of %v, %v and %v, want floats of one dtype", d, z.DType, y.DType)
	}
	a := contract.PairOf(c)
	C.plaitk_distance_pairs((*C.plait_pool)(ctx.Pool), &C.struct_plaitk_pairs{x: x.Ptr(), z: z.Ptr(), y: y.Ptr(), batch: C.int64_t(x.Shape[0]),
		n: C.int64_t(x.Shape[1]), k: C.int64_t(z.Shape[1]), m: C.int64_t(x.Shape[2]), dtype: C.int32_t(x.DType),
		triangle: C.bool(a.Triangle), p: C.double(a.P)})
	return nil
}
