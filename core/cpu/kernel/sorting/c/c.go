// Package c holds the C of package sorting, and imports nothing: a package is compiled again when an import of it changes.
package c

/*
#cgo CFLAGS: -O3 -g1 -fopenmp-simd -DPLAIT_HEADERS=0xc0dce46d
#cgo race CFLAGS: -O1
*/
import "C"
