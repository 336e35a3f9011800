// Package combine holds the CPU kernel behind collectives: it joins equally long pieces of the memory of several ranks,
// always in the order of the ranks.
package combine

/*
#cgo CFLAGS: -DPLAIT_HEADERS=0x12abde10
#cgo noescape plaitk_combine
#cgo nocallback plaitk_combine
#include "c/combine.h"
*/
import "C"

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
	_ "github.com/plait-ml/plait/core/cpu/kernel/combine/c" // its kernels
)

func init() { kernel.Register(contract.Combine, combine) }

// The operations of the kernel.
const (
	Copy    = C.PLAITK_COPY
	Sum     = C.PLAITK_SUM
	Product = C.PLAITK_PRODUCT
	Min     = C.PLAITK_MIN
	Max     = C.PLAITK_MAX
	BitAnd  = C.PLAITK_BIT_AND
	BitOr   = C.PLAITK_BIT_OR
	BitXor  = C.PLAITK_BIT_XOR
)

// combine: every one of Outs = the Ins joined by operation Ints[0] and divided by Floats[0] unless it is 0. All are
// contiguous, of one dtype and length.
func combine(ctx *kernel.Context, c *core.Call) error {
	ins, outs := len(c.Ins), len(c.Outs)
	if ins == 0 || outs == 0 || c.Ins[0].Numel() == 0 {
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
	first := &c.Ins[0]
	C.plaitk_combine(C.int64_t(c.Ints[0]), C.int64_t(first.DType), C.int64_t(first.Numel()),
		&pointers[0], C.int64_t(ins), &pointers[ins], C.int64_t(outs), C.double(c.Floats[0]))
	return nil
}

// Join is the kernel for memory that belongs to no tensor: it joins n elements of each of sources into every one of targets.
// All of it is off the Go heap.
func Join(op int64, d core.DType, n int, sources, targets []unsafe.Pointer, divisor float64) {
	if n == 0 || len(targets) == 0 {
		return
	}
	C.plaitk_combine(C.int64_t(op), C.int64_t(d), C.int64_t(n), &sources[0], C.int64_t(len(sources)),
		&targets[0], C.int64_t(len(targets)), C.double(divisor))
}
