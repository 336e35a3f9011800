// Package linalg has the CPU kernels that factorise and solve stacks of matrices, each matrix on one thread.
//
// LAPACK does the work where package blas finds one, and plain loops elsewhere and for very small matrices. All operands are contiguous, of
// one dtype, float32 or float64, and have the same leading dimensions. linalg.h lists the operations. A singular or otherwise unusable
// matrix is an error that names its index in the stack, except where infos have the row, from 1, at which it failed, or 0.
package linalg

/*
#include "c/linalg.h"
*/
import "C"

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/blas"
	"github.com/plait-ml/plait/core/cpu/kernel"
	_ "github.com/plait-ml/plait/core/cpu/kernel/copying" // whose transposes it makes
)

var complexOperations = map[contract.LinalgOperation]C.int32_t{
	contract.LinalgSolves: C.LINALG_SOLVE, contract.LinalgDeterminants: C.LINALG_DET, contract.LinalgTriangles: C.LINALG_TRIANGULAR,
	contract.LinalgCholeskys: C.LINALG_CHOLESKY, contract.LinalgLUs: C.LINALG_LU, contract.LinalgQRs: C.LINALG_QR, contract.LinalgEighs: C.LINALG_EIGH,
	contract.LinalgSVDs: C.LINALG_SVD, contract.LinalgEigs: C.LINALG_EIG, contract.LinalgReflections: C.LINALG_GEQRF,
	contract.LinalgLDLs: C.LINALG_LDL, contract.LinalgLeastSquares: C.LINALG_LSTSQ,
}

func init() {
	for k, op := range map[core.KernelID]C.int32_t{
		contract.LinalgSolve: C.LINALG_SOLVE, contract.LinalgDet: C.LINALG_DET, contract.LinalgTriangular: C.LINALG_TRIANGULAR,
		contract.LinalgCholesky: C.LINALG_CHOLESKY, contract.LinalgQR: C.LINALG_QR, contract.LinalgEigh: C.LINALG_EIGH, contract.LinalgSVD: C.LINALG_SVD,
		contract.LinalgLU: C.LINALG_LU, contract.LinalgLstSq: C.LINALG_LSTSQ, contract.LinalgGeqrf: C.LINALG_GEQRF, contract.LinalgLDL: C.LINALG_LDL,
	} {
		kernel.Register(k, func(ctx *kernel.Context, c *core.Call) error { return run(ctx, c, op, nil) })
	}
	kernel.Register(contract.LinalgComplex, func(ctx *kernel.Context, c *core.Call) error {
		a := contract.LinalgComplexOf(c)
		return run(ctx, c, complexOperations[a.Operation], &a)
	})
	kernel.Register(contract.LinalgPermutation, permutation)
	kernel.Register(contract.LinalgCross, cross)
}

func cross(ctx *kernel.Context, c *core.Call) error {
	x, z, y := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	if d := x.DType; !d.IsFloat() || z.DType != d || y.DType != d {
		return core.Errorf(core.DTypeError, c.Op, "got operands of %v, %v and %v, want floats of one dtype", d, z.DType, y.DType)
	}
	dim := contract.Dim(c)
	C.plaitk_linalg_cross((*C.plait_pool)(ctx.Pool), C.int32_t(x.DType), x.Ptr(), z.Ptr(), y.Ptr(), C.int64_t(core.Numel(x.Shape[:dim])),
		C.int64_t(core.Numel(x.Shape[dim+1:])))
	return nil
}

// run runs an operation on matrices, which are complex if attributes are given: their parts are a dimension more.
func run(ctx *kernel.Context, c *core.Call, op C.int32_t, z *contract.LinalgComplexAttrs) error {
	a := &c.Ins[0]
	rank := len(a.Shape)
	if z != nil && !z.Real {
		rank--
	}
	l := C.struct_plaitk_linalg{op: op, dtype: C.int32_t(a.DType), a: a.Ptr(), batch: C.int64_t(core.Numel(a.Shape[:rank-2])),
		m: C.int64_t(a.Shape[rank-2]), n: C.int64_t(a.Shape[rank-1])}
	if z != nil {
		l.is_complex, l.real = 1, C.int32_t(contract.Flag(z.Real))
		l.upper, l.unit = C.int32_t(contract.Flag(z.Upper)), C.int32_t(contract.Flag(z.Unit))
		l.hermitian = C.int32_t(contract.Flag(z.Hermitian))
	}
	l.k = l.n
	if len(c.Ins) > 1 && c.Ins[1].Present() {
		b := &c.Ins[1]
		l.b, l.k = b.Ptr(), C.int64_t(b.Shape[rank-1])
	}
	outs := c.Outs
	switch {
	case op == C.LINALG_LU || op == C.LINALG_LDL:
		l.pivots, l.infos = (*C.int32_t)(outs[1].Ptr()), (*C.int32_t)(outs[2].Ptr())
		outs = outs[:1]
	case op == C.LINALG_LSTSQ:
		l.rcond = C.double(c.Floats[0])
		fallthrough
	case op == C.LINALG_CHOLESKY && len(outs) == 2:
		l.infos = (*C.int32_t)(outs[1].Ptr())
		outs = outs[:1]
	}
	for i := range outs {
		l.out[i] = outs[i].Ptr()
	}
	if op == C.LINALG_TRIANGULAR && z == nil {
		a := contract.TriangularOf(c)
		l.upper, l.unit = C.int32_t(contract.Flag(a.Upper)), C.int32_t(contract.Flag(a.Unit))
	}
	var err error
	if l.lapack, err = blas.Lapack(); err != nil {
		return core.Errorf(core.ValueError, c.Op, "%w", err)
	}
	if z != nil && l.lapack == nil {
		return core.Errorf(core.NotImplemented, c.Op, "complex matrices want LAPACK, which OpenBLAS has; no such library was found")
	}
	if l.scratch, err = ctx.Scratch(int(C.plaitk_linalg_scratch((*C.plait_pool)(ctx.Pool), &l))); err != nil {
		return err
	}
	var at [2]C.int64_t
	status := C.plaitk_linalg_run((*C.plait_pool)(ctx.Pool), &l, &at[0])
	switch matrix, row := int(at[0]), int(at[1]); status {
	case C.LINALG_OK:
		return nil
	case C.LINALG_SINGULAR:
		return core.Errorf(core.MatrixError, c.Op, "matrix %d is singular, want one that can be inverted; place %d on the diagonal is 0", matrix, row)
	case C.LINALG_NOT_POSITIVE:
		return core.Errorf(core.MatrixError, c.Op, "matrix %d is not positive definite; its leading minor of order %d is not positive", matrix, row)
	default:
		return core.Errorf(core.MatrixError, c.Op, "no convergence for matrix %d, which may hold NaN or infinity", matrix)
	}
}

func permutation(_ *kernel.Context, c *core.Call) error {
	pivots, rows := &c.Ins[0], &c.Outs[0]
	last := len(pivots.Shape) - 1
	k, m := pivots.Shape[last], rows.Shape[last]
	at := C.plaitk_linalg_permutation(C.int64_t(core.Numel(pivots.Shape[:last])), C.int64_t(k), C.int64_t(m),
		(*C.int32_t)(pivots.Ptr()), (*C.int64_t)(rows.Ptr()))
	if at >= 0 {
		return core.Errorf(core.IndexError, c.Op, "a pivot of matrix %d is not within its %d rows", int(at), m)
	}
	return nil
}
