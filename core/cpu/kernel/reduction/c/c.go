// Package c holds the C of package reduction, and imports nothing: a package is compiled again when an import of it changes.
package c

/*
#cgo CFLAGS: -O3 -g1 -fopenmp-simd -DPLAIT_HEADERS=0xd202d72f
#cgo race CFLAGS: -O1
#cgo LDFLAGS: -lm
*/
import "C"
