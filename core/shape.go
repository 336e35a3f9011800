package core

import (
	"math"
	"math/bits"
	"slices"
)

// MaxDims is the maximum number of dimensions of a tensor.
const MaxDims = 12

// Numel returns the number of elements of a shape; 1 for a 0-d shape.
func Numel(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// CheckShape returns the number of elements of a shape given by a user, and an error if a dimension is negative, there
// are more than [MaxDims], or the size in bytes would overflow.
func CheckShape(op string, shape []int, d DType) (int, error) {
	if len(shape) > MaxDims {
		return 0, Errorf(ShapeError, op, "got %d dimensions %v, want at most %d", len(shape), shape, MaxDims)
	}
	n, empty := uint64(1), false
	for _, s := range shape {
		if s < 0 {
			return 0, Errorf(ShapeError, op, "negative dimension in shape %v", shape)
		}
		if s == 0 {
			empty = true
			continue
		}
		hi, lo := bits.Mul64(n, uint64(s))
		if hi != 0 || lo > math.MaxInt64/16 {
			return 0, Errorf(MemoryError, op, "shape %v of %v is larger than the address space", shape, d)
		}
		n = lo
	}
	if empty {
		return 0, nil
	}
	return int(n), nil
}

// ContiguousStrides writes the row-major strides of shape to strides, which must have the same length.
func ContiguousStrides(shape, strides []int) {
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = n
		n *= max(shape[i], 1)
	}
}

// IsContiguous reports whether strides are the row-major strides of shape. Strides of dimensions of size 1 and of empty shapes are ignored.
func IsContiguous(shape, strides []int) bool {
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		switch {
		case shape[i] == 0:
			return true
		case shape[i] != 1 && strides[i] != n:
			return false
		}
		n *= shape[i]
	}
	return true
}

// Broadcast returns the shape to which shapes broadcast by NumPy's rule: aligned at the last dimension, two sizes must be equal or one of
// them 1.
func Broadcast(op string, shapes ...[]int) ([]int, error) {
	n := 0
	for _, s := range shapes {
		n = max(n, len(s))
	}
	out := make([]int, n)
	for i := range out {
		out[i] = 1
	}
	for _, s := range shapes {
		lead := n - len(s)
		for i, d := range s {
			switch o := out[lead+i]; {
			case d == o || d == 1:
			case o == 1:
				out[lead+i] = d
			default:
				return nil, Errorf(ShapeError, op, "shapes %v do not broadcast: sizes %d and %d at dimension %d", shapes, o, d, lead+i)
			}
		}
	}
	return out, nil
}

// WrapDim returns dim in the range [0, n); a negative dim counts from the end. A 0-d tensor counts as one dimension, as in PyTorch.
func WrapDim(op string, dim, n int) (int, error) {
	m := max(n, 1)
	if dim < -m || dim >= m {
		return 0, Errorf(IndexError, op, "dimension %d out of range, want [%d, %d]", dim, -m, m-1)
	}
	if dim < 0 {
		dim += m
	}
	return dim, nil
}

// WrapDims wraps every dimension of dims and sorts them. It fails if one repeats or is out of range. Empty dims mean all dimensions.
func WrapDims(op string, dims []int, n int) ([]int, error) {
	if len(dims) == 0 {
		out := make([]int, n)
		for i := range out {
			out[i] = i
		}
		return out, nil
	}
	out := make([]int, len(dims))
	for i, d := range dims {
		w, err := WrapDim(op, d, n)
		if err != nil {
			return nil, err
		}
		out[i] = w
	}
	slices.Sort(out)
	for i := 1; i < len(out); i++ {
		if out[i] == out[i-1] {
			return nil, Errorf(ValueError, op, "dimension %d appears twice in %v", out[i], dims)
		}
	}
	if n == 0 { // a 0-d tensor has no axis 0 to reduce
		return nil, nil
	}
	return out, nil
}

// ExpandStrides returns the strides that read a tensor of the given shape and strides as one of shape out, to which it broadcasts. Repeated
// dimensions have stride 0.
func ExpandStrides(shape, strides, out []int) []int {
	s := make([]int, len(out))
	lead := len(out) - len(shape)
	for i := range shape {
		if shape[i] != 1 || out[lead+i] == 1 {
			s[lead+i] = strides[i]
		}
	}
	return s
}
