//go:build !(cgo && ((linux && amd64) || darwin))

package webgpu

import (
	"errors"

	"github.com/plait-ml/plait/gpu/driver"
)

// Driver has no GPUs on this platform.
var Driver driver.Driver = none{}

const unsupported = "GPUs are supported on linux/amd64 and macOS"

type none struct{}

// Name implements [driver.Driver].
func (none) Name() string { return "webgpu" }

// Adapters implements [driver.Driver].
func (none) Adapters() []driver.Adapter { return nil }

// Missing implements [driver.Driver].
func (none) Missing() string { return unsupported }

// Open implements [driver.Driver].
func (none) Open(int) (driver.GPU, error) { return nil, errors.New(unsupported) }

// Shutdown implements [driver.Driver].
func (none) Shutdown() bool { return true }
