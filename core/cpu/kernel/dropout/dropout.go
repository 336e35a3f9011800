// Package dropout holds the CPU kernel of dropout.
package dropout

/*
#include "c/dropout.h"
*/
import "C"

import (
	"math"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() { kernel.Register(contract.Dropout, dropout) }

func dropout(ctx *kernel.Context, c *core.Call) error {
	y, x := &c.Outs[0], &c.Ins[0]
	var from unsafe.Pointer
	if x.Present() {
		from = x.Ptr()
	}
	a := contract.DropoutOf(c)
	apply(ctx.Pool, int(y.DType), from, y.Ptr(), y.Numel(), uint64(a.Seed), uint64(a.Offset), a.P, a.Scale)
	return nil
}

func apply(pool unsafe.Pointer, dtype int, x, y unsafe.Pointer, n int, seed, offset uint64, probability, scale float64) {
	limit := uint64(math.Min(math.Max(1-probability, 0)*0x1p32, 0x1p32))
	C.plaitk_dropout((*C.plait_pool)(pool), C.int(dtype), x, y, C.int64_t(n), C.uint64_t(seed), C.uint64_t(offset),
		C.uint64_t(limit), C.double(scale))
}
