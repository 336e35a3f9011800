// Package recurrent has the CPU kernels that run the steps of a recurrent layer in one direction: lstm_steps and gru_steps, and their
// gradients. recurrent.h names the operands and says how the work is split.
//
// Forward: Ins are x, h0, the weights, then c0 (LSTM) or the recurrent bias (GRU, optional). Outs are y, acts and, for an LSTM, c. acts has
// only one step if no backward pass will follow.
//
// Backward: Ins are acts, y, h0, the weights and dy, and for an LSTM c, c0 and dc. dy and dc are optional. Outs are dx, carry and, for a
// GRU, ds.
//
// The states, their gates and the weights may be of bfloat16; acts, cells, biases and carry are then float32.
//
// The only integer attribute is 1 to run from the last step to the first. All operands but the weights are contiguous.
package recurrent

/*
#include "c/recurrent.h"
*/
import "C"

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	_ "github.com/plait-ml/plait/core/cpu/gemm" // defines plaitk_gemm_by_panels
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.LSTMSteps, func(ctx *kernel.Context, c *core.Call) error {
		return forward(ctx, c, C.RECURRENT_LSTM)
	})
	kernel.Register(contract.GRUSteps, func(ctx *kernel.Context, c *core.Call) error {
		return forward(ctx, c, C.RECURRENT_GRU)
	})
	kernel.Register(contract.LSTMStepsBackward, func(ctx *kernel.Context, c *core.Call) error {
		return backward(ctx, c, C.RECURRENT_LSTM)
	})
	kernel.Register(contract.GRUStepsBackward, func(ctx *kernel.Context, c *core.Call) error {
		return backward(ctx, c, C.RECURRENT_GRU)
	})
}

func forward(ctx *kernel.Context, c *core.Call, kind C.int32_t) error {
	x, h0, w, y, acts := &c.Ins[0], &c.Ins[1], &c.Ins[2], &c.Outs[0], &c.Outs[1]
	a := layer(c, kind, y, w)
	a.x, a.h0, a.y, a.acts = x.Ptr(), h0.Ptr(), y.Ptr(), acts.Ptr()
	if len(acts.Shape) == 3 {
		a.acts_step = C.int64_t(core.Numel(acts.Shape[1:]))
	}
	if kind == C.RECURRENT_LSTM {
		a.c0, a.c = c.Ins[3].Ptr(), c.Outs[2].Ptr()
	} else {
		a.bias = kernel.Ptr(&c.Ins[3])
	}
	return run(ctx, &a, 0)
}

func backward(ctx *kernel.Context, c *core.Call, kind C.int32_t) error {
	acts, y, h0, w, dy, dx, carry := &c.Ins[0], &c.Ins[1], &c.Ins[2], &c.Ins[3], &c.Ins[4], &c.Outs[0], &c.Outs[1]
	a := layer(c, kind, y, w)
	a.acts, a.y, a.h0, a.dy, a.dx, a.carry = acts.Ptr(), y.Ptr(), h0.Ptr(), kernel.Ptr(dy), dx.Ptr(), carry.Ptr()
	if kind == C.RECURRENT_LSTM {
		a.c, a.c0, a.dc = c.Ins[5].Ptr(), c.Ins[6].Ptr(), kernel.Ptr(&c.Ins[7])
	} else {
		a.ds = c.Outs[2].Ptr()
	}
	return run(ctx, &a, 1)
}

// layer describes the layer by its states y and weights w.
func layer(c *core.Call, kind C.int32_t, y, w *core.Operand) C.struct_plaitk_recurrent {
	return C.struct_plaitk_recurrent{kind: kind, dtype: C.int32_t(y.DType), reverse: C.int32_t(contract.Flag(contract.Reverse(c))),
		steps: C.int64_t(y.Shape[0]), n: C.int64_t(y.Shape[1]), hidden: C.int64_t(y.Shape[2]),
		w: w.Ptr(), w_row: C.int64_t(w.Strides[0]), w_col: C.int64_t(w.Strides[1])}
}

func run(ctx *kernel.Context, a *C.struct_plaitk_recurrent, backward C.int) error {
	pool := (*C.plait_pool)(ctx.Pool)
	scratch, err := ctx.Scratch(int(C.plaitk_recurrent_scratch(pool, a, backward)))
	if err != nil {
		return err
	}
	a.scratch = scratch
	C.plaitk_recurrent_run(pool, a, backward)
	return nil
}
