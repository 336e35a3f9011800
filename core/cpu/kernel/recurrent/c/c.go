// Package c holds the C of package recurrent, and imports nothing: a package is compiled again when an import of it changes.
package c

/*
#cgo CFLAGS: -O3 -g1 -fopenmp-simd -DPLAIT_HEADERS=0x47c05bee
#cgo race CFLAGS: -O1
#cgo LDFLAGS: -lm
*/
import "C"
