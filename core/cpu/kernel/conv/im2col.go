package conv

/*
#include "c/im2col.h"
*/
import "C"

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.Im2Col, im2colCall)
	kernel.Register(contract.Col2Im, col2imCall)
}

func workers(ctx *kernel.Context) *C.plait_pool { return (*C.plait_pool)(ctx.Pool) }

// patches describes the patches of an image.
func patches(c *core.Call, image *core.Operand) *C.plaitk_conv_patches {
	a := contract.PatchesOf(c)
	first := len(image.Shape) - 2
	s := &C.plaitk_conv_patches{dtype: C.int64_t(image.DType), planes: C.int64_t(core.Numel(image.Shape[:first]))}
	for d := range 2 {
		s.in[d], s.kernel[d], s.stride[d] = C.int64_t(image.Shape[first+d]), C.int64_t(a.Kernel[d]), C.int64_t(a.Stride[d])
		s.pad[d], s.dilation[d], s.out[d] = C.int64_t(a.Padding[d]), C.int64_t(a.Dilation[d]), C.int64_t(a.Places[d])
	}
	return s
}

func im2colCall(ctx *kernel.Context, c *core.Call) error {
	x, y := &c.Ins[0], &c.Outs[0]
	C.plaitk_conv_im2col(workers(ctx), patches(c, x), x.Ptr(), y.Ptr())
	return nil
}

func col2imCall(ctx *kernel.Context, c *core.Call) error {
	y, x := &c.Ins[0], &c.Outs[0]
	s := patches(c, x)
	scratch, err := ctx.Scratch(int(C.plaitk_conv_col2im_scratch(workers(ctx), s)))
	if err != nil {
		return err
	}
	C.plaitk_conv_col2im(workers(ctx), s, y.Ptr(), x.Ptr(), scratch)
	return nil
}
