package indexing

/*
#include "c/indexing.h"
*/
import "C"

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func int64s(o *core.Operand) []int64 { return unsafe.Slice((*int64)(o.Ptr()), o.Numel()) }

// checkOffsets returns the error of a call whose bags do not begin with 0, decrease or pass the n indices.
func checkOffsets(c *core.Call, offsets []int64, n int) error {
	last := int64(0)
	for b, offset := range offsets {
		if b == 0 && offset != 0 || offset < last || offset > int64(n) {
			return contract.BagOffsetError(c, b, n)
		}
		last = offset
	}
	return nil
}

func bagIndicesCall(_ *kernel.Context, c *core.Call) error {
	offsets, bags := int64s(&c.Ins[0]), int64s(&c.Outs[0])
	if err := checkOffsets(c, offsets, len(bags)); err != nil {
		return err
	}
	for b, offset := range offsets {
		end := int64(len(bags))
		if b+1 < len(offsets) {
			end = offsets[b+1]
		}
		for i := range bags[offset:end] {
			bags[int(offset)+i] = int64(b)
		}
	}
	return nil
}

func bagMaxCall(ctx *kernel.Context, c *core.Call) error {
	y, weight, index, a := &c.Outs[0], &c.Ins[0], &c.Ins[1], contract.BagMaxOf(c)
	m := C.plaitk_bag_max{y: y.Ptr(), weight: weight.Ptr(), index: (*C.int64_t)(index.Ptr()), dtype: C.int64_t(y.DType), bags: C.int64_t(y.Shape[0]),
		columns: C.int64_t(y.Shape[1]), count: C.int64_t(index.Numel()), vocabulary: C.int64_t(weight.Shape[0]), size: C.int64_t(a.Size), padding: C.int64_t(a.Padding)}
	if offsets := &c.Ins[2]; offsets.Present() {
		if err := checkOffsets(c, int64s(offsets), index.Numel()); err != nil {
			return err
		}
		m.offsets = (*C.int64_t)(offsets.Ptr())
	}
	if c.Outs[1].Present() {
		m.rows = (*C.int64_t)(c.Outs[1].Ptr())
	}
	var found C.plaitk_bad_index
	if C.plaitk_indexing_bag_max((*C.plait_pool)(ctx.Pool), &m, &found) != 0 {
		var b bad
		b.set(&found)
		return outOfRange(c, b, 0, weight.Shape[0])
	}
	return nil
}
