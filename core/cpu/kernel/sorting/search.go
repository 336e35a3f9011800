package sorting

/*
#include "c/sorting.h"
*/
import "C"

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.SearchSorted, search)
	kernel.Register(contract.BinCount, func(ctx *kernel.Context, c *core.Call) error { return histogram(ctx, c, 0, 0) })
	kernel.Register(contract.HistC, func(ctx *kernel.Context, c *core.Call) error {
		a := contract.HistCOf(c)
		return histogram(ctx, c, a.Low, a.High)
	})
}

func search(ctx *kernel.Context, c *core.Call) error {
	sequence, values, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	n := 1
	if len(sequence.Shape) > 0 {
		n = sequence.Shape[len(sequence.Shape)-1]
	}
	if values.Numel() == 0 {
		return nil
	}
	rows := 1
	if len(sequence.Shape) > 1 {
		rows = core.Numel(sequence.Shape[:len(sequence.Shape)-1])
	}
	s := C.struct_plaitk_search{sequence: sequence.Ptr(), values: values.Ptr(), out: out.Ptr(), dtype: C.int32_t(values.DType),
		out_dtype: C.int32_t(out.DType), right: C.int32_t(contract.Flag(contract.Right(c))), rows: C.int64_t(rows), n: C.int64_t(n),
		per_row: C.int64_t(values.Numel() / rows)}
	if len(c.Ins) > 2 && c.Ins[2].Present() {
		s.sorter = (*C.int64_t)(c.Ins[2].Ptr())
	}
	if bad := int(C.plaitk_sorting_search((*C.plait_pool)(ctx.Pool), &s)); bad != 0 {
		return core.Errorf(core.IndexError, c.Op, "index at position %d of sorter is out of range, want [0, %d)", bad-1, n)
	}
	return nil
}

func histogram(ctx *kernel.Context, c *core.Call, low, high float64) error {
	in, out := &c.Ins[0], &c.Outs[0]
	n, bins := in.Numel(), out.Numel()
	if bins == 0 {
		return nil
	}
	parts := 1
	if bins <= 1<<14 {
		parts = min(16, max(1, n>>16))
	}
	var scratch unsafe.Pointer
	if parts > 1 {
		var err error
		if scratch, err = ctx.Scratch(parts * bins * 8); err != nil {
			return err
		}
	}
	h := C.struct_plaitk_histogram{in: in.Ptr(), out: out.Ptr(), scratch: scratch, low: C.double(low), high: C.double(high),
		dtype: C.int32_t(in.DType), n: C.int64_t(n), bins: C.int64_t(bins), parts: C.int64_t(parts)}
	if len(c.Ins) > 1 && c.Ins[1].Present() {
		h.weights = (*C.double)(c.Ins[1].Ptr())
	}
	C.plaitk_sorting_histogram((*C.plait_pool)(ctx.Pool), &h)
	return nil
}
