package interpolate

/*
#include "c/resample.h"
*/
import "C"

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() { kernel.Register(contract.Resample, resampleCall) }

func resampleCall(ctx *kernel.Context, c *core.Call) error {
	x, y, a := &c.Ins[0], &c.Outs[0], contract.ResampleOf(c)
	out := y.Shape[a.Dim]
	if out == 0 {
		return nil
	}
	s := &C.plaitk_resample_shape{
		dtype: C.int64_t(x.DType),
		outer: C.int64_t(core.Numel(x.Shape[:a.Dim])), in: C.int64_t(x.Shape[a.Dim]), inner: C.int64_t(core.Numel(x.Shape[a.Dim+1:])), out: C.int64_t(out),
		taps: C.int64_t(len(a.Weights) / out), shift: C.int64_t(a.Shift),
	}
	scratch, err := ctx.Scratch(int(C.plaitk_resample_scratch(workers(ctx), s)))
	if err != nil {
		return err
	}
	C.plaitk_resample(workers(ctx), s, (*C.int64_t)(&a.Windows[0]), (*C.double)(&a.Weights[0]), x.Ptr(), y.Ptr(), scratch)
	return nil
}
