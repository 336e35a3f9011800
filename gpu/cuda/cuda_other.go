//go:build !(cgo && linux && amd64)

// Package cuda is the driver for NVIDIA's GPUs. It has none on this platform.
package cuda

import (
	"errors"

	"github.com/plait-ml/plait/gpu/driver"
)

// Driver has no GPUs on this platform.
var Driver driver.Driver = none{}

const unsupported = "CUDA is supported on linux/amd64"

type none struct{}

// Name implements [driver.Driver].
func (none) Name() string { return "cuda" }

// Adapters implements [driver.Driver].
func (none) Adapters() []driver.Adapter { return nil }

// Missing implements [driver.Driver].
func (none) Missing() string { return unsupported }

// Open implements [driver.Driver].
func (none) Open(int) (driver.GPU, error) { return nil, errors.New(unsupported) }

// Shutdown implements [driver.Driver].
func (none) Shutdown() bool { return true }

// SetFolders does nothing.
func SetFolders([]string) {}
