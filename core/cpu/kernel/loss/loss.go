// Package loss holds the CPU kernels of classification losses and their gradients.
package loss

/*
#include "c/loss.h"
*/
import "C"

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.CrossEntropy, crossEntropy)
	kernel.Register(contract.CrossEntropyBackward, crossEntropyBackward)
	kernel.Register(contract.NLLLoss, nll)
	kernel.Register(contract.NLLLossBackward, nllBackward)
	kernel.Register(contract.MultilabelMarginLoss, multilabelMargin)
	kernel.Register(contract.CheckProbabilities, checkProbabilities)
}

// problem reads the scores, the target and the weight, the first inputs of every call, and the attributes.
func problem(c *core.Call) C.struct_plaitk_loss {
	x, target, weight := &c.Ins[0], &c.Ins[1], &c.Ins[2]
	a := contract.ClassLossOf(c)
	p := C.struct_plaitk_loss{dtype: C.int(x.DType), wdtype: C.int(x.DType), reduction: C.int(a.Reduction), x: x.Ptr(),
		batch: C.int64_t(a.Batch), classes: C.int64_t(a.Classes), inner: C.int64_t(a.Inner),
		ignore_index: C.int64_t(a.IgnoreIndex), smoothing: C.double(contract.Smoothing(c))}
	if target.DType == core.Int64 {
		p.target = (*C.int64_t)(target.Ptr())
	} else {
		p.probs = target.Ptr()
	}
	if weight.Present() {
		p.weight, p.wdtype = weight.Ptr(), C.int(weight.DType)
	}
	return p
}

// badTarget returns the error for the class index at a position.
func badTarget(c *core.Call, at C.int64_t) error {
	value, a := *(*int64)(unsafe.Add(c.Ins[1].Ptr(), int(at)*8)), contract.ClassLossOf(c)
	return core.Errorf(core.IndexError, c.Op, "target %d at position %d is no class, got %d classes and ignore_index %d", value,
		int64(at), a.Classes, a.IgnoreIndex)
}

func crossEntropy(ctx *kernel.Context, c *core.Call) error {
	p := problem(c)
	scratch, err := ctx.Scratch(int(C.plaitk_loss_scratch(&p)))
	if err != nil {
		return err
	}
	at := C.plaitk_loss_cross_entropy((*C.plait_pool)(ctx.Pool), &p, c.Outs[0].Ptr(), c.Outs[1].Ptr(), c.Outs[2].Ptr(), scratch)
	if at >= 0 {
		return badTarget(c, at)
	}
	return nil
}

func crossEntropyBackward(ctx *kernel.Context, c *core.Call) error {
	p := problem(c)
	scratch, err := ctx.Scratch(int(C.plaitk_loss_scratch(&p)))
	if err != nil {
		return err
	}
	C.plaitk_loss_cross_entropy_backward((*C.plait_pool)(ctx.Pool), &p, c.Ins[3].Ptr(), c.Ins[4].Ptr(), c.Ins[5].Ptr(),
		kernel.Ptr(&c.Outs[0]), kernel.Ptr(&c.Outs[1]), scratch)
	return nil
}

func nll(ctx *kernel.Context, c *core.Call) error {
	p := problem(c)
	scratch, err := ctx.Scratch(int(C.plaitk_loss_scratch(&p)))
	if err != nil {
		return err
	}
	at := C.plaitk_loss_nll((*C.plait_pool)(ctx.Pool), &p, c.Outs[0].Ptr(), c.Outs[1].Ptr(), scratch)
	if at >= 0 {
		return badTarget(c, at)
	}
	return nil
}

func nllBackward(ctx *kernel.Context, c *core.Call) error {
	p := problem(c)
	scratch, err := ctx.Scratch(int(C.plaitk_loss_scratch(&p)))
	if err != nil {
		return err
	}
	C.plaitk_loss_nll_backward((*C.plait_pool)(ctx.Pool), &p, c.Ins[3].Ptr(), c.Ins[4].Ptr(), c.Outs[0].Ptr(), scratch)
	return nil
}

func multilabelMargin(ctx *kernel.Context, c *core.Call) error {
	p := problem(c)
	scratch, err := ctx.Scratch(int(C.plaitk_loss_scratch(&p)))
	if err != nil {
		return err
	}
	at := C.plaitk_loss_multilabel_margin((*C.plait_pool)(ctx.Pool), &p, kernel.Ptr(&c.Outs[0]), kernel.Ptr(&c.Outs[1]), scratch)
	if at >= 0 {
		return badTarget(c, at)
	}
	return nil
}

func checkProbabilities(_ *kernel.Context, c *core.Call) error {
	x := &c.Ins[0]
	if at := C.plaitk_loss_improbable(x.Ptr(), C.int(x.DType), C.int64_t(x.Numel())); at >= 0 {
		return core.Errorf(core.ValueError, c.Op, "all elements of %s should be between 0 and 1, the one at position %d of %v is not; "+
			"binary_cross_entropy_with_logits takes any input", contract.CheckedOperand(c), int64(at), x.Shape)
	}
	return nil
}
