// Package norm holds the CPU kernels of layer, RMS, group and batch norm and their gradients.
package norm

/*
#include "c/norm.h"
*/
import "C"

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.LayerNorm, layerNorm)
	kernel.Register(contract.LayerNormBackward, layerNormBackward)
	kernel.Register(contract.GroupNorm, groupNorm)
	kernel.Register(contract.GroupNormBackward, groupNormBackward)
	kernel.Register(contract.BatchNorm, batchNorm)
	kernel.Register(contract.BatchNormRunning, batchNormRunning)
	kernel.Register(contract.BatchNormBackward, batchNormBackward)
}

// stat returns the address of row i of a statistics operand [k, n], or nil if it is absent.
func stat(o *core.Operand, i int) unsafe.Pointer {
	if !o.Present() {
		return nil
	}
	return unsafe.Add(o.Ptr(), i*o.Shape[1]*o.DType.Size())
}

// paramDType returns the dtype of the first parameter that is present, else x's.
func paramDType(x core.DType, params ...*core.Operand) C.int {
	for _, p := range params {
		if p.Present() {
			return C.int(p.DType)
		}
	}
	return C.int(x)
}

func layerNorm(ctx *kernel.Context, c *core.Call) error {
	y, stats, x, w, b := &c.Outs[0], &c.Outs[1], &c.Ins[0], &c.Ins[1], &c.Ins[2]
	a := contract.LayerNormOf(c)
	rows, n := C.int64_t(a.Rows), C.int64_t(a.N)
	scratch, err := ctx.Scratch(int(C.plaitk_norm_layer_scratch(0, n)))
	if err != nil {
		return err
	}
	C.plaitk_norm_layer_forward((*C.plait_pool)(ctx.Pool), C.int(x.DType), paramDType(x.DType, w, b), C.int(contract.Flag(a.RMS)),
		x.Ptr(), kernel.Ptr(w), kernel.Ptr(b), y.Ptr(), stat(stats, 0), stat(stats, 1), rows, n, C.double(contract.Eps(c)), scratch)
	return nil
}

func layerNormBackward(ctx *kernel.Context, c *core.Call) error {
	dx, dw, db := &c.Outs[0], &c.Outs[1], &c.Outs[2]
	x, dy, w, stats, arrived := &c.Ins[0], &c.Ins[1], &c.Ins[2], &c.Ins[3], &c.Ins[4]
	a := contract.LayerNormOf(c)
	rows, n := C.int64_t(a.Rows), C.int64_t(a.N)
	scratch, err := ctx.Scratch(int(C.plaitk_norm_layer_scratch(rows, n)))
	if err != nil {
		return err
	}
	C.plaitk_norm_layer_backward((*C.plait_pool)(ctx.Pool), C.int(x.DType), paramDType(x.DType, w, dw, db),
		C.int(contract.Flag(a.RMS)), x.Ptr(), dy.Ptr(), kernel.Ptr(w), stat(stats, 0), stat(stats, 1), kernel.Ptr(arrived), kernel.Ptr(dx), kernel.Ptr(dw), kernel.Ptr(db),
		rows, n, scratch)
	return nil
}

func groupNorm(ctx *kernel.Context, c *core.Call) error {
	y, stats, x, w, b := &c.Outs[0], &c.Outs[1], &c.Ins[0], &c.Ins[1], &c.Ins[2]
	a := contract.GroupNormOf(c)
	batch, channels, inner, groups := C.int64_t(a.Batch), C.int64_t(a.Channels), C.int64_t(a.Inner), C.int64_t(a.Groups)
	scratch, err := ctx.Scratch(int(C.plaitk_norm_group_scratch(batch, channels, inner, groups)))
	if err != nil {
		return err
	}
	C.plaitk_norm_group_forward((*C.plait_pool)(ctx.Pool), C.int(x.DType), paramDType(x.DType, w, b), x.Ptr(), kernel.Ptr(w),
		kernel.Ptr(b), y.Ptr(), stat(stats, 0), stat(stats, 1), batch, channels, inner, groups, C.double(contract.Eps(c)), scratch)
	return nil
}

func groupNormBackward(ctx *kernel.Context, c *core.Call) error {
	dx, dw, db := &c.Outs[0], &c.Outs[1], &c.Outs[2]
	x, dy, w, stats := &c.Ins[0], &c.Ins[1], &c.Ins[2], &c.Ins[3]
	a := contract.GroupNormOf(c)
	batch, channels, inner, groups := C.int64_t(a.Batch), C.int64_t(a.Channels), C.int64_t(a.Inner), C.int64_t(a.Groups)
	scratch, err := ctx.Scratch(int(C.plaitk_norm_group_scratch(batch, channels, inner, groups)))
	if err != nil {
		return err
	}
	C.plaitk_norm_group_backward((*C.plait_pool)(ctx.Pool), C.int(x.DType), paramDType(x.DType, w, dw, db), x.Ptr(),
		dy.Ptr(), kernel.Ptr(w), stat(stats, 0), stat(stats, 1), kernel.Ptr(dx), kernel.Ptr(dw), kernel.Ptr(db), batch, channels, inner, groups, scratch)
	return nil
}

func batchNorm(ctx *kernel.Context, c *core.Call) error {
	y, stats := &c.Outs[0], &c.Outs[1]
	x, w, b, rm, rv := &c.Ins[0], &c.Ins[1], &c.Ins[2], &c.Ins[3], &c.Ins[4]
	a := contract.BatchNormOf(c)
	batch, channels, inner := C.int64_t(a.Batch), C.int64_t(a.Channels), C.int64_t(a.Inner)
	scratch, err := ctx.Scratch(int(C.plaitk_norm_batch_scratch(batch, channels, inner)))
	if err != nil {
		return err
	}
	C.plaitk_norm_batch_forward((*C.plait_pool)(ctx.Pool), C.int(x.DType), paramDType(x.DType, w, b, rm),
		C.int(contract.Flag(a.Training)), x.Ptr(), kernel.Ptr(w), kernel.Ptr(b), kernel.Ptr(rm), kernel.Ptr(rv), y.Ptr(), stat(stats, 0), stat(stats, 1),
		stat(stats, 2), batch, channels, inner, C.double(contract.Eps(c)), scratch)
	return nil
}

func batchNormRunning(_ *kernel.Context, c *core.Call) error {
	rm, rv, stats := &c.Outs[0], &c.Outs[1], &c.Ins[0]
	a := contract.BatchNormRunningOf(c)
	C.plaitk_norm_batch_running(C.int(stats.DType), C.int(rm.DType), stat(stats, 0), stat(stats, 2), rm.Ptr(), rv.Ptr(),
		C.int64_t(rm.Shape[0]), C.double(a.Count), C.double(a.Momentum))
	return nil
}

func batchNormBackward(ctx *kernel.Context, c *core.Call) error {
	dx, dw, db := &c.Outs[0], &c.Outs[1], &c.Outs[2]
	x, dy, w, stats := &c.Ins[0], &c.Ins[1], &c.Ins[2], &c.Ins[3]
	a := contract.BatchNormOf(c)
	batch, channels, inner := C.int64_t(a.Batch), C.int64_t(a.Channels), C.int64_t(a.Inner)
	scratch, err := ctx.Scratch(int(C.plaitk_norm_batch_scratch(batch, channels, inner)))
	if err != nil {
		return err
	}
	C.plaitk_norm_batch_backward((*C.plait_pool)(ctx.Pool), C.int(x.DType), paramDType(x.DType, w, dw, db),
		C.int(contract.Flag(a.Training)), x.Ptr(), dy.Ptr(), kernel.Ptr(w), stat(stats, 0), stat(stats, 1), kernel.Ptr(dx), kernel.Ptr(dw), kernel.Ptr(db), batch,
		channels, inner, scratch)
	return nil
}
