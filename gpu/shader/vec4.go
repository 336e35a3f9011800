package shader

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

// Vec4 reports whether a floating-point operand can be accessed four elements at a time, along its dimension of stride 1. steps are its
// other strides. The kernel then sets the field Vec4 of the operand's binding and uses the functions ld4_NAME and st4_NAME, which take the
// index of a vec4 and are declared for every such binding. An output must own whole vec4: the bits of elements are not changed atomically.
func Vec4(o *core.Operand, steps ...int) bool {
	if !HasVec4(o.DType) || Base(o)%4 != 0 {
		return false
	}
	for _, s := range steps {
		if s%4 != 0 {
			return false
		}
	}
	return true
}

// HasVec4 reports whether programs can access elements of a dtype by ld4_NAME and st4_NAME.
func HasVec4(d core.DType) bool { return d.IsFloat() }

// loader4 writes the function ld4_NAME, which reads the four elements of a vec4.
func (a *Access) loader4(w *Text) {
	sign := "ld4_" + a.Name + "(q_: u32) -> real4"
	if a.real4(w) {
		w.Func(sign, "return %s[q_];", a.Name)
		return
	}
	w.Func(sign, "%s  return real4(%[2]s_0, %[2]s_1, %[2]s_2, %[2]s_3);", a.LoadVec4(w, expr.F32, expr.Number, "q_ * 4u"), a.Name)
}

// storer4 writes the function st4_NAME, which stores the four elements of a vec4.
func (a *Access) storer4(w *Text) {
	sign := "st4_" + a.Name + "(q_: u32, v_: real4)"
	if a.real4(w) {
		w.Func(sign, "%s[q_] = v_;", a.Name)
		return
	}
	w.Func(sign, "%s", a.StoreVec4(w, expr.F32, expr.Number, "q_ * 4u", [4]string{"v_.x", "v_.y", "v_.z", "v_.w"}))
}

// takesVec4 reports whether the binding has the functions ld4_NAME and st4_NAME.
func (b *Binding) takesVec4() bool {
	return b.Vec4 && b.compute == expr.F32 && b.kind == expr.Number && HasVec4(b.DType)
}
