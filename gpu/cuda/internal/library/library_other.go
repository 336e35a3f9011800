//go:build !(cgo && linux && amd64)

// Package library opens the shared libraries of CUDA, which are not used on this platform.
package library

import (
	"errors"
	"unsafe"
)

// A Handle is an open library.
type Handle struct{}

var errPlatform = errors.New("CUDA is supported on linux/amd64")

// SetFolders does nothing.
func SetFolders([]string) {}

// Open returns an error.
func Open(...string) (Handle, string, error) { return Handle{}, "", errPlatform }

// Symbol returns an error.
func (Handle) Symbol(string) (unsafe.Pointer, error) { return nil, errPlatform }
