//go:build !cgo

package dlpack // without cgo the build stops in core/internal/needcgo
