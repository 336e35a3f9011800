// Package vmath runs the functions of core/cpu/include/plait_vmath.h one instruction set at a time, so that their accuracy
// and speed can be measured. Kernels include the header; nothing but tests imports this package.
package vmath

/*
#include "c/vmath.h"
*/
import "C"

import "unsafe"

// A Variant is the instruction set that a loop is compiled for.
type Variant int

const (
	Baseline Variant = iota
	AVX2
	AVX512
)

// String names the instruction set.
func (v Variant) String() string { return [...]string{"baseline", "avx2", "avx512"}[v] }

// Supported reports whether this machine runs the variant.
func (v Variant) Supported() bool { return C.plaitk_vmath_supported(C.int(v)) != 0 }

// A Function is a float function of the header.
type Function struct {
	Name      string
	Arguments int
	index     C.int
}

// Functions returns all functions, in the header's order.
func Functions() []Function {
	var fs []Function
	for i := C.int(0); ; i++ {
		var arguments C.int
		name := C.plaitk_vmath_name(i, &arguments)
		if name == nil {
			return fs
		}
		fs = append(fs, Function{C.GoString(name), int(arguments), i})
	}
}

// Apply computes y[i] = f(a[i]) or f(a[i], b[i]) in float32. The slices have one length; b is nil for one argument.
func (f Function) Apply(v Variant, y, a, b []float32) {
	C.plaitk_vmath_apply(f.index, C.int(v), floats(y), floats(a), floats(b), C.int64_t(len(y)))
}

// Reference computes the same in float64.
func (f Function) Reference(y []float64, a, b []float32) {
	C.plaitk_vmath_reference(f.index, doubles(y), floats(a), floats(b), C.int64_t(len(y)))
}

// Double computes the float64 function.
func (f Function) Double(a, b float64) float64 {
	return float64(C.plaitk_vmath_double(f.index, C.double(a), C.double(b)))
}

// Worst returns the largest error of got in ulp, and its position. The error is infinite for a wrong NaN, infinity or
// sign of zero. Absolute errors up to slack count as 0.
func Worst(got []float32, want []float64, slack float64) (ulp float64, at int) {
	var i C.int64_t
	e := C.plaitk_vmath_worst(floats(got), doubles(want), C.int64_t(len(got)), C.double(slack), &i)
	return float64(e), int(i)
}

// A DoubleFunction is a function that also vectorises for float64.
type DoubleFunction struct {
	Name      string
	Arguments int
	index     C.int
}

// DoubleFunctions returns all of these, in the header's order.
func DoubleFunctions() []DoubleFunction {
	var fs []DoubleFunction
	for i := C.int(0); ; i++ {
		var arguments C.int
		name := C.plaitk_vmath_double_name(i, &arguments)
		if name == nil {
			return fs
		}
		fs = append(fs, DoubleFunction{C.GoString(name), int(arguments), i})
	}
}

// Apply computes y[i] = f(a[i]) or f(a[i], b[i]) in float64. The slices have one length; b is nil for one argument.
func (f DoubleFunction) Apply(v Variant, y, a, b []float64) {
	C.plaitk_vmath_double_apply(f.index, C.int(v), doubles(y), doubles(a), doubles(b), C.int64_t(len(y)))
}

// Worst returns the largest error of got = f(a) or f(a, b) in ulp, measured against C's long double, and its position. The error
// is infinite for a wrong NaN, infinity or sign.
func (f DoubleFunction) Worst(got, a, b []float64) (ulp float64, at int) {
	var i C.int64_t
	e := C.plaitk_vmath_double_worst(f.index, doubles(got), doubles(a), doubles(b), C.int64_t(len(got)), &i)
	return float64(e), int(i)
}

func floats(s []float32) *C.float   { return (*C.float)(unsafe.Pointer(unsafe.SliceData(s))) }
func doubles(s []float64) *C.double { return (*C.double)(unsafe.Pointer(unsafe.SliceData(s))) }
