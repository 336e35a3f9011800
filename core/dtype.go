package core

import "math"

// A DType is the type of a tensor's elements. The codes are shared with the C kernels (core/cpu/include/plait_kernel.h).
type DType uint8

// The dtypes. Float16 and BFloat16 are storage formats: arithmetic on them runs in float32. Uint64 is one too: what needs more of its
// numbers than their low 64 bits is not defined. An element of Complex64 is two of Float32 in memory, the real part before the imaginary
// one, and one of Complex128 two of Float64. A new dtype goes to the end, since files and programs have the codes.
const (
	Bool DType = iota
	Uint8
	Int32
	Int64
	Float16
	BFloat16
	Float32
	Float64
	Int8
	Int16
	Uint16
	Uint32
	Uint64
	Complex64
	Complex128

	numDTypes

	// NoDType is what dtypes without a common one promote to. It is not valid.
	NoDType = numDTypes
)

// DTypes lists every dtype.
func DTypes() []DType { return append(RealDTypes(), Complex64, Complex128) }

// RealDTypes lists the dtypes of real numbers and truth values.
func RealDTypes() []DType {
	return []DType{Bool, Uint8, Int32, Int64, Float16, BFloat16, Float32, Float64, Int8, Int16, Uint16, Uint32, Uint64}
}

var dtypeNames = [numDTypes]string{"bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "int8", "int16", "uint16",
	"uint32", "uint64", "complex64", "complex128"}

var dtypeSizes = [numDTypes]int{1, 1, 4, 8, 2, 2, 4, 8, 1, 2, 2, 4, 8, 8, 16}

// String returns PyTorch's name of the dtype, such as "float32".
func (d DType) String() string {
	switch {
	case d == NoDType:
		return "no common dtype"
	case d > NoDType:
		return "invalid dtype"
	}
	return dtypeNames[d]
}

// Size returns the bytes of one element.
func (d DType) Size() int { return dtypeSizes[d] }

// Valid reports whether d is one of the dtypes.
func (d DType) Valid() bool { return d < numDTypes }

// IsFloat reports whether d is a floating-point dtype.
func (d DType) IsFloat() bool { return d >= Float16 && d <= Float64 }

// IsComplex reports whether d is a dtype of complex numbers.
func (d DType) IsComplex() bool { return d == Complex64 || d == Complex128 }

// Differentiable reports whether tensors of d can have gradients: d is a floating-point or complex dtype.
func (d DType) Differentiable() bool { return d.IsFloat() || d.IsComplex() }

// Part returns the dtype of the real and imaginary parts of a complex dtype, and d itself for others.
func (d DType) Part() DType {
	switch d {
	case Complex64:
		return Float32
	case Complex128:
		return Float64
	}
	return d
}

// Complex returns the complex dtype with parts of d, as PyTorch pairs them: Complex128 for Float64, otherwise Complex64. It returns a
// complex dtype itself.
func (d DType) Complex() DType {
	if d == Float64 || d == Complex128 {
		return Complex128
	}
	return Complex64
}

// IsHalf reports whether d is one of the two 16-bit floating-point dtypes.
func (d DType) IsHalf() bool { return d == Float16 || d == BFloat16 }

// IsInt reports whether d is an integer dtype; Bool is not.
func (d DType) IsInt() bool { return d >= Uint8 && d <= Int64 || d >= Int8 && d <= Uint64 }

// IsSigned reports whether d has negative numbers.
func (d DType) IsSigned() bool { return d != Bool && d != Uint8 && (d < Uint16 || d.IsComplex()) }

// Limits returns the least and the largest integer of an integer dtype or Bool, as far as an int64 has it.
func (d DType) Limits() (least, largest int64) {
	bits := 8 * d.Size()
	switch {
	case d == Bool:
		return 0, 1
	case d.IsSigned():
		return -1 << (bits - 1), 1<<(bits-1) - 1
	case d == Uint64:
		return 0, math.MaxInt64
	}
	return 0, 1<<bits - 1
}

// Compute returns the dtype in which arithmetic on d runs: float32 for the half dtypes, otherwise d itself.
func (d DType) Compute() DType {
	if d.IsHalf() {
		return Float32
	}
	return d
}

// ParseDType returns the dtype with the given name, such as "float32".
func ParseDType(name string) (DType, error) {
	for d, n := range dtypeNames {
		if n == name {
			return DType(d), nil
		}
	}
	return 0, Errorf(TypeError, "dtype", "unknown dtype %q, want one of %v", name, DTypes())
}

// Promote returns the dtype of an operation between elements of a and b, by PyTorch's lattice:
// bool < uint8, int8 < int16 < int32 < int64 < float16, bfloat16 < float32 < float64, where uint8 with int8 gives int16, and float16 with
// bfloat16 float32. With a complex dtype, the result is the complex dtype of what the parts promote to. As in PyTorch, uint16, uint32 and
// uint64 have no common dtype with other integers, bools or complex dtypes: the result is NoDType.
func Promote(a, b DType) DType {
	if a == b {
		return a
	}
	if promotionOrder[a] > promotionOrder[b] {
		a, b = b, a
	}
	switch {
	case b == NoDType || unsignedOnly(a) && !b.IsFloat() || unsignedOnly(b):
		return NoDType
	case b == Complex64 && a == Float64:
		return Complex128
	case a == Uint8 && b == Int8:
		return Int16
	case a == Float16 && b == BFloat16:
		return Float32
	}
	return b
}

// unsignedOnly reports whether d is one of the unsigned dtypes that promote with floating-point dtypes only.
func unsignedOnly(d DType) bool { return d >= Uint16 && d <= Uint64 }

// promotionOrder orders dtypes so that of two which promote to one of them, that is the later one.
var promotionOrder = [numDTypes + 1]uint8{Bool: 0, Uint16: 1, Uint32: 2, Uint64: 3, Uint8: 4, Int8: 5, Int16: 6, Int32: 7, Int64: 8, Float16: 9,
	BFloat16: 10, Float32: 11, Float64: 12, Complex64: 13, Complex128: 14, NoDType: 15}

// category returns a dtype's category for type promotion. A 0-d tensor or a plain number only counts if its category is above that of every
// operand with dimensions.
func category(d DType) int {
	switch {
	case d.IsComplex():
		return 3
	case d.IsFloat():
		return 2
	case d.IsInt():
		return 1
	}
	return 0
}

// ResultType returns the dtype of an elementwise operation over the operands, as PyTorch promotes: tensors with
// dimensions decide, then 0-d tensors, then plain numbers, each only where it is of a higher category
// (bool < integer < floating < complex). A floating-point number counts as the context's default dtype, an integer as int64. A complex
// operand that counts so among floating-point ones makes the complex dtype of theirs.
func ResultType(operands ...*Tensor) DType {
	var best [3]DType // by priority: dimensioned, 0-d, number
	var have [3]bool
	for _, t := range operands {
		if t == nil {
			continue
		}
		p := 0
		if t.IsNumber() {
			p = 2
		} else if t.Dim() == 0 {
			p = 1
		}
		d := t.dtype
		if have[p] {
			d = Promote(best[p], d)
		}
		best[p], have[p] = d, true
	}
	result, found := Bool, false
	for p, d := range best {
		if !have[p] {
			continue
		}
		switch {
		case !found:
			result, found = d, true
		case category(d) > category(result) && d.IsComplex() && result.IsFloat():
			result = result.Complex()
		case category(d) > category(result):
			result = d
		}
	}
	return result
}
