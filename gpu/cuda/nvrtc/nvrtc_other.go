//go:build !(cgo && linux && amd64)

// Package nvrtc compiles CUDA C++ with NVRTC, NVIDIA's compiler library, which is not used on this platform.
package nvrtc

import "errors"

var errPlatform = errors.New("nvrtc: CUDA is supported on linux/amd64")

// Version returns an error.
func Version() (major, minor int, path string, err error) { return 0, 0, "", errPlatform }

// Compile returns an error.
func Compile(source, name string, capability int, options ...string) ([]byte, error) {
	return nil, errPlatform
}
