// Package c holds the C of package softmax, and imports nothing: a package is compiled again when an import of it changes.
package c

/*
#cgo CFLAGS: -O3 -g1 -fopenmp-simd -DPLAIT_HEADERS=0x63a19c34
#cgo race CFLAGS: -O1
#cgo LDFLAGS: -lm
*/
import "C"
