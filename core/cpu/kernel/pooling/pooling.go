// Package pooling computes maxima and averages over windows of up to three spatial dimensions, and moves elements of
// image planes by indices, on the CPU.
package pooling

/*
#cgo CFLAGS: -DPLAIT_HEADERS=0x2b7f6a34
#cgo noescape plaitk_pooling_scratch
#cgo nocallback plaitk_pooling_scratch
#cgo noescape plaitk_pooling_max
#cgo nocallback plaitk_pooling_max
#cgo noescape plaitk_pooling_average
#cgo nocallback plaitk_pooling_average
#cgo noescape plaitk_pooling_average_grad
#cgo nocallback plaitk_pooling_average_grad
#cgo noescape plaitk_pooling_gather
#cgo nocallback plaitk_pooling_gather
#cgo noescape plaitk_pooling_scatter
#cgo nocallback plaitk_pooling_scatter
#cgo noescape plaitk_pooling_scatter_scratch
#cgo nocallback plaitk_pooling_scatter_scratch
#include "c/pooling.h"
*/
import "C"

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
	_ "github.com/plait-ml/plait/core/cpu/kernel/pooling/c" // its kernels
)

func init() {
	kernel.Register(contract.MaxPool, maxCall)
	kernel.Register(contract.AvgPool, averageCall)
	kernel.Register(contract.AvgPoolGrad, averageGradCall)
	kernel.Register(contract.PlaneGather, gatherCall)
	kernel.Register(contract.PlaneScatter, scatterCall)
}

// A geometry describes a pooling; missing leading dimensions are 1. It is plaitk_pooling_shape.
type geometry struct {
	dtype, planes                              int64
	in, out, kernel, stride, padding, dilation [3]int64
	adaptive, includePad, divisor              int64
}

func (g *geometry) c() *C.plaitk_pooling_shape { return (*C.plaitk_pooling_shape)(unsafe.Pointer(g)) }

// describe returns the geometry of a pooling from large to small, whose last nd dimensions are spatial: Ints are nd;
// then 1 for adaptive windows, or 0, kernel, stride, padding and dilation of each dimension, whether averages count
// padding, and their divisor or 0.
func describe(c *core.Call, large, small *core.Operand) *geometry {
	nd := int(c.Ints[0])
	g := &geometry{dtype: int64(large.DType), planes: 1, adaptive: c.Ints[1]}
	first := len(large.Shape) - nd
	for _, d := range large.Shape[:first] {
		g.planes *= int64(d)
	}
	for i := range 3 {
		g.in[i], g.out[i], g.kernel[i], g.stride[i], g.dilation[i] = 1, 1, 1, 1, 1
	}
	for i := range nd {
		d := 3 - nd + i
		g.in[d], g.out[d] = int64(large.Shape[first+i]), int64(small.Shape[first+i])
		if g.adaptive == 0 {
			g.kernel[d], g.stride[d], g.padding[d], g.dilation[d] = c.Ints[2+i], c.Ints[2+nd+i], c.Ints[2+2*nd+i], c.Ints[2+3*nd+i]
		}
	}
	if g.adaptive == 0 {
		g.includePad, g.divisor = c.Ints[2+4*nd], c.Ints[3+4*nd]
	}
	return g
}

func (g *geometry) scratch(ctx *kernel.Context) (unsafe.Pointer, error) {
	return ctx.Scratch(int(C.plaitk_pooling_scratch((*C.plait_pool)(ctx.Pool), g.c())))
}

// max_pool: Outs[0] = the largest elements of the windows of Ins[0], Outs[1], which may be missing, int64, their
// positions in their planes. Contiguous; attributes as for describe.
func maxCall(ctx *kernel.Context, c *core.Call) error {
	x, y := &c.Ins[0], &c.Outs[0]
	g := describe(c, x, y)
	scratch, err := g.scratch(ctx)
	if err != nil {
		return err
	}
	var index unsafe.Pointer
	if len(c.Outs) > 1 {
		index = c.Outs[1].Ptr()
	}
	C.plaitk_pooling_max((*C.plait_pool)(ctx.Pool), g.c(), x.Ptr(), y.Ptr(), (*C.int64_t)(index), scratch)
	return nil
}

// avg_pool: Outs[0] = the averages of the windows of Ins[0].
func averageCall(ctx *kernel.Context, c *core.Call) error {
	x, y := &c.Ins[0], &c.Outs[0]
	g := describe(c, x, y)
	scratch, err := g.scratch(ctx)
	if err != nil {
		return err
	}
	C.plaitk_pooling_average((*C.plait_pool)(ctx.Pool), g.c(), x.Ptr(), y.Ptr(), scratch)
	return nil
}

// avg_pool_grad: Outs[0] = the gradient of the input of avg_pool for the gradient Ins[0] of its output.
func averageGradCall(ctx *kernel.Context, c *core.Call) error {
	dy, dx := &c.Ins[0], &c.Outs[0]
	g := describe(c, dx, dy)
	scratch, err := g.scratch(ctx)
	if err != nil {
		return err
	}
	C.plaitk_pooling_average_grad((*C.plait_pool)(ctx.Pool), g.c(), dy.Ptr(), dx.Ptr(), scratch)
	return nil
}

// planes returns how many planes the first dims of a shape make, and the elements of one.
func planes(shape []int, spatial int) (count, size int) {
	n := len(shape) - spatial
	return core.Numel(shape[:n]), core.Numel(shape[n:])
}

func indexError(c *core.Call, bad int64, index *core.Operand, size int) error {
	v := unsafe.Slice((*int64)(index.Ptr()), index.Numel())[bad]
	return core.Errorf(core.IndexError, c.Op, "index %d out of range for planes of %d elements", v, size)
}

// plane_gather: Outs[0][p, i] = Ins[0][p, Ins[1][p, i]] for planes of the last Ints[0] dimensions. Contiguous.
func gatherCall(ctx *kernel.Context, c *core.Call) error {
	in, index, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	n, nIn := planes(in.Shape, int(c.Ints[0]))
	_, nIndex := planes(index.Shape, int(c.Ints[0]))
	bad := C.plaitk_pooling_gather((*C.plait_pool)(ctx.Pool), C.int64_t(in.DType.Size()), C.int64_t(n), C.int64_t(nIn),
		C.int64_t(nIndex), in.Ptr(), (*C.int64_t)(index.Ptr()), out.Ptr())
	if bad >= 0 {
		return indexError(c, int64(bad), index, nIn)
	}
	return nil
}

// plane_scatter: Outs[0] = 0, then Outs[0][p, Ins[1][p, i]] += Ins[0][p, i], or = if Ints[1] is 0, for planes of the last
// Ints[0] dimensions. Contiguous. The attributes of the max pooling that made the index may follow in Ints; they are not needed.
func scatterCall(ctx *kernel.Context, c *core.Call) error {
	in, index, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	n, nOut := planes(out.Shape, int(c.Ints[0]))
	_, nIndex := planes(index.Shape, int(c.Ints[0]))
	dtype, add := C.int64_t(in.DType), C.int64_t(c.Ints[1])
	p := (*C.plait_pool)(ctx.Pool)
	scratch, err := ctx.Scratch(int(C.plaitk_pooling_scatter_scratch(p, dtype, add, C.int64_t(nOut))))
	if err != nil {
		return err
	}
	bad := C.plaitk_pooling_scatter(p, dtype, add, C.int64_t(n), C.int64_t(nIndex), C.int64_t(nOut), in.Ptr(),
		(*C.int64_t)(index.Ptr()), out.Ptr(), scratch)
	if bad >= 0 {
		return indexError(c, int64(bad), index, nOut)
	}
	return nil
}
