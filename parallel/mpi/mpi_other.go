//go:build !(cgo && linux)

package mpi

import (
	"errors"
	"os"
)

var errPlatform = errors.New("mpi: MPI is supported on Linux, in programs that are built with cgo")

// A Library is an MPI library that can be used.
type Library struct{ Path, ABI, Version string }

// String returns the library's version and path.
func (l *Library) String() string { return l.Version }

// Find returns an error.
func Find(string) (*Library, error) { return nil, errPlatform }

// A Transport moves bytes between processes. There are none on this platform.
type Transport struct{}

// Join returns an error.
func Join(Options) (*Transport, error) { return nil, errPlatform }

// Name returns "mpi".
func (*Transport) Name() string { return "mpi" }

// Library returns nil.
func (*Transport) Library() *Library { return nil }

// Process returns 0.
func (*Transport) Process() int { return 0 }

// Processes returns 1.
func (*Transport) Processes() int { return 1 }

// Listen does nothing.
func (*Transport) Listen(func(int, []byte)) {}

// Post does nothing.
func (*Transport) Post(int, []byte) {}

// Send calls done with an error.
func (*Transport) Send(_ int, _ uint32, _ []byte, done func(error)) { done(errPlatform) }

// Recv calls done with an error.
func (*Transport) Recv(_ int, _ uint32, _ []byte, done func(error)) { done(errPlatform) }

// Progress does nothing.
func (*Transport) Progress() bool { return false }

// Lose does nothing.
func (*Transport) Lose(int, error) {}

// Lost does nothing.
func (*Transport) Lost(func(int, error)) {}

// Close does nothing.
func (*Transport) Close() error { return nil }

// Exit ends the process.
func Exit(code int) { os.Exit(code) }
