package core

// A Number is a plain scalar from the host: a bool, an integer, a floating-point or a complex value. It has a dtype but no memory. Kernels take it as
// an immediate.
type Number struct {
	Float float64 // the value, converted if it is a bool or an integer; the real part if it is complex
	Imag  float64 // the imaginary part
	Int   int64   // the value, truncated if it is floating-point
	DType DType   // Bool, Int64, a floating-point or a complex dtype
}

// FloatNumber returns v as a floating-point number of the default dtype's category.
func FloatNumber(v float64) Number { return Number{Float: v, Int: truncate(v), DType: Float32} }

// IntNumber returns v as an integer number.
func IntNumber(v int64) Number { return Number{Float: float64(v), Int: v, DType: Int64} }

// BoolNumber returns v as a bool number.
func BoolNumber(v bool) Number {
	n := Number{DType: Bool}
	if v {
		n.Float, n.Int = 1, 1
	}
	return n
}

// ComplexNumber returns v as a complex number.
func ComplexNumber(v complex128) Number {
	return Number{Float: real(v), Imag: imag(v), Int: truncate(real(v)), DType: Complex64}
}

func truncate(v float64) int64 {
	if v >= -0x1p63 && v < 0x1p63 {
		return int64(v)
	}
	return -1 << 63
}

// Num returns a 0-d tensor for the number v. It has no memory and promotes as a Python number does. Every operation that takes a tensor and
// a scalar accepts it: op.Mul(x, core.Num(2)).
func Num(v float64) *Tensor {
	return numberTensor(FloatNumber(v), CurrentContext().DefaultDType())
}

// IntNum is [Num] for an integer, which promotes as an integer.
func IntNum(v int64) *Tensor { return numberTensor(IntNumber(v), Int64) }

// BoolNum is [Num] for a bool.
func BoolNum(v bool) *Tensor { return numberTensor(BoolNumber(v), Bool) }

// ComplexNum is [Num] for a complex number. Operations that are not defined for complex numbers refuse it.
func ComplexNum(v complex128) *Tensor {
	return numberTensor(ComplexNumber(v), CurrentContext().DefaultDType().Complex())
}

// IsNumber reports whether t is a plain number (see [Num]).
func (t *Tensor) IsNumber() bool { return t.isNumber }

// Number returns t's number; the zero Number if t is none.
func (t *Tensor) Number() Number {
	if t.other == nil {
		return Number{}
	}
	return t.other.number
}
