package conv

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.ConvForward, forwardCall)
	kernel.Register(contract.ConvInputGrad, inputGradCall)
	kernel.Register(contract.ConvWeightGrad, weightGradCall)
}

// describe returns the geometry of the convolution x, w -> y.
func describe(c *core.Call, x, w, y *core.Operand) *geometry {
	g := &geometry{dtype: int64(x.DType), n: int64(x.Shape[0]), cin: int64(x.Shape[1]), cout: int64(y.Shape[1])}
	a, nd := contract.ConvOf(c), len(x.Shape)-2
	for i := range 3 {
		g.in[i], g.out[i], g.kernel[i], g.stride[i], g.dilation[i] = 1, 1, 1, 1, 1
	}
	for i := range nd {
		d := 3 - nd + i
		g.in[d], g.out[d], g.kernel[d] = int64(x.Shape[2+i]), int64(y.Shape[2+i]), int64(w.Shape[2+i])
		g.stride[d], g.padding[d], g.dilation[d] = a.Stride[i], a.Padding[i], a.Dilation[i]
	}
	g.groups = a.Groups
	return g
}

func bias(c *core.Call) unsafe.Pointer {
	if b := &c.Ins[2]; b.Present() {
		return b.Ptr()
	}
	return nil
}

func forwardCall(ctx *kernel.Context, c *core.Call) error {
	x, w, y := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	g := describe(c, x, w, y)
	if w.DType != x.DType {
		g.rounded = 1
	}
	scratch, err := ctx.Scratch(g.forwardScratch(ctx.Pool))
	if err != nil {
		return err
	}
	g.forward(ctx.Pool, x.Ptr(), w.Ptr(), bias(c), y.Ptr(), scratch)
	return nil
}

func inputGradCall(ctx *kernel.Context, c *core.Call) error {
	dy, w, dx := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	g := describe(c, dx, w, dy)
	scratch, err := ctx.Scratch(g.inputGradScratch(ctx.Pool))
	if err != nil {
		return err
	}
	g.inputGrad(ctx.Pool, dy.Ptr(), w.Ptr(), bias(c), dx.Ptr(), scratch)
	return nil
}

func weightGradCall(ctx *kernel.Context, c *core.Call) error {
	x, dy, dw := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	g := describe(c, x, dw, dy)
	scratch, err := ctx.Scratch(g.weightGradScratch(ctx.Pool))
	if err != nil {
		return err
	}
	g.weightGrad(ctx.Pool, x.Ptr(), dy.Ptr(), dw.Ptr(), scratch)
	return nil
}
