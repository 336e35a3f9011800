// Package c holds the C of package matmul, and imports nothing: a package is compiled again when an import of it changes.
package c

/*
#cgo CFLAGS: -O3 -fopenmp-simd -DPLAIT_HEADERS=0x569e4990
*/
import "C"
