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

func init() { kernel.Register(contract.GridSample, gridCall) }

func gridCall(ctx *kernel.Context, c *core.Call) error {
	x, grid, y, a := &c.Ins[0], &c.Ins[1], &c.Outs[0], contract.GridOf(c)
	dims := len(x.Shape) - 2
	if core.Numel(x.Shape[2:]) >= 1<<31 {
		return core.Errorf(core.NotImplemented, c.Op, "an input of shape %v has too many elements for its places", x.Shape)
	}
	g := &C.struct_plaitk_grid{x: x.Ptr(), grid: grid.Ptr(), y: y.Ptr(), dtype: C.int64_t(x.DType),
		samples: C.int64_t(x.Shape[0]), channels: C.int64_t(x.Shape[1]), points: C.int64_t(core.Numel(y.Shape[2:])), dims: C.int64_t(dims),
		mode: C.int64_t(a.Mode), padding: C.int64_t(a.Padding), align_corners: C.bool(a.AlignCorners)}
	for d := range dims {
		g.in[d] = C.int64_t(x.Shape[len(x.Shape)-1-d])
	}
	scratch, err := ctx.Scratch(int(C.plaitk_grid_scratch(g)))
	if err != nil {
		return err
	}
	C.plaitk_grid_sample(workers(ctx), g, scratch)
	return nil
}
