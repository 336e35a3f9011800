package core

// A DType is the type of a tensor's elements. The codes are shared with the C kernels (core/cpu/include/plait_kernel.h).
type DType uint8

// The dtypes. Float16 and BFloat16 are storage formats: arithmetic on them runs in float32.
const (
	Bool DType = iota
	Uint8
	Int32
	Int64
	Float16
	BFloat16
	Float32
	Float64

	numDTypes
)

// DTypes lists every dtype.
func DTypes() []DType {
	return []DType{Bool, Uint8, Int32, Int64, Float16, BFloat16, Float32, Float64}
}

var dtypeNames = [numDTypes]string{"bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"}

var dtypeSizes = [numDTypes]int{1, 1, 4, 8, 2, 2, 4, 8}

// String returns PyTorch's name of the dtype, such as "float32".
func (d DType) String() string {
	if d >= numDTypes {
		return "invalid dtype"
	}
	return dtypeNames[d]
}

// Size returns the bytes of one element.
func (d DType) Size() int { return dtypeSizes[d] }

// Valid reports whether d is one of the dtypes.
func (d DType) Valid() bool { return d < numDTypes }

// IsFloat reports whether d is a floating-point dtype.
func (d DType) IsFloat() bool { return d >= Float16 && d < numDTypes }

// IsHalf reports whether d is one of the two 16-bit floating-point dtypes.
func (d DType) IsHalf() bool { return d == Float16 || d == BFloat16 }

// IsInt reports whether d is an integer dtype; Bool is not.
func (d DType) IsInt() bool { return d >= Uint8 && d <= Int64 }

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
// bool < uint8 < int32 < int64 < float16, bfloat16 < float32 < float64, and float16 with bfloat16 gives float32.
func Promote(a, b DType) DType {
	if a > b {
		a, b = b, a
	}
	if a == Float16 && b == BFloat16 {
		return Float32
	}
	return b
}

// category returns a dtype's category for type promotion. A 0-d tensor or a plain number only counts if its category is above that of every
// operand with dimensions.
func category(d DType) int {
	switch {
	case d.IsFloat():
		return 2
	case d.IsInt():
		return 1
	}
	return 0
}

// ResultType returns the dtype of an elementwise operation over the operands, as PyTorch promotes: tensors with
// dimensions decide, then 0-d tensors, then plain numbers, each only where it is of a higher category
// (bool < integer < floating). A floating-point number counts as the context's default dtype, an integer as int64.
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
		case category(d) > category(result):
			result = d
		}
	}
	return result
}
