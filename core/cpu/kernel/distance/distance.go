// Package distance has the CPU kernels of distances between rows. c/distance.h explains how it works.
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
	kernel.Register(contract.PairNormsGrad, pairsGrad)
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

func pairsGrad(ctx *kernel.Context, c *core.Call) error {
	dy, y, x, z, dx := &c.Ins[0], &c.Ins[1], &c.Ins[2], &c.Ins[3], &c.Outs[0]
	if d := x.DType; !d.IsFloat() || z.DType != d || y.DType != d || dy.DType != d || dx.DType != d {
		return core.Errorf(core.DTypeError, c.Op, "got operands of %v, %v, %v, %v and %v, want floats of one dtype", d, z.DType, y.DType, dy.DType, dx.DType)
	}
	a := contract.PairOf(c)
	p := C.struct_plaitk_pairs_grad{x: x.Ptr(), z: z.Ptr(), dx: dx.Ptr(), batch: C.int64_t(x.Shape[0]), n: C.int64_t(x.Shape[1]),
		k: C.int64_t(z.Shape[1]), m: C.int64_t(x.Shape[2]), dtype: C.int32_t(x.DType), triangle: C.bool(a.Triangle), p: C.double(a.P)}
	given := func(o *core.Operand) (g C.struct_plaitk_given) {
		g.data = o.Ptr()
		for i, stride := range o.Strides {
			g.strides[i] = C.int64_t(stride)
		}
		return g
	}
	p.dy, p.y = given(dy), given(y)
	C.plaitk_distance_pairs_grad((*C.plait_pool)(ctx.Pool), &p)
	return nil
}
