//go:build !cgo

package pool // without cgo the build stops in core/internal/needcgo
