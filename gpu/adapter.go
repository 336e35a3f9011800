package gpu

import (
	"os"
	"sync"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/cuda"
	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/webgpu"
)

func init() {
	core.RegisterBackend(core.Backend{Kind: "gpu", Aliases: []string{"cuda"}, Open: open, Count: Count})
}

// drivers lists the GPU drivers of the process. A GPU that several of them have is run by the first of these that can open it.
var drivers = []driver.Driver{cuda.Driver, webgpu.Driver}

// listed is the listing of the process's GPUs once it is made.
var listed atomic.Pointer[listing]

// gpus returns the listing of the process's GPUs, and makes it on the first call.
var gpus = sync.OnceValue(func() *listing {
	_ = os.Getenv("PLAIT_TEST_DRIVERS") // go test caches results by the variables that a test reads; a new driver changes this one
	l := newListing(drivers, environment())
	listed.Store(l)
	return l
})

// Count returns the number of GPUs that can be opened.
func Count() int { return len(gpus().entries) }

// Reason returns in one line why there is no GPU. It is empty if there is one.
func Reason() string { return gpus().reason() }

// DriverOf returns the name of the driver of the GPU with an index, "cuda" or "webgpu". It lists no GPUs: it returns an empty string
// until [Count] or [core.OpenDevice] has listed them, and for an index that none has.
func DriverOf(index int) string {
	l := listed.Load()
	if l == nil {
		return ""
	}
	return l.driverOf(index)
}

// SetLibraryFolders sets the folders that CUDA's libraries are looked for in first, such as those of a Python environment. Call it before
// GPUs are listed.
func SetLibraryFolders(list []string) { cuda.SetFolders(list) }

// Shutdown makes every open GPU count as lost, waits up to ten seconds until the drivers have ended the work that was submitted, and
// reports whether they have. A C program calls it before exit or before it returns from main: a driver that is at work then may crash. Go
// programs need not.
func Shutdown() bool {
	left := true
	for _, d := range drivers {
		left = d.Shutdown() && left
	}
	return left
}

func open(index, ordinal int) (core.Device, error) {
	if err := environment().err; err != nil {
		return nil, err
	}
	d, err := gpus().open(index, ordinal)
	if err != nil {
		return nil, err
	}
	return d, nil
}
