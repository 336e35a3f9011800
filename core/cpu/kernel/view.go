package kernel

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
)

// A View is an operand as C's plait_view: the address of the element at index 0, shape, and strides in elements.
type View struct {
	Data           unsafe.Pointer
	DType, Dims    int64
	Shape, Strides [core.MaxDims]int64
}

// ViewOf describes a tensor operand.
func ViewOf(o *core.Operand) View {
	v := View{Data: o.Ptr(), DType: int64(o.DType), Dims: int64(len(o.Shape))}
	for i := range o.Shape {
		v.Shape[i], v.Strides[i] = int64(o.Shape[i]), int64(o.Strides[i])
	}
	return v
}

// Ptr returns the address of an operand's element at index 0, or nil if it is absent.
func Ptr(o *core.Operand) unsafe.Pointer {
	if !o.Present() {
		return nil
	}
	return o.Ptr()
}
