// Package softmax holds the CPU kernels of softmax and log-softmax and their gradients.
package softmax

/*
#include "c/softmax.h"
*/
import "C"

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	for log, k := range []struct{ forward, backward core.KernelID }{{contract.Softmax, contract.SoftmaxBackward}, {contract.LogSoftmax, contract.LogSoftmaxBackward}} {
		kernel.Register(k.forward, func(ctx *kernel.Context, c *core.Call) error {
			y, x := &c.Outs[0], &c.Ins[0]
			outer, n, inner := split(x.Shape, contract.Dim(c))
			forward(ctx.Pool, int(x.DType), log, x.Ptr(), y.Ptr(), outer, n, inner)
			return nil
		})
		kernel.Register(k.backward, func(ctx *kernel.Context, c *core.Call) error {
			dx, y, dy := &c.Outs[0], &c.Ins[0], &c.Ins[1]
			outer, n, inner := split(y.Shape, contract.Dim(c))
			backward(ctx.Pool, int(y.DType), log, y.Ptr(), dy.Ptr(), dx.Ptr(), outer, n, inner)
			return nil
		})
	}
}

// split returns the sizes before, along and after dimension dim. A 0-d tensor has size 1 along it.
func split(shape []int, dim int) (outer, n, inner int) {
	if len(shape) == 0 {
		return 1, 1, 1
	}
	return core.Numel(shape[:dim]), shape[dim], core.Numel(shape[dim+1:])
}

// forward sets y to softmax(x), or to log_softmax(x) if log is 1, along the middle dimension of [outer, n, inner]; see
// softmax.h.
func forward(pool unsafe.Pointer, dtype, log int, x, y unsafe.Pointer, outer, n, inner int) {
	C.plaitk_softmax_forward((*C.plait_pool)(pool), C.int(dtype), C.int(log), x, y, C.int64_t(outer), C.int64_t(n),
		C.int64_t(inner))
}

// backward computes dx from the forward's result y and the gradient dy.
func backward(pool unsafe.Pointer, dtype, log int, y, dy, dx unsafe.Pointer, outer, n, inner int) {
	C.plaitk_softmax_backward((*C.plait_pool)(pool), C.int(dtype), C.int(log), y, dy, dx, C.int64_t(outer),
		C.int64_t(n), C.int64_t(inner))
}
