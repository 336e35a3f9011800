// Package c holds the C of package linalg, and imports nothing: a package is compiled again when an import of it changes.
package c

/*
#cgo CFLAGS: -O3 -fopenmp-simd -DPLAIT_HEADERS=0x87a240a5
#cgo LDFLAGS: -lm
*/
import "C"
