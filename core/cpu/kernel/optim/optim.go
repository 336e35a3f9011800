// Package optim has the CPU kernels of optimisers: fused steps over whole lists of parameters, and the norms and scaling for gradient
// clipping. All tensors are contiguous.
package optim

/*
#include "c/optim.h"
*/
import "C"

import (
	"math"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.OptimStep, step)
	kernel.Register(contract.OptimNorm, norm)
	kernel.Register(contract.OptimClip, clip)
	kernel.Register(contract.OptimClamp, clamp)
	kernel.Register(contract.OptimUnscale, unscale)
}

func workers(ctx *kernel.Context) *C.plait_pool { return (*C.plait_pool)(ctx.Pool) }

func step(ctx *kernel.Context, c *core.Call) error {
	n := len(c.Ins)
	if n == 0 {
		return nil
	}
	table, err := ctx.Table(n * C.sizeof_plaitk_optim_tensor)
	if err != nil {
		return err
	}
	tensors := unsafe.Slice((*C.plaitk_optim_tensor)(table), n)
	at := 0
	for i := range tensors {
		p, a := &c.Outs[at], contract.OptimStepOf(c, i)
		t := C.plaitk_optim_tensor{param: (*C.char)(p.Ptr()), grad: (*C.char)(c.Ins[i].Ptr()),
			rule: C.int64_t(a.Rule), dtype: C.int64_t(p.DType), n: C.int64_t(p.Numel())}
		at++
		for k := range a.States {
			t.state[k] = (*C.char)(c.Outs[at].Ptr())
			at++
		}
		if a.Master {
			t.master = (*C.float)(c.Outs[at].Ptr())
			at++
		}
		tensors[i] = t
	}
	C.plaitk_optim_step(workers(ctx), &tensors[0], C.int64_t(n), (*C.double)(unsafe.Pointer(&contract.OptimStepNumbers(c)[0])))
	return nil
}

// spans describes a list of tensors for C.
func spans(ctx *kernel.Context, list []core.Operand) (*C.plaitk_optim_span, error) {
	table, err := ctx.Table((len(list) + 1) * C.sizeof_plaitk_optim_span)
	if err != nil {
		return nil, err
	}
	spans := unsafe.Slice((*C.plaitk_optim_span)(table), len(list))
	for i := range list {
		o := &list[i]
		spans[i] = C.plaitk_optim_span{data: (*C.char)(o.Ptr()), dtype: C.int64_t(o.DType), n: C.int64_t(o.Numel())}
	}
	return (*C.plaitk_optim_span)(table), nil
}

// partial returns scratch for the partial sums of a list of tensors, one for each chunk.
func partial(ctx *kernel.Context, list []core.Operand) (*C.double, error) {
	chunks := 1
	for i := range list {
		chunks += list[i].Numel()/C.PLAITK_OPTIM_CHUNK + 1
	}
	scratch, err := ctx.Scratch(8 * chunks)
	return (*C.double)(scratch), err
}

func norm(ctx *kernel.Context, c *core.Call) error {
	list, err := spans(ctx, c.Ins)
	if err != nil {
		return err
	}
	sums, err := partial(ctx, c.Ins)
	if err != nil {
		return err
	}
	a := contract.OptimNormOf(c)
	p := a.P
	v := float64(C.plaitk_optim_power_sum(workers(ctx), list, C.int64_t(len(c.Ins)), C.double(p), sums))
	if a.Root && !math.IsInf(p, 0) && p != 0 {
		if p == 2 {
			v = math.Sqrt(v)
		} else {
			v = math.Pow(v, 1/p)
		}
	}
	switch out := &c.Outs[0]; out.DType {
	case core.Float64:
		*(*float64)(out.Ptr()) = v
	default:
		*(*float32)(out.Ptr()) = float32(v)
	}
	return nil
}

// number returns the value of an operand: a number, or a tensor of one float32 or float64 element.
func number(o *core.Operand) float64 {
	switch {
	case o.IsNumber:
		return o.Number.Float
	case o.DType == core.Float64:
		return *(*float64)(o.Ptr())
	}
	return float64(*(*float32)(o.Ptr()))
}

func clip(ctx *kernel.Context, c *core.Call) error {
	factor := contract.OptimFactor(c) / (number(&c.Ins[0]) + 1e-6)
	if factor >= 1 {
		return nil
	}
	return multiply(ctx, c, factor)
}

func multiply(ctx *kernel.Context, c *core.Call, factor float64) error {
	list, err := spans(ctx, c.Outs)
	if err != nil {
		return err
	}
	C.plaitk_optim_scale(workers(ctx), list, C.int64_t(len(c.Outs)), C.double(factor))
	return nil
}

func unscale(ctx *kernel.Context, c *core.Call) error {
	last := len(c.Outs) - 1
	list, err := spans(ctx, c.Outs[:last])
	if err != nil {
		return err
	}
	found := (*C.float)(c.Outs[last].Ptr())
	C.plaitk_optim_unscale(workers(ctx), list, C.int64_t(last), C.double(contract.OptimFactor(c)), found)
	return nil
}

func clamp(ctx *kernel.Context, c *core.Call) error {
	list, err := spans(ctx, c.Outs)
	if err != nil {
		return err
	}
	C.plaitk_optim_clamp(workers(ctx), list, C.int64_t(len(c.Outs)), C.double(contract.OptimFactor(c)))
	return nil
}
