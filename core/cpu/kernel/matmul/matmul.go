// Package matmul has the CPU kernel of matrix products.
//
// float16 and bfloat16 are summed in float32, integers in int64; integers take whole numbers for alpha and beta.
package matmul

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/blas"
	"github.com/plait-ml/plait/core/cpu/gemm"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.MatMul, matmul)
	kernel.Register(contract.ComplexMatMul, complexMatmul)
}

// matrix returns the last two dimensions of an operand as a matrix.
func matrix(o *core.Operand, transposed bool) gemm.Matrix {
	n := len(o.Strides)
	m := gemm.Matrix{Data: o.Ptr(), Row: o.Strides[n-2], Col: o.Strides[n-1]}
	if transposed {
		m.Row, m.Col = m.Col, m.Row
	}
	return m
}

// step returns the stride of an operand along batch dimension i of out.
func step(o, out *core.Operand, i int) int {
	i -= len(out.Shape) - len(o.Shape)
	if i < 0 || o.Shape[i] == 1 {
		return 0
	}
	return o.Strides[i]
}

func matmul(ctx *kernel.Context, c *core.Call) error {
	out, a, b := &c.Outs[0], &c.Ins[0], &c.Ins[1]
	rank := len(out.Shape)
	attrs := contract.MatMulOf(c)
	p := gemm.Product{
		M: out.Shape[rank-2], N: out.Shape[rank-1], K: a.Shape[len(a.Shape)-1],
		A: matrix(a, attrs.TransposeA), B: matrix(b, attrs.TransposeB), C: matrix(out, false),
		In: int(a.DType), Out: int(out.DType),
		Alpha: attrs.Alpha, Beta: attrs.Beta,
	}
	if attrs.TransposeA {
		p.K = a.Shape[len(a.Shape)-2]
	}
	if len(c.Ins) > 2 && c.Ins[2].Present() {
		bias := &c.Ins[2]
		p.Bias, p.BiasStep = bias.Ptr(), bias.Strides[0]
	}
	if attrs.Rounded {
		p.In = p.Out
		for i, bit := range []int{gemm.OperandA, gemm.OperandB, gemm.OperandBias} {
			if i < len(c.Ins) && c.Ins[i].Present() && c.Ins[i].DType == core.Float32 {
				p.Rounded |= bit
			}
		}
	}
	var dims [gemm.MaxDims]gemm.Dim
	for i := range rank - 2 {
		dims[i] = gemm.Dim{Size: out.Shape[i], A: step(a, out, i), B: step(b, out, i), C: out.Strides[i]}
	}
	p.Batch = dims[:rank-2]
	if !a.DType.IsFloat() {
		return integers(ctx.Pool, c, &p)
	}
	if err := blas.Load(); err != nil {
		return core.Errorf(core.ValueError, c.Op, "%w", err)
	}
	return p.Run(ctx.Pool, ctx)
}

// complexMatmul multiplies rows of the parts of complex numbers, in turn, by a turned matrix.
func complexMatmul(ctx *kernel.Context, c *core.Call) error {
	out, a, b := &c.Outs[0], &c.Ins[0], &c.Ins[1]
	rank := len(out.Shape) - 1
	rows := func(o *core.Operand) gemm.Matrix {
		return gemm.Matrix{Data: o.Ptr(), Row: o.Strides[len(o.Strides)-3], Col: 1}
	}
	p := gemm.Product{
		M: out.Shape[rank-2], N: 2 * out.Shape[rank-1], K: 2 * a.Shape[len(a.Shape)-2],
		A: rows(a), C: rows(out),
		B:  gemm.Matrix{Data: b.Ptr(), Row: b.Strides[len(b.Strides)-3] / 2, Col: b.Strides[len(b.Strides)-2] / 2},
		In: int(a.DType), Out: int(out.DType), Turned: true,
		Alpha: c.Floats[0], Beta: c.Floats[1],
	}
	var dims [gemm.MaxDims]gemm.Dim
	for i := range rank - 2 {
		dims[i] = gemm.Dim{Size: out.Shape[i], A: step(a, out, i), B: step(b, out, i), C: out.Strides[i]}
	}
	p.Batch = dims[:rank-2]
	return p.Run(ctx.Pool, ctx)
}
