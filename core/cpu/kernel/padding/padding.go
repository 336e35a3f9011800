// Package padding pads images on the CPU.
package padding

/*
#include "c/padding.h"
*/
import "C"

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.Pad, padCall)
	kernel.Register(contract.PadGrad, padGradCall)
}

func workers(ctx *kernel.Context) *C.plait_pool { return (*C.plait_pool)(ctx.Pool) }

// padding describes a padding of the last dimensions.
func padding(c *core.Call, in, out *core.Operand) *C.plaitk_padding {
	a := contract.PadOf(c)
	nd := len(a.Left)
	first := len(in.Shape) - nd
	p := &C.plaitk_padding{nd: C.int64_t(nd), mode: C.int64_t(a.Mode), planes: C.int64_t(core.Numel(in.Shape[:first]))}
	for i := range nd {
		p.in[i], p.out[i], p.left[i] = C.int64_t(in.Shape[first+i]), C.int64_t(out.Shape[first+i]), C.int64_t(a.Left[i])
	}
	return p
}

// bits returns the bits of a number in dtype d.
func bits(v core.Number, d core.DType) uint64 {
	switch d {
	case core.Float64:
		return math.Float64bits(v.Float)
	case core.Float32:
		return uint64(math.Float32bits(float32(v.Float)))
	case core.Float16:
		return uint64(core.Float16Bits(float32(v.Float)))
	case core.BFloat16:
		return uint64(core.BFloat16Bits(float32(v.Float)))
	case core.Bool:
		if v.Float != 0 || v.Int != 0 {
			return 1
		}
		return 0
	}
	return uint64(v.Int)
}

func padCall(ctx *kernel.Context, c *core.Call) error {
	x, y := &c.Ins[0], &c.Outs[0]
	C.plaitk_padding_forward(workers(ctx), padding(c, x, y), C.int64_t(x.DType.Size()), C.uint64_t(bits(c.Ins[1].Number, x.DType)),
		x.Ptr(), y.Ptr(), nil)
	return nil
}

func padGradCall(ctx *kernel.Context, c *core.Call) error {
	dy, dx := &c.Ins[0], &c.Outs[0]
	p := padding(c, dx, dy)
	scratch, err := ctx.Scratch(int(C.plaitk_padding_scratch(workers(ctx), p, C.int64_t(dx.DType))))
	if err != nil {
		return err
	}
	C.plaitk_padding_backward(workers(ctx), p, C.int64_t(dx.DType), dy.Ptr(), dx.Ptr(), scratch)
	return nil
}
