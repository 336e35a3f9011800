// Package combine has the CPU kernel behind collectives: it joins equally long pieces of several ranks' memory, always in rank order.
package combine

/*
#include "c/combine.h"
*/
import "C"

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() { kernel.Register(contract.Combine, combine) }

func combine(ctx *kernel.Context, c *core.Call) error {
	ins, outs := len(c.Ins), len(c.Outs)
	if ins == 0 || outs == 0 {
		return nil
	}
	scratch, err := ctx.Scratch((ins + outs) * int(unsafe.Sizeof(uintptr(0))))
	if err != nil {
		return err
	}
	pointers := unsafe.Slice((*unsafe.Pointer)(scratch), ins+outs)
	for i := range c.Ins {
		pointers[i] = c.Ins[i].Ptr()
	}
	for i := range c.Outs {
		pointers[ins+i] = c.Outs[i].Ptr()
	}
	a := contract.CombineOf(c)
	segments := max(int(a.Segments), 1)
	sources, targets := ins/segments, outs/segments
	for i := range segments {
		first := &c.Ins[i*sources]
		C.plaitk_combine(C.int64_t(a.Op), C.int64_t(first.DType), C.int64_t(first.Numel()),
			&pointers[i*sources], C.int64_t(sources), &pointers[ins+i*targets], C.int64_t(targets), C.double(a.Divisor))
	}
	return nil
}

// Join is the kernel for memory that belongs to no tensor. It combines n elements of all sources and writes the result
// to every target. All memory is outside the Go heap.
func Join(op contract.CombineOp, d core.DType, n int, sources, targets []unsafe.Pointer, divisor float64) {
	if n == 0 || len(targets) == 0 {
		return
	}
	C.plaitk_combine(C.int64_t(op), C.int64_t(d), C.int64_t(n), &sources[0], C.int64_t(len(sources)),
		&targets[0], C.int64_t(len(targets)), C.double(divisor))
}
