//go:build !cgo

package python // without cgo the build stops in core/internal/needcgo
