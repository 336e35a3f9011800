package backend

import "math/bits"

// SizeClass rounds a size up to its size class, a multiple of unit. At most an eighth is wasted, and blocks can be reused for similar
// sizes. unit is a power of two and at least 64.
func SizeClass(bytes, unit int) int {
	n := max(bytes, unit)
	step := max(1<<(bits.Len(uint(n-1))-4), unit)
	return (n + step - 1) &^ (step - 1)
}

// ClassIndex numbers the size classes from 0. For the unit 64 there are 16 up to 1 KiB, then 8 per doubling. Classes of larger units are a
// subset.
func ClassIndex(class int) int {
	n := uint(class - 1)
	shift := max(bits.Len(n), 10) - 4
	return (shift-6)<<3 + int(n>>shift)
}
