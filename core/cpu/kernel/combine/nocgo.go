//go:build !cgo

package combine // without cgo the build stops in core/internal/needcgo
