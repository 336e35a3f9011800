// Package copying holds the CPU kernels that move elements without looking at them: copies between any two layouts and
// dtypes, fills, concatenation, triangles and sequences.
package copying

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register("copy", copyCall)
	kernel.Register("fill", fillCall)
	kernel.Register("cat", catCall)
	kernel.Register("triangle", triangleCall)
	kernel.Register("triangle_indices", triangleIndicesCall)
	kernel.Register("arange", arangeCall)
	kernel.Register("linspace", linspaceCall)
	kernel.Register("logspace", logspaceCall)
}

func operand(o *core.Operand) view { return newView(o.Ptr(), int(o.DType), o.Shape, o.Strides) }

// Copy copies in, of the same shape or a number, to out and converts it to its dtype, for the kernels of other families.
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

// copy: Outs[0] = Ins[0], of the same shape, converted to its dtype. The input may be a number.
func copyCall(ctx *kernel.Context, c *core.Call) error {
	Copy(ctx, &c.Outs[0], &c.Ins[0])
	return nil
}

// fill: Outs[0] = Ins[0], a number.
func fillCall(ctx *kernel.Context, c *core.Call) error {
	fillWith(ctx, &c.Outs[0], c.Ins[0].Number)
	return nil
}

// cat: Outs[0] = the Ins, of its dtype, one after the other along dimension Ints[0].
func catCall(ctx *kernel.Context, c *core.Call) error {
	n := len(c.Ins)
	p, err := ctx.Scratch(n * (viewBytes + planBytes))
	if err != nil {
		return err
	}
	ins := unsafe.Slice((*view)(p), n)
	for i := range ins {
		ins[i] = operand(&c.Ins[i])
	}
	out := operand(&c.Outs[0])
	cat(ctx.Pool, &out, int(c.Ints[0]), ins, unsafe.Add(p, n*viewBytes))
	return nil
}

// triangle: Outs[0] = the part of each matrix of Ins[0] below the diagonal Ints[0] (above it if Ints[1]). The input may
// be the output.
func triangleCall(ctx *kernel.Context, c *core.Call) error {
	out, in := operand(&c.Outs[0]), operand(&c.Ins[0])
	triangle(ctx.Pool, &out, &in, int(c.Ints[0]), c.Ints[1] != 0)
	return nil
}

// triangle_indices: Outs[0], int64 of shape [2, n], = the rows and columns of the triangle, below the diagonal Ints[2]
// (above it if Ints[3]), of a matrix with Ints[0] rows and Ints[1] columns.
func triangleIndicesCall(_ *kernel.Context, c *core.Call) error {
	out := operand(&c.Outs[0])
	triangleIndices(&out, int(c.Ints[0]), int(c.Ints[1]), int(c.Ints[2]), c.Ints[3] != 0)
	return nil
}

// arange: Outs[0][i] = Ints[0] + i Ints[1] for an integer dtype, Floats[0] + i Floats[1] for the others.
func arangeCall(ctx *kernel.Context, c *core.Call) error {
	out := operand(&c.Outs[0])
	arange(ctx.Pool, &out, c.Ints[0], c.Ints[1], c.Floats[0], c.Floats[1])
	return nil
}

// linspace: Outs[0] = numbers from Floats[0] to Floats[1], both included.
func linspaceCall(ctx *kernel.Context, c *core.Call) error {
	out := operand(&c.Outs[0])
	linspace(ctx.Pool, &out, c.Floats[0], c.Floats[1])
	return nil
}

// logspace: Outs[0] = Floats[2] to the powers from Floats[0] to Floats[1], both included.
func logspaceCall(ctx *kernel.Context, c *core.Call) error {
	out := operand(&c.Outs[0])
	logspace(ctx.Pool, &out, c.Floats[0], c.Floats[1], c.Floats[2])
	return nil
}
