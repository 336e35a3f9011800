package backend

import "math/bits"

// SizeClass rounds a size up to a multiple of unit, a power of two from 64 on, so that at most an eighth is wasted and pieces are
// found again.
func SizeClass(bytes, unit int) int {
	n := max(bytes, unit)
	step := max(1<<(bits.Len(uint(n-1))-4), unit)
	return (n + step - 1) &^ (step - 1)
}

// ClassIndex numbers the classes that [SizeClass] returns, from 0 on: of the unit 64, 16 up to 1 KiB, then 8 for each doubling. Those
// of a larger unit are among them.
func ClassIndex(class int) int {
	n := uint(class - 1)
	shift := max(bits.Len(n), 10) - 4
	return (shift-6)<<3 + int(n>>shift)
}
