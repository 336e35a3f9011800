// Package rawtensor provides strided tensors in plain memory for the tests of kernels. Each tensor ends right before an unmapped page, so
// that a kernel that reads or writes past the end crashes.
package rawtensor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// The dtype codes of plait_kernel.h.
const (
	Bool = iota
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
)

// DTypes lists all dtype codes.
var DTypes = []int{Bool, Uint8, Int32, Int64, Float16, BFloat16, Float32, Float64, Int8, Int16, Uint16, Uint32, Uint64}

var names = []string{"bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "int8", "int16", "uint16",
	"uint32", "uint64"}

var sizes = []int{1, 1, 4, 8, 2, 2, 4, 8, 1, 2, 2, 4, 8}

// Name returns the name of a dtype.
func Name(dtype int) string { return names[dtype] }

// Size returns the bytes of an element of a dtype.
func Size(dtype int) int { return sizes[dtype] }

// IsFloat reports whether a dtype is a floating-point one.
func IsFloat(dtype int) bool { return dtype >= Float16 && dtype <= Float64 }

// A Tensor is a strided view of raw memory. Strides are in elements.
type Tensor struct {
	Ptr     unsafe.Pointer // the element at index 0
	DType   int
	Shape   []int
	Strides []int
	memory  []byte // the elements, without the page after them
}

// New returns a row-major tensor of zeros, freed at the end of the test.
func New(t testing.TB, dtype int, shape ...int) *Tensor {
	t.Helper()
	bytes := Numel(shape) * sizes[dtype]
	page := os.Getpagesize()
	room := (bytes + page - 1) / page * page
	region, err := syscall.Mmap(-1, 0, room+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(region) })
	if err := syscall.Mprotect(region[room:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	strides := make([]int, len(shape))
	n := 1
	for d := len(shape) - 1; d >= 0; d-- {
		strides[d] = n
		n *= shape[d]
	}
	memory := region[room-bytes : room : room]
	return &Tensor{unsafe.Pointer(unsafe.SliceData(memory)), dtype, append([]int(nil), shape...), strides, memory}
}

// Numel returns the number of elements of a shape.
func Numel(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// Numel returns the number of elements of t.
func (t *Tensor) Numel() int { return Numel(t.Shape) }

// Memory returns the bytes of the whole allocation that t is a view of.
func (t *Tensor) Memory() []byte { return t.memory }

func (t *Tensor) view(offset int, shape, strides []int) *Tensor {
	v := *t
	v.Ptr = unsafe.Add(t.Ptr, offset*sizes[t.DType])
	v.Shape, v.Strides = shape, strides
	return &v
}

// Permute returns t with its dimensions in the given order.
func (t *Tensor) Permute(dims ...int) *Tensor {
	shape, strides := make([]int, len(dims)), make([]int, len(dims))
	for i, d := range dims {
		shape[i], strides[i] = t.Shape[d], t.Strides[d]
	}
	return t.view(0, shape, strides)
}

// Slice returns every step-th index of dimension dim from start to before stop; a negative step counts down from
// stop-1.
func (t *Tensor) Slice(dim, start, stop, step int) *Tensor {
	shape, strides := append([]int(nil), t.Shape...), append([]int(nil), t.Strides...)
	n := max(0, stop-start)
	first := start
	if step < 0 {
		shape[dim] = (n - step - 1) / -step
		first = stop - 1
	} else {
		shape[dim] = (n + step - 1) / step
	}
	if n == 0 {
		first = 0
	}
	strides[dim] *= step
	return t.view(first*t.Strides[dim], shape, strides)
}

// Expand returns t broadcast to the given shape.
func (t *Tensor) Expand(shape ...int) *Tensor {
	strides := make([]int, len(shape))
	lead := len(shape) - len(t.Shape)
	for i, d := range t.Shape {
		if d != 1 || shape[lead+i] == 1 {
			strides[lead+i] = t.Strides[i]
		}
	}
	return t.view(0, append([]int(nil), shape...), strides)
}

// Addr returns the address of the element at the given index.
func (t *Tensor) Addr(index ...int) unsafe.Pointer {
	offset := 0
	for d, i := range index {
		if i < 0 || i >= t.Shape[d] {
			panic(fmt.Sprintf("index %v out of range for %v", index, t.Shape))
		}
		offset += i * t.Strides[d]
	}
	return unsafe.Add(t.Ptr, offset*sizes[t.DType])
}

// Unravel returns the index of the i-th element, counted row-major.
func (t *Tensor) Unravel(i int) []int { return Unravel(i, t.Shape) }

// Unravel returns the index of the i-th element of a shape, counted row-major.
func Unravel(i int, shape []int) []int {
	index := make([]int, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		index[d] = i % shape[d]
		i /= shape[d]
	}
	return index
}

// Bits returns the bits of an element.
func (t *Tensor) Bits(index ...int) uint64 {
	p := t.Addr(index...)
	switch sizes[t.DType] {
	case 1:
		return uint64(*(*uint8)(p))
	case 2:
		return uint64(*(*uint16)(p))
	case 4:
		return uint64(*(*uint32)(p))
	}
	return *(*uint64)(p)
}

// SetBits sets the bits of an element.
func (t *Tensor) SetBits(bits uint64, index ...int) {
	p := t.Addr(index...)
	switch sizes[t.DType] {
	case 1:
		*(*uint8)(p) = uint8(bits)
	case 2:
		*(*uint16)(p) = uint16(bits)
	case 4:
		*(*uint32)(p) = uint32(bits)
	default:
		*(*uint64)(p) = bits
	}
}

// Int returns an element of an integer dtype.
func (t *Tensor) Int(index ...int) int64 {
	return integer(t.DType, t.Bits(index...))
}

// Float returns an element of a floating-point dtype.
func (t *Tensor) Float(index ...int) float64 { return Decode(t.DType, t.Bits(index...)) }

// Decode returns the value of a floating-point element's bits.
func Decode(dtype int, bits uint64) float64 {
	switch dtype {
	case Float16:
		return decode(bits, 5, 10)
	case BFloat16:
		return decode(bits, 8, 7)
	case Float32:
		return float64(math.Float32frombits(uint32(bits)))
	}
	return math.Float64frombits(bits)
}

// decode reads a binary floating-point format by its definition.
func decode(bits uint64, exponentBits, fractionBits int) float64 {
	fraction := float64(bits & (1<<fractionBits - 1))
	exponent := int(bits>>fractionBits) & (1<<exponentBits - 1)
	bias := 1<<(exponentBits-1) - 1
	one := float64(uint64(1) << fractionBits)
	var v float64
	switch {
	case exponent == 1<<exponentBits-1 && fraction != 0:
		return math.NaN()
	case exponent == 1<<exponentBits-1:
		v = math.Inf(1)
	case exponent == 0:
		v = math.Ldexp(fraction/one, 1-bias)
	default:
		v = math.Ldexp(1+fraction/one, exponent-bias)
	}
	if bits>>(exponentBits+fractionBits) != 0 {
		v = -v
	}
	return v
}

// Encode returns the bits of v in a floating-point dtype, rounded to nearest even. For 16-bit floats it rounds to
// float32 first, as every kernel does.
func Encode(dtype int, v float64) uint64 {
	switch dtype {
	case Float16:
		return encode(float32(v), 5, 10)
	case BFloat16:
		return encode(float32(v), 8, 7)
	case Float32:
		return uint64(math.Float32bits(float32(v)))
	}
	return math.Float64bits(v)
}

// encode rounds x to a binary floating-point format by its definition.
func encode(x float32, exponentBits, fractionBits int) uint64 {
	v := float64(x)
	bias := 1<<(exponentBits-1) - 1
	top := uint64(1<<exponentBits-1) << fractionBits
	var sign uint64
	if math.Signbit(v) {
		sign = 1 << (exponentBits + fractionBits)
		v = -v
	}
	if v != v {
		return top | 1<<(fractionBits-1)
	}
	if math.IsInf(v, 0) {
		return sign | top
	}
	_, exponent := math.Frexp(v)
	exponent = max(exponent-1, 1-bias) // v = m * 2^exponent with m in [1, 2), or a subnormal
	units := math.RoundToEven(math.Ldexp(v, fractionBits-exponent))
	if units >= math.Ldexp(2, fractionBits) {
		units /= 2
		exponent++
	}
	if exponent > bias {
		return sign | top
	}
	if units < math.Ldexp(1, fractionBits) {
		return sign | uint64(units)
	}
	return sign | uint64(exponent+bias)<<fractionBits | (uint64(units) - 1<<fractionBits)
}

// Set sets an element to v. The dtype should be able to hold v exactly.
func (t *Tensor) Set(v float64, index ...int) {
	switch {
	case IsFloat(t.DType):
		t.SetBits(Encode(t.DType, v), index...)
	default:
		t.SetBits(uint64(int64(v)), index...)
	}
}

// Value returns an element of any dtype as a float64.
func (t *Tensor) Value(index ...int) float64 {
	if IsFloat(t.DType) {
		return t.Float(index...)
	}
	return Wrap(t.DType, t.Int(index...))
}

// Each calls fn with every index in row-major order.
func (t *Tensor) Each(fn func(index []int)) {
	for i := range t.Numel() {
		fn(t.Unravel(i))
	}
}

// Fill sets every element to fn of its index.
func (t *Tensor) Fill(fn func(index []int) float64) *Tensor {
	t.Each(func(index []int) { t.Set(fn(index), index...) })
	return t
}

// Random fills t with small values that every dtype holds exactly.
func (t *Tensor) Random(rng *rand.Rand) *Tensor {
	return t.Fill(func([]int) float64 {
		switch t.DType {
		case Bool:
			return float64(rng.IntN(2))
		case Uint8, Uint16, Uint32, Uint64:
			return float64(rng.IntN(16))
		case Int8, Int16, Int32, Int64:
			return float64(rng.IntN(33) - 16)
		}
		return float64(rng.IntN(65)-32) / 4
	})
}

// Clone returns a row-major copy.
func (t *Tensor) Clone(tb testing.TB) *Tensor {
	c := New(tb, t.DType, t.Shape...)
	t.Each(func(index []int) { c.SetBits(t.Bits(index...), index...) })
	return c
}

// Layouts returns tensors of the given dtype and shape in several memory layouts, by name.
func Layouts(tb testing.TB, dtype int, shape []int) map[string]*Tensor {
	n := len(shape)
	out := map[string]*Tensor{"contiguous": New(tb, dtype, shape...)}
	if n == 0 {
		return out
	}
	reversed, order := make([]int, n), make([]int, n)
	for i := range shape {
		reversed[i], order[i] = shape[n-1-i], n-1-i
	}
	out["transposed"] = New(tb, dtype, reversed...).Permute(order...)
	wide := append([]int(nil), shape...)
	for i := range wide {
		wide[i] = 2*wide[i] + 1
	}
	sliced, flipped := New(tb, dtype, wide...), New(tb, dtype, shape...)
	for i := range shape {
		sliced = sliced.Slice(i, 1, 1+2*shape[i], 2)
		flipped = flipped.Slice(i, 0, shape[i], -1)
	}
	out["sliced"], out["flipped"] = sliced, flipped
	wide = append([]int(nil), shape...)
	wide[n-1] += 3
	out["narrowed"] = New(tb, dtype, wide...).Slice(n-1, 2, 2+shape[n-1], 1)
	return out
}
