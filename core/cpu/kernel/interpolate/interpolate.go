// Package interpolate interpolates images on the CPU.
package interpolate

/*
#include "c/interpolate.h"
*/
import "C"

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.Interpolate, interpolateCall)
	kernel.Register(contract.InterpolateGrad, interpolateGradCall)
}

func workers(ctx *kernel.Context) *C.plait_pool { return (*C.plait_pool)(ctx.Pool) }

// interpolation describes the interpolation of in to out.
func interpolation(c *core.Call, in, out *core.Operand) *C.plaitk_interpolate_shape {
	a := contract.InterpolateOf(c)
	nd := a.Spatial
	first := len(in.Shape) - nd
	s := &C.plaitk_interpolate_shape{
		dtype:         C.int64_t(in.DType),
		planes:        C.int64_t(core.Numel(in.Shape[:first])),
		mode:          C.int64_t(a.Mode),
		align_corners: C.int64_t(contract.Flag(a.AlignCorners)),
	}
	for i := range 3 {
		s.in[i], s.out[i] = 1, 1
	}
	for i := range nd {
		d := 3 - nd + i
		s.in[d], s.out[d] = C.int64_t(in.Shape[first+i]), C.int64_t(out.Shape[first+i])
		s.scale[d] = C.double(a.Scale[i])
	}
	return s
}

func interpolateCall(ctx *kernel.Context, c *core.Call) error {
	x, y := &c.Ins[0], &c.Outs[0]
	s := interpolation(c, x, y)
	scratch, err := ctx.Scratch(int(C.plaitk_interpolate_scratch(workers(ctx), s)))
	if err != nil {
		return err
	}
	C.plaitk_interpolate_forward(workers(ctx), s, x.Ptr(), y.Ptr(), scratch)
	return nil
}

func interpolateGradCall(ctx *kernel.Context, c *core.Call) error {
	dy, dx := &c.Ins[0], &c.Outs[0]
	s := interpolation(c, dx, dy)
	scratch, err := ctx.Scratch(int(C.plaitk_interpolate_scratch(workers(ctx), s)))
	if err != nil {
		return err
	}
	C.plaitk_interpolate_backward(workers(ctx), s, dy.Ptr(), dx.Ptr(), scratch)
	return nil
}
