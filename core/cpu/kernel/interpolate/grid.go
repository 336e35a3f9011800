package interpolate

/*
#include "c/grid.h"
*/
import "C"

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.GridSample, gridCall)
	kernel.Register(contract.GridSampleGrad, gridGradCall)
}

func gridCall(ctx *kernel.Context, c *core.Call) error {
	g, err := gridOf(c, &c.Ins[0], &c.Ins[1])
	if err != nil {
		return err
	}
	g.y = c.Outs[0].Ptr()
	scratch, err := ctx.Scratch(int(C.plaitk_grid_scratch(&g)))
	if err != nil {
		return err
	}
	C.plaitk_grid_sample(workers(ctx), &g, scratch)
	return nil
}

func gridGradCall(ctx *kernel.Context, c *core.Call) error {
	g, err := gridOf(c, &c.Ins[1], &c.Ins[2])
	if err != nil {
		return err
	}
	g.dy = c.Ins[0].Ptr()
	if c.Outs[0].Present() {
		g.dx = c.Outs[0].Ptr()
	}
	if c.Outs[1].Present() {
		g.dgrid = c.Outs[1].Ptr()
	}
	scratch, err := ctx.Scratch(int(C.plaitk_grid_scratch(&g)))
	if err != nil {
		return err
	}
	C.plaitk_grid_gradients(workers(ctx), &g, scratch)
	return nil
}

func gridOf(c *core.Call, x, grid *core.Operand) (g C.struct_plaitk_grid, err error) {
	a, dims := contract.GridOf(c), len(x.Shape)-2
	if core.Numel(x.Shape[2:]) >= 1<<31 {
		return g, core.Errorf(core.NotImplemented, c.Op, "an input of shape %v has too many elements for its places", x.Shape)
	}
	g = C.struct_plaitk_grid{x: x.Ptr(), grid: grid.Ptr(), dtype: C.int64_t(x.DType), samples: C.int64_t(x.Shape[0]),
		channels: C.int64_t(x.Shape[1]), points: C.int64_t(core.Numel(grid.Shape[1 : dims+1])), dims: C.int64_t(dims),
		mode: C.int64_t(a.Mode), padding: C.int64_t(a.Padding), align_corners: C.bool(a.AlignCorners)}
	for d := range dims {
		g.in[d] = C.int64_t(x.Shape[len(x.Shape)-1-d])
	}
	return g, nil
}
