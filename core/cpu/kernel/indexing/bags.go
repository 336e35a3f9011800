package indexing

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func bagIndicesCall(_ *kernel.Context, c *core.Call) error {
	int64s := func(o *core.Operand) []int64 { return unsafe.Slice((*int64)(o.Ptr()), o.Numel()) }
	offsets, bags := int64s(&c.Ins[0]), int64s(&c.Outs[0])
	n, last := int64(len(bags)), int64(0)
	for b, offset := range offsets {
		if b == 0 && offset != 0 || offset < last || offset > n {
			return contract.BagOffsetError(c, b)
		}
		for i := last; i < offset; i++ {
			bags[i] = int64(b - 1)
		}
		last = offset
	}
	for i := last; i < n; i++ {
		bags[i] = int64(len(offsets) - 1)
	}
	return nil
}
