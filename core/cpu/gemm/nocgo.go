//go:build !cgo

package gemm // without cgo the build stops in core/internal/needcgo
