//go:build !cgo

package blas // without cgo the build stops in core/internal/needcgo
