package core

import "sync/atomic"

// A Permission lets kernels compute products less precisely than in their dtype, on devices that are faster then. All are off at first.
type Permission int

const (
	// TF32Products lets matrix products round float32 factors to TF32, which has 10 bits of mantissa. Sums stay float32.
	TF32Products Permission = iota
	// TF32Convolutions does so for convolutions.
	TF32Convolutions
	// Float16Sums lets products of float16 round partial sums to float16.
	Float16Sums
	// BFloat16Sums lets products of bfloat16 round partial sums to bfloat16.
	BFloat16Sums
)

// permissions has a bit for each permission that is on.
var permissions atomic.Uint32

// Permit turns a permission of the process on or off, and returns what it was before. An operation reads it when it is called.
func Permit(p Permission, on bool) (before bool) {
	old := uint32(0)
	if on {
		old = permissions.Or(1 << p)
	} else {
		old = permissions.And(^uint32(1 << p))
	}
	return old>>p&1 != 0
}

// Permissions returns a number that tells which permissions are on.
func Permissions() uint32 { return permissions.Load() }

// Permitted reports whether a permission is on.
func Permitted(p Permission) bool { return permissions.Load()>>p&1 != 0 }

// ReducedProducts reports whether matrix products of a dtype may be computed less precisely.
func ReducedProducts(t DType) bool {
	if permissions.Load() == 0 {
		return false
	}
	switch t {
	case Float32:
		return Permitted(TF32Products)
	case Float16:
		return Permitted(Float16Sums)
	case BFloat16:
		return Permitted(BFloat16Sums)
	}
	return false
}

// ReducedConvolutions reports whether convolutions of a dtype may be computed less precisely.
func ReducedConvolutions(t DType) bool { return t == Float32 && Permitted(TF32Convolutions) }
