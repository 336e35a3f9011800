// Package matmul has the CPU kernel of matrix products.
//
// Outs[0], of shape [*, m, n], gets alpha * A @ B + beta * Outs[0], plus a bias. A is Ins[0], of shape [*, m, k], and B is
// Ins[1], of shape [*, k, n]; their leading dimensions broadcast to those of Outs[0]. Ins[2], if present, is the bias, of
// shape [n]. Floats are alpha and beta; with beta = 0 Outs[0] is not read. Ints are three flags: A is stored transposed,
// as [*, k, m]; B is stored transposed, as [*, n, k]; and, for floating point, max(., 0) is applied to the result. All operands have one dtype.
// float16 and bfloat16 are summed in float32, integers in int64; integers take whole numbers for alpha and beta.
package matmul

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/blas"
	"github.com/plait-ml/plait/core/cpu/gemm"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() { kernel.Register(contract.MatMul, matmul) }

// matrix returns the last two dimensions of an operand.
func matrix(o *core.Operand, transposed bool) gemm.Matrix {
	n := len(o.Strides)
	m := gemm.Matrix{Data: o.Ptr(), Row: o.Strides[n-2], Col: o.Strides[n-1]}
	if transposed {
		m.Row, m.Col = m.Col, m.Row
	}
	return m
}

// step returns the stride of an operand along dimension i of the batch of out.
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
	p := gemm.Product{
		M: out.Shape[rank-2], N: out.Shape[rank-1], K: a.Shape[len(a.Shape)-1],
		A: matrix(a, c.Ints[0] != 0), B: matrix(b, c.Ints[1] != 0), C: matrix(out, false),
		In: int(a.DType), Out: int(out.DType),
		Alpha: c.Floats[0], Beta: c.Floats[1],
		ReLU: c.Ints[2] != 0,
	}
	if c.Ints[0] != 0 {
		p.K = a.Shape[len(a.Shape)-2]
	}
	if len(c.Ins) > 2 && c.Ins[2].Present() {
		bias := &c.Ins[2]
		p.Bias, p.BiasStep = bias.Ptr(), bias.Strides[0]
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
