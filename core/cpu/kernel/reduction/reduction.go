// Package reduction has the CPU kernels that reduce a tensor over any of its axes: sums, products, extremes with and without their index,
// logic, norms, moments and log-sum-exp. reduction.h explains how they work.
//
// Every kernel takes the tensor as its only input and the reduced dimensions as integer attributes. In the shape of the outputs those
// dimensions are missing or have size 1. The output may have any dtype. Results are computed in the input's compute dtype, sums of integers
// in int64.
package reduction

/*
#include "c/reduction.h"
*/
import "C"

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	for k, op := range map[core.KernelID]C.int32_t{
		contract.Sum: C.REDUCE_SUM, contract.Mean: C.REDUCE_MEAN, contract.Prod: C.REDUCE_PROD, contract.ComplexProd: C.REDUCE_PROD, contract.Amax: C.REDUCE_MAX, contract.Amin: C.REDUCE_MIN,
		contract.Any: C.REDUCE_ANY, contract.All: C.REDUCE_ALL, contract.CountNonzero: C.REDUCE_COUNT,
		contract.LogSumExp: C.REDUCE_LOGSUMEXP, contract.NanSum: C.REDUCE_NANSUM,
	} {
		kernel.Register(k, func(ctx *kernel.Context, c *core.Call) error {
			return run(ctx, c, op, &c.Outs[0], nil, 0)
		})
	}
	for k, op := range map[core.KernelID]C.int32_t{contract.Var: C.REDUCE_VAR, contract.Std: C.REDUCE_STD} {
		kernel.Register(k, func(ctx *kernel.Context, c *core.Call) error {
			var mean *core.Operand
			if len(c.Outs) > 1 {
				mean = &c.Outs[1]
			}
			return run(ctx, c, op, &c.Outs[0], mean, contract.ReductionParam(c))
		})
	}
	for k, op := range map[core.KernelID]C.int32_t{contract.ArgMax: C.REDUCE_ARGMAX, contract.ArgMin: C.REDUCE_ARGMIN} {
		kernel.Register(k, func(ctx *kernel.Context, c *core.Call) error {
			var value *core.Operand
			if len(c.Outs) > 1 {
				value = &c.Outs[1]
			}
			return run(ctx, c, op, value, &c.Outs[0], 0)
		})
	}
	kernel.Register(contract.Norm, norm)
}

// norm runs the kernel of the p-norm.
func norm(ctx *kernel.Context, c *core.Call) error {
	p := contract.ReductionParam(c)
	op := C.int32_t(C.REDUCE_NORMP)
	switch {
	case p == 0:
		op = C.REDUCE_COUNT
	case p == 1:
		op = C.REDUCE_NORM1
	case p == 2:
		op = C.REDUCE_NORM2
	case math.IsInf(p, 1):
		op = C.REDUCE_NORMINF
	case math.IsInf(p, -1):
		op = C.REDUCE_NORMNINF
	}
	return run(ctx, c, op, &c.Outs[0], nil, p)
}

// run reduces c.Ins[0] into out and out2. One of them may be nil. They have the same layout.
func run(ctx *kernel.Context, c *core.Call, op C.int32_t, out, out2 *core.Operand, param float64) error {
	var r C.struct_plaitk_reduction
	in := &c.Ins[0]
	ordered := op == C.REDUCE_ARGMAX || op == C.REDUCE_ARGMIN
	layout := out
	if layout == nil {
		layout = out2
	}
	var f form
	plan := func(pairs bool) {
		f = form{}
		f.normalise(in.Shape, in.Strides, layout.Shape, layout.Strides, contract.Dims(c), ordered, pairs)
		if f.kept == 0 {
			return
		}
		moments := op == C.REDUCE_VAR || op == C.REDUCE_STD
		f.plan(workOf(op), ordered, moments || op == C.REDUCE_LOGSUMEXP, moments)
	}
	plan(in.Complex())
	if f.pairs && f.columns && op != C.REDUCE_PROD { // columns of parts are summed as columns of real numbers
		plan(false)
	}
	if f.kept == 0 {
		return nil
	}
	r.in, r.op, r.dtype, r.param = in.Ptr(), op, C.int32_t(in.DType), C.double(param)
	if out != nil {
		r.out, r.out_dtype = out.Ptr(), C.int32_t(out.DType)
	}
	if out2 != nil {
		r.out2 = out2.Ptr()
	}
	f.fill(&r)
	if f.pieces > 1 {
		scratch, err := ctx.Scratch(3 * 8 * f.pieces * f.kept * int(1+r.pairs))
		if err != nil {
			return err
		}
		r.scratch = scratch
	}
	if status := C.plaitk_reduction_run((*C.plait_pool)(ctx.Pool), &r); status != 0 {
		return core.Errorf(core.DTypeError, c.Op, "not defined for %v", in.DType)
	}
	return nil
}

// workOf returns the cost of an op per element, in additions.
func workOf(op C.int32_t) int {
	switch op {
	case C.REDUCE_NORMP:
		return 64
	case C.REDUCE_LOGSUMEXP:
		return 8
	case C.REDUCE_VAR, C.REDUCE_STD:
		return 2
	}
	return 1
}

// fill copies the form to the C struct.
func (f *form) fill(r *C.struct_plaitk_reduction) {
	r.nk, r.nr = C.int32_t(f.nk), C.int32_t(f.nr)
	for i, d := range f.keep[:f.nk] {
		r.ksize[i], r.kin[i], r.kout[i] = C.int64_t(d.Size), C.int64_t(d.In), C.int64_t(d.Out)
	}
	for i, d := range f.reduce[:f.nr] {
		r.rsize[i], r.rin[i] = C.int64_t(d.Size), C.int64_t(d.In)
	}
	if f.columns {
		r.columns = 1
	}
	if f.gather {
		r.gather = 1
	}
	if f.abreast {
		r.abreast = 1
	}
	if f.pairs {
		r.pairs = 1
	}
	r.kept, r.reduced = C.int64_t(f.kept), C.int64_t(f.reduced)
	r.width, r.fold = C.int64_t(f.width), C.int64_t(f.fold)
	r.pieces, r.piece, r.unit, r.chunks = C.int64_t(f.pieces), C.int64_t(f.piece), C.int64_t(f.unit), C.int64_t(f.chunks)
}
