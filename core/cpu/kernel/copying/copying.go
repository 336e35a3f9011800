// Package copying has the CPU kernels that move elements: copies between any two layouts and dtypes, and fills.
package copying

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.Copy, copyCall)
	kernel.Register(contract.Fill, fillCall)
}

func operand(o *core.Operand) view { return newView(o.Ptr(), int(o.DType), o.Shape, o.Strides) }

// Copy copies in to out and converts it to out's dtype, for kernels of other families. in is a number or has out's
// shape.
func Copy(ctx *kernel.Context, out, in *core.Operand) {
	if in.IsNumber {
		fillWith(ctx, out, in.Number)
		return
	}
	o, i := operand(out), operand(in)
	copyTo(ctx.Pool, &o, &i)
}

func fillWith(ctx *kernel.Context, out *core.Operand, v core.Number) {
	if out.DType == core.Bool && v.DType.IsFloat() {
		v = core.BoolNumber(v.Float != 0)
	}
	o := operand(out)
	fill(ctx.Pool, &o, v.Int, v.Float)
}

func copyCall(ctx *kernel.Context, c *core.Call) error {
	Copy(ctx, &c.Outs[0], &c.Ins[0])
	return nil
}

func fillCall(ctx *kernel.Context, c *core.Call) error {
	fillWith(ctx, &c.Outs[0], c.Ins[0].Number)
	return nil
}
