package sorting

/*
#include "c/sorting.h"
*/
import "C"

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.Unique, func(ctx *kernel.Context, c *core.Call) error { return unique(ctx, c, false) })
	kernel.Register(contract.UniqueRows, func(ctx *kernel.Context, c *core.Call) error { return unique(ctx, c, true) })
}

func unique(ctx *kernel.Context, c *core.Call, rows bool) error {
	in := &c.Ins[0]
	n, width := in.Numel(), 1
	if rows {
		n, width = in.Shape[0], in.Shape[1]
	}
	total := (*C.int64_t)(c.Outs[3].Ptr())
	if n == 0 {
		*total = 0
		return nil
	}
	if n > math.MaxUint32 {
		return core.Errorf(core.NotImplemented, c.Op, "got %d elements, want at most %d", n, math.MaxUint32)
	}
	u := C.struct_plaitk_unique{in: in.Ptr(), values: c.Outs[0].Ptr(), inverse: (*C.int64_t)(kernel.Ptr(&c.Outs[1])),
		counts: (*C.int64_t)(kernel.Ptr(&c.Outs[2])), total: total, dtype: C.int32_t(in.DType), consecutive: C.int32_t(contract.Flag(contract.Consecutive(c))), n: C.int64_t(n)}
	bytes := 2 * 8 * n
	if !rows {
		bytes = int(C.plaitk_sorting_unique_scratch(&u))
	}
	scratch, err := ctx.Scratch(bytes)
	if err != nil {
		return err
	}
	u.scratch = scratch
	if rows {
		C.plaitk_sorting_unique_rows(&u, C.int64_t(width))
	} else {
		C.plaitk_sorting_unique((*C.plait_pool)(ctx.Pool), &u)
	}
	return nil
}
