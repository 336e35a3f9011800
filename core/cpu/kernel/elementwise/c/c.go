// Package c holds the C of package elementwise, and imports nothing: a package is compiled again when an import of it changes.
package c

/*
#cgo CFLAGS: -O3 -fopenmp-simd -DPLAIT_HEADERS=0xe6b118c7
#cgo LDFLAGS: -lm
*/
import "C"
