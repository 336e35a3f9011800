package handle

import "unsafe"

// Pointer returns the address a, which names memory off the Go heap, as a pointer.
func Pointer(a int64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }

// Slice returns the n elements of type T at the address a, without a copy; nil if there are none.
func Slice[T any](a, n int64) []T {
	if n <= 0 || a == 0 {
		return nil
	}
	return unsafe.Slice((*T)(Pointer(a)), n)
}

// Ints returns a copy of the n integers at the address a, not nil.
func Ints(a, n int64) []int {
	out := make([]int, max(n, 0))
	for i, v := range Slice[int64](a, n) {
		out[i] = int(v)
	}
	return out
}
