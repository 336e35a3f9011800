// Package special has the CPU kernels of functions that have no elementwise body: "nextafter" of two tensors; "frexp", whose second result
// is the int32 exponents; and "special_function" and "special_pair" of one and two numbers, where an attribute selects the function.
// Operands are contiguous, of one shape, and float32 or float64.
package special

/*
#include "c/special.h"
*/
import "C"

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	for k, op := range map[core.KernelID]C.int32_t{contract.NextAfter: C.SPECIAL_NEXTAFTER, contract.Frexp: C.SPECIAL_FREXP, contract.Special: C.SPECIAL_FUNCTION, contract.SpecialPair: C.SPECIAL_PAIR} {
		kernel.Register(k, func(ctx *kernel.Context, c *core.Call) error {
			x := &c.Ins[0]
			s := C.struct_plaitk_special{op: op, dtype: C.int32_t(x.DType), n: C.int64_t(x.Numel()), x: x.Ptr(), out: c.Outs[0].Ptr()}
			if len(c.Ins) > 1 {
				s.y = c.Ins[1].Ptr()
			}
			if len(c.Outs) > 1 {
				s.exponents = (*C.int32_t)(c.Outs[1].Ptr())
			}
			switch k {
			case contract.Special:
				s.function = C.int32_t(contract.SpecialOf(c))
			case contract.SpecialPair:
				a := contract.SpecialPairOf(c)
				s.function, s.derivative = C.int32_t(a.Function), C.bool(a.Derivative)
			}
			if at := C.plaitk_special_too_long(&s); at >= 0 {
				return core.Errorf(core.ValueError, c.Op, "the degree at position %d is more than is computed, %d", int64(at), int64(C.SPECIAL_LONGEST))
			}
			C.plaitk_special_run((*C.plait_pool)(ctx.Pool), &s)
			return nil
		})
	}
}
