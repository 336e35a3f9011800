// Package sparse has the CPU kernels of sparse matrices in compressed rows: their products with dense ones. c/sparse.h explains how they
// work.
package sparse

/*
#include "c/sparse.h"
*/
import "C"

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.CSRMatmul, matmul)
	kernel.Register(contract.CSRSampledMatmul, sampled)
}

// matrix returns the matrix of the first operands, with the given number of columns, for values of the dtype of d.
func matrix(c *core.Call, columns int, d core.DType) (C.struct_plaitk_csr, error) {
	crow, col, order := &c.Ins[0], &c.Ins[1], &c.Ins[2]
	for i := range c.Ins {
		if o := &c.Ins[i]; o.Present() && (!o.Contiguous() || i < 3 && o.DType != core.Int64 || i >= 3 && o.DType != d) {
			return C.struct_plaitk_csr{}, core.Errorf(core.DTypeError, c.Op, "operand %d has the dtype %v and the strides %v, want contiguous int64 indices and values of %v", i, o.DType, o.Strides, d)
		}
	}
	if !d.IsFloat() {
		return C.struct_plaitk_csr{}, core.Errorf(core.DTypeError, c.Op, "not defined for %v", d)
	}
	s := C.struct_plaitk_csr{crow: (*C.int64_t)(crow.Ptr()), col: (*C.int64_t)(col.Ptr()), rows: C.int64_t(crow.Numel() - 1),
		columns: C.int64_t(columns), entries: C.int64_t(col.Numel()), dtype: C.int32_t(d)}
	if order.Present() {
		s.order = (*C.int64_t)(order.Ptr())
	}
	return s, nil
}

func matmul(ctx *kernel.Context, c *core.Call) error {
	values, x, y := &c.Ins[3], &c.Ins[4], &c.Outs[0]
	s, err := matrix(c, x.Shape[0], y.DType)
	if err != nil {
		return err
	}
	var at C.int64_t
	fault := C.plaitk_sparse_matmul((*C.plait_pool)(ctx.Pool), &s, values.Ptr(), x.Ptr(), y.Ptr(), C.int64_t(x.Shape[1]), &at)
	return faultOf(c, &s, fault, at)
}

func sampled(ctx *kernel.Context, c *core.Call) error {
	a, b, values := &c.Ins[3], &c.Ins[4], &c.Outs[0]
	s, err := matrix(c, b.Shape[0], values.DType)
	if err != nil {
		return err
	}
	var at C.int64_t
	fault := C.plaitk_sparse_sampled((*C.plait_pool)(ctx.Pool), &s, a.Ptr(), b.Ptr(), values.Ptr(), C.int64_t(a.Shape[1]), &at)
	return faultOf(c, &s, fault, at)
}

// faultOf returns the error of a fault at a row or an entry.
func faultOf(c *core.Call, s *C.struct_plaitk_csr, fault, at C.int64_t) error {
	n := int(s.entries)
	at64 := func(p *C.int64_t) int { return int(unsafe.Slice(p, n)[at]) }
	switch fault {
	case C.CSR_BAD_ROW:
		crow := unsafe.Slice(s.crow, int(s.rows)+1)
		return core.Errorf(core.IndexError, c.Op, "row %d has the entries from %d to %d, want a range in [0, %d]", at, crow[at], crow[at+1], n)
	case C.CSR_BAD_COLUMN:
		return core.Errorf(core.IndexError, c.Op, "entry %d is in column %d, want one of [0, %d)", at, at64(s.col), s.columns)
	case C.CSR_BAD_ORDER:
		return core.Errorf(core.IndexError, c.Op, "entry %d has the value %d, want one of [0, %d)", at, at64(s.order), n)
	}
	return nil
}
