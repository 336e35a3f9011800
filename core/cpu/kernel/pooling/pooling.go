// Package pooling computes maxima and averages over windows of up to three spatial dimensions, and moves elements of
// image planes by indices, on the CPU.
package pooling

/*
#include "c/pooling.h"
*/
import "C"

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.MaxPool, maxCall)
	kernel.Register(contract.AvgPool, averageCall)
	kernel.Register(contract.AvgPoolGrad, averageGradCall)
	kernel.Register(contract.PlaneGather, gatherCall)
	kernel.Register(contract.PlaneScatter, scatterCall)
}

// A geometry describes a pooling. Missing leading dimensions are 1. It has the layout of plaitk_pooling_shape.
type geometry struct {
	dtype, planes                              int64
	in, out, kernel, stride, padding, dilation [3]int64
	adaptive, includePad, divisor              int64
}

func (g *geometry) c() *C.plaitk_pooling_shape { return (*C.plaitk_pooling_shape)(unsafe.Pointer(g)) }

// describe returns the geometry of a pooling from the plane of large to the plane of small.
func describe(c *core.Call, large, small *core.Operand) *geometry {
	a := contract.PoolOf(c)
	nd := a.Spatial
	g := &geometry{dtype: int64(large.DType), planes: 1, adaptive: contract.Flag(a.Adaptive), includePad: contract.Flag(a.IncludePad), divisor: int64(a.Divisor)}
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
		if !a.Adaptive {
			g.kernel[d], g.stride[d], g.padding[d], g.dilation[d] = a.Kernel[i], a.Stride[i], a.Padding[i], a.Dilation[i]
		}
	}
	return g
}

func (g *geometry) scratch(ctx *kernel.Context) (unsafe.Pointer, error) {
	return ctx.Scratch(int(C.plaitk_pooling_scratch((*C.plait_pool)(ctx.Pool), g.c())))
}

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

// planes returns the number of planes in a shape, and the elements of each.
func planes(shape []int, spatial int) (count, size int) {
	n := len(shape) - spatial
	return core.Numel(shape[:n]), core.Numel(shape[n:])
}

func indexError(c *core.Call, bad int64, index *core.Operand, size int) error {
	v := unsafe.Slice((*int64)(index.Ptr()), index.Numel())[bad]
	return core.Errorf(core.IndexError, c.Op, "index %d out of range for planes of %d elements", v, size)
}

func gatherCall(ctx *kernel.Context, c *core.Call) error {
	in, index, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	spatial := contract.PlaneSpatial(c)
	n, nIn := planes(in.Shape, spatial)
	_, nIndex := planes(index.Shape, spatial)
	bad := C.plaitk_pooling_gather((*C.plait_pool)(ctx.Pool), C.int64_t(in.DType.Size()), C.int64_t(n), C.int64_t(nIn),
		C.int64_t(nIndex), in.Ptr(), (*C.int64_t)(index.Ptr()), out.Ptr())
	if bad >= 0 {
		return indexError(c, int64(bad), index, nIn)
	}
	return nil
}

// scatterCall does not use the attributes of the pooling that made the index.
func scatterCall(ctx *kernel.Context, c *core.Call) error {
	in, index, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	a := contract.PlaneScatterOf(c)
	n, nOut := planes(out.Shape, a.Spatial)
	_, nIndex := planes(index.Shape, a.Spatial)
	dtype, add := C.int64_t(in.DType), C.int64_t(contract.Flag(a.Add))
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
