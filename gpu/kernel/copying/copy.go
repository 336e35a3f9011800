// Package copying has the GPU kernels that copy, fill, convert and transpose.
package copying

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/elementwise"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.Copy, Copy)
	kernel.Register(contract.Fill, Copy)
}

var (
	copyFloats = elementwise.New(identity("copy"), expr.F32, "copy.f32")
	copyInts   = elementwise.New(identity("copy"), expr.I64, "copy.i64")
	copyBits   = elementwise.New(identity("copy"), expr.I64, "copy.bits")
)

func identity(name string) *expr.Kernel {
	k, err := expr.NewKernel(name, "x", "x")
	if err != nil {
		panic(err)
	}
	return k
}

// Copy implements copy and fill: Outs[0] = Ins[0], a tensor of the same shape or a number, converted to the dtype of Outs[0].
func Copy(r *shader.Recorder, c *core.Call) error {
	out, in := &c.Outs[0], &c.Ins[0]
	if !in.IsNumber && in.DType == out.DType && in.Contiguous() && out.Contiguous() {
		if done, err := r.Transfer(out, in); done || err != nil {
			return err
		}
	}
	m := KernelOf(c)
	if m == copyBits {
		return copyDoubles(r, c)
	}
	if m == copyInts && in.IsNumber && fillsPairs(out) {
		return fillPairs(r, out, in.Number.Int)
	}
	if m == copyFloats && !in.IsNumber {
		l := shader.NewLoop(out.Shape, out, in)
		if across, down, ok := transposes(&l, out, in); ok {
			return transpose(r, &l, out, in, across, down)
		}
		if flips(&l, out, in) {
			return flipRows(r, &l, out, in)
		}
		if joinsRows(&l, out, in) {
			return joinRows(r, &l, out, in)
		}
	}
	return m.Run(r, c)
}

// copyDoubles copies float64 numbers as 64-bit integers, which no language lacks.
func copyDoubles(r *shader.Recorder, c *core.Call) error {
	out, in, double := c.Outs[0], c.Ins[0], r.Float64
	if in.IsNumber {
		in.Number.Int = int64(math.Float64bits(in.Number.Float))
	}
	out.DType, in.DType, r.Float64 = core.Int64, core.Int64, false
	defer func() { r.Float64 = double }()
	if in.IsNumber && fillsPairs(&out) {
		return fillPairs(r, &out, in.Number.Int)
	}
	return copyBits.Run(r, &core.Call{Op: c.Op, Outs: []core.Operand{out}, Ins: []core.Operand{in}})
}

// KernelOf returns the elementwise kernel that a copy or fill is equivalent to.
func KernelOf(c *core.Call) *elementwise.Kernel {
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
