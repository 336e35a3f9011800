// Package c holds the C of package copying, and imports nothing: a package is compiled again when an import of it changes.
package c

/*
#cgo CFLAGS: -O3 -g1 -fopenmp-simd -DPLAIT_HEADERS=0x807661ba
#cgo race CFLAGS: -O1
*/
import "C"
