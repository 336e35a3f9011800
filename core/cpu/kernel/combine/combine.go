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
	n := ins + outs
	scratch, err := ctx.Scratch(2 * n * int(unsafe.Sizeof(uintptr(0))))
	if err != nil {
		return err
	}
	pointers := unsafe.Slice((*unsafe.Pointer)(scratch), n)
	strides := unsafe.Slice((*C.int64_t)(unsafe.Add(scratch, n*int(unsafe.Sizeof(uintptr(0))))), n)
	for i := range n {
		x := &c.Ins[min(i, ins-1)]
		if i >= ins {
			x = &c.Outs[i-ins]
		}
		pointers[i], strides[i] = x.Ptr(), C.int64_t(x.Strides[0]*x.DType.Size())
	}
	a := contract.CombineOf(c)
	segments := max(int(a.Segments), 1)
	sources, targets := ins/segments, outs/segments
	for i := range segments {
		first := &c.Ins[i*sources]
		rows, length := 1, first.Numel()
		if len(first.Shape) == 2 {
			rows, length = first.Shape[0], first.Shape[1]
		}
		from, to := i*sources, ins+i*targets
		C.plaitk_combine_rows(C.int64_t(a.Op), C.int64_t(first.DType), C.int64_t(rows), C.int64_t(length), &pointers[from], &strides[from],
			C.int64_t(sources), &pointers[to], &strides[to], C.int64_t(targets), C.double(a.Divisor))
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
