package matmul

/*
#include "c/integers.h"
*/
import "C"

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/gemm"
)

// integers computes a matrix product of integers.
func integers(pool unsafe.Pointer, c *core.Call, p *gemm.Product) error {
	if p.In == int(core.Bool) {
		return core.Errorf(core.DTypeError, c.Op, "not defined for %v", core.Bool)
	}
	g := C.plaitk_gemm{
		m: C.int64_t(p.M), n: C.int64_t(p.N), k: C.int64_t(p.K),
		a: p.A.Data, a_row: C.int64_t(p.A.Row), a_col: C.int64_t(p.A.Col),
		b: p.B.Data, b_row: C.int64_t(p.B.Row), b_col: C.int64_t(p.B.Col),
		c: p.C.Data, c_row: C.int64_t(p.C.Row), c_col: C.int64_t(p.C.Col),
		in: C.int(p.In), out: C.int(p.Out), alpha: C.double(p.Alpha), beta: C.double(p.Beta),
		bias: p.Bias, bias_step: C.int64_t(p.BiasStep),
	}
	var dims [gemm.MaxDims]C.plaitk_gemm_dim
	for i, d := range p.Batch {
		dims[i] = C.plaitk_gemm_dim{C.int64_t(d.Size), C.int64_t(d.A), C.int64_t(d.B), C.int64_t(d.C)}
	}
	C.plaitk_matmul_integers((*C.plait_pool)(pool), &g, C.int(len(p.Batch)), &dims[0])
	return nil
}
