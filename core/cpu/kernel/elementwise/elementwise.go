// Package elementwise has the CPU kernels that apply one function to every element. Their inner loops are generated from the rows of
// package op. A hand-written driver runs the loops over operands of any layout and dtype.
package elementwise

/*
#include "c/elementwise.h"

// An opaque name for plaitk_elementwise_call. cgo checks for Go pointers behind any pointer to a type with pointers; a
// call lies in C memory, so it needs no check.
struct plaitk_elementwise_opaque;
static int64_t plaitk_elementwise_start(plait_pool *pool, struct plaitk_elementwise_opaque *call) {
  return plaitk_elementwise_run(pool, (const plaitk_elementwise_call *)call);
}
*/
import "C"

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel"
	_ "github.com/plait-ml/plait/core/cpu/kernel/copying" // defines plaitk_copying_plane and _converter
)

// table has the registered kernels by name.
var table = map[string]*C.plaitk_elementwise_kernel{}

// family registers the kernels of a generated table. names are in the table's order.
func family(first unsafe.Pointer, names ...string) {
	kernels := unsafe.Slice((*C.plaitk_elementwise_kernel)(first), len(names))
	for i, name := range names {
		k := &kernels[i]
		table[name] = k
		kernel.Register(core.Kernel(name), func(ctx *kernel.Context, c *core.Call) error { return run(ctx, c, k) })
	}
}

// run fills in the C call and runs it. Inputs broadcast to the shape of the outputs. Inputs that are numbers become
// scalars of the loop. Attributes are c.Floats, or c.Ints for integer loops.
func run(ctx *kernel.Context, c *core.Call, k *C.plaitk_elementwise_kernel) error {
	scratch, err := ctx.Scratch(C.sizeof_plaitk_elementwise_call)
	if err != nil {
		return err
	}
	call := (*C.plaitk_elementwise_call)(scratch)
	shape := c.Outs[0].Shape
	call.kernel = k
	call.ndim = C.int64_t(len(shape))
	for d, n := range shape {
		call.shape[d] = C.int64_t(n)
	}
	for i := range c.Ins {
		if o := &c.Ins[i]; o.IsNumber {
			number(&call.operand[i], o, k._type[i], len(shape))
		} else {
			operand(&call.operand[i], o, shape)
		}
	}
	for i := range c.Outs {
		operand(&call.operand[len(c.Ins)+i], &c.Outs[i], shape)
	}
	for i, v := range c.Floats {
		*(*float64)(unsafe.Pointer(&call.attr[i])) = v
	}
	for i, v := range c.Ints {
		*(*int64)(unsafe.Pointer(&call.attr[i])) = v
	}
	if C.plaitk_elementwise_start((*C.plait_pool)(ctx.Pool), (*C.struct_plaitk_elementwise_opaque)(scratch)) != 0 {
		return core.Errorf(core.ValueError, c.Op, "integer division by zero")
	}
	return nil
}

func operand(to *C.plaitk_elementwise_operand, o *core.Operand, shape []int) {
	to.data = o.Ptr()
	to.dtype = C.int64_t(o.DType)
	lead := len(shape) - len(o.Shape)
	for d := range lead {
		to.stride[d] = 0
	}
	for d, n := range o.Shape {
		s := o.Strides[d]
		if n == 1 && shape[lead+d] != 1 {
			s = 0
		}
		to.stride[lead+d] = C.int64_t(s)
	}
}

func number(to *C.plaitk_elementwise_operand, o *core.Operand, loopType C.uint8_t, dims int) {
	to.data = nil
	for d := range dims { // calls are reused, so clear old values
		to.stride[d] = 0
	}
	if loopType == C.PLAIT_I64 {
		*(*int64)(unsafe.Pointer(&to.value)) = o.Number.Int
	} else {
		*(*float64)(unsafe.Pointer(&to.value)) = o.Number.Float
	}
}
