//go:build !cgo

package kernel // without cgo the build stops in core/internal/needcgo
