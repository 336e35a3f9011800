package gpu

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

var copyKernel, fillKernel = core.Kernel("copy"), core.Kernel("fill")

func init() {
	register("copy", copyCall)
	register("fill", copyCall)
}

var (
	copyFloats = newElementwise(identity("copy"), expr.F32, "copy.f32")
	copyInts   = newElementwise(identity("copy"), expr.I64, "copy.i64")
	copyBits   = newElementwise(identity("copy"), expr.I64, "copy.bits")
)

func identity(name string) *expr.Kernel {
	k, err := expr.NewKernel(name, "x", "x")
	if err != nil {
		panic(err)
	}
	return k
}

// copyCall is copy and fill: Outs[0] = Ins[0], of the same shape or a number, converted to its dtype.
func copyCall(r *recorder, c *core.Call) error {
	out, in := &c.Outs[0], &c.Ins[0]
	m := copyProgram(c)
	if m == copyBits && in.IsNumber {
		in.Number.Int = int64(math.Float64bits(in.Number.Float))
	}
	if m == copyFloats && !in.IsNumber {
		l := newLayout(out.Shape, out, in)
		if across, down, ok := transposes(&l, out, in); ok {
			return transpose(r, &l, out, in, across, down)
		}
	}
	return m.run(r, c)
}

// copyProgram returns what copy or fill applies to every element.
func copyProgram(c *core.Call) *elementwise {
	out, in := &c.Outs[0], &c.Ins[0]
	switch {
	case out.DType == core.Float64 && (in.IsNumber || in.DType == core.Float64):
		return copyBits
	case in.IsNumber && (out.DType.IsFloat() || out.DType == core.Bool && in.Number.DType.IsFloat()):
		return copyFloats
	case !in.IsNumber && (out.DType.IsFloat() || in.DType.IsFloat()):
		return copyFloats
	}
	return copyInts
}
