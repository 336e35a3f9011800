// Package attention holds the CPU kernels of scaled dot product attention and its gradient.
package attention

/*
#include "c/attention.h"
*/
import "C"

import (
	"math"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	_ "github.com/plait-ml/plait/core/cpu/gemm" // defines plaitk_gemm_by_tiles
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.Attention, attention)
	kernel.Register(contract.AttentionBackward, attentionBackward)
}

type (
	problem = C.struct_plaitk_attention
	view    = C.struct_plaitk_attention_view
)

func newView(p unsafe.Pointer, strides []int) view {
	return view{data: p, batch: C.int64_t(strides[0]), head: C.int64_t(strides[1]), row: C.int64_t(strides[2])}
}

// operand returns the view of a [batch, heads, length, dim] operand with a last stride of 1. The view of an absent
// operand has no data.
func operand(o *core.Operand) view {
	if !o.Present() {
		return view{}
	}
	return newView(o.Ptr(), o.Strides)
}

// newProblem describes the attention of q, k and v. Masks and dropout are added afterwards.
func newProblem(dtype int, q, k, v view, qShape, kShape []int, valueDim int, scale float64, causal bool) problem {
	p := problem{dtype: C.int(dtype), q: q, k: k, v: v, batch: C.int64_t(qShape[0]), heads: C.int64_t(qShape[1]),
		kv_heads: C.int64_t(kShape[1]), queries: C.int64_t(qShape[2]), keys: C.int64_t(kShape[2]), dim: C.int64_t(qShape[3]),
		value_dim: C.int64_t(valueDim), scale: C.double(scale), mask_dtype: -1}
	if causal {
		p.causal = 1
	}
	return p
}

func setMask(p *problem, dtype int, data unsafe.Pointer, strides []int) {
	p.mask_dtype, p.mask = C.int(dtype), data
	p.mask_batch, p.mask_head = C.int64_t(strides[0]), C.int64_t(strides[1])
	p.mask_query, p.mask_key = C.int64_t(strides[2]), C.int64_t(strides[3])
}

// setDropout enables dropout with the given probability. Its random words start at the generator's offset, and there are those of allHeads
// heads for each element of the batch.
func setDropout(p *problem, probability float64, seed, offset uint64, allHeads int) {
	keep := 1 - probability
	p.dropout, p.seed, p.offset, p.all_heads = 1, C.uint64_t(seed), C.uint64_t(offset), C.int64_t(allHeads)
	p.keep_limit = C.uint64_t(math.Min(math.Max(keep, 0)*0x1p32, 0x1p32))
	if keep > 0 {
		p.keep_scale = C.double(1 / keep)
	}
}

func forward(ctx *kernel.Context, p *problem, o view, lse unsafe.Pointer) error {
	scratch, err := ctx.Scratch(int(C.plaitk_attention_forward_scratch(p)))
	if err != nil {
		return err
	}
	C.plaitk_attention_forward((*C.plait_pool)(ctx.Pool), p, o, lse, scratch)
	return nil
}

func backward(ctx *kernel.Context, p *problem, o view, lse unsafe.Pointer, do, dq, dk, dv view) error {
	scratch, err := ctx.Scratch(int(C.plaitk_attention_backward_scratch(p)))
	if err != nil {
		return err
	}
	C.plaitk_attention_backward((*C.plait_pool)(ctx.Pool), p, o, lse, do, dq, dk, dv, scratch)
	return nil
}

// callProblem reads q, k, v and the mask, the first inputs of both calls, and the attributes.
func callProblem(c *core.Call) problem {
	q, k, v, mask := &c.Ins[0], &c.Ins[1], &c.Ins[2], &c.Ins[3]
	a := contract.AttentionOf(c)
	p := newProblem(int(q.DType), operand(q), operand(k), operand(v), q.Shape, k.Shape, v.Shape[3], a.Scale, a.Causal)
	if mask.Present() {
		setMask(&p, int(mask.DType), mask.Ptr(), mask.Strides)
	}
	if a.Dropout > 0 {
		setDropout(&p, a.Dropout, uint64(a.Seed), uint64(a.Offset), int(a.Heads))
	}
	return p
}

func attention(ctx *kernel.Context, c *core.Call) error {
	p := callProblem(c)
	return forward(ctx, &p, operand(&c.Outs[0]), c.Outs[1].Ptr())
}

func attentionBackward(ctx *kernel.Context, c *core.Call) error {
	p := callProblem(c)
	return backward(ctx, &p, operand(&c.Ins[4]), c.Ins[5].Ptr(), operand(&c.Ins[6]), operand(&c.Outs[0]),
		operand(&c.Outs[1]), operand(&c.Outs[2]))
}

// The instruction sets that limit accepts.
const (
	baseline = C.PLAITK_ATTENTION_BASE
	avx2     = C.PLAITK_ATTENTION_V3
	avx512   = C.PLAITK_ATTENTION_V4
	tiles    = C.PLAITK_ATTENTION_TILES
)

// limit sets the newest instruction set that kernels may use, for tests.
func limit(isa int) { C.plaitk_attention_limit(C.int(isa)) }
