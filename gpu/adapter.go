package gpu

import (
	"os"
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/cuda"
	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/webgpu"
)

func init() {
	core.RegisterBackend(core.Backend{Kind: "gpu", Open: open, Count: Count})
}

// drivers lists the GPU drivers of the process.
var drivers = []driver.Driver{cuda.Driver, webgpu.Driver}

// An adapter is a GPU that can be opened, and its driver.
type adapter struct {
	driver.Adapter
	driver driver.Driver
}

var listed struct {
	sync.Once
	all, usable []adapter
}

// adapters lists the GPUs that can be opened. Each software adapter is listed as many times as PLAIT_SOFTWARE_GPU says.
func adapters() []adapter {
	listed.Do(func() {
		_ = os.Getenv("PLAIT_TEST_DRIVERS") // go test caches results by the variables that a test reads; a new driver changes this one
		for _, d := range drivers {
			for _, a := range d.Adapters() {
				listed.all = append(listed.all, adapter{a, d})
			}
		}
		for _, a := range listed.all {
			times := 1
			if a.Software {
				times = environment().software
			}
			listed.usable = append(listed.usable, slices.Repeat([]adapter{a}, times)...)
		}
	})
	return listed.usable
}

// Count returns the number of GPUs that can be opened.
func Count() int { return len(adapters()) }

// Reason returns in one line why there is no GPU. It is empty if there is one.
func Reason() string {
	switch {
	case Count() > 0:
		return ""
	case len(listed.all) > 0:
		return "the only adapter is " + listed.all[0].Name + ", which computes on the CPU; PLAIT_SOFTWARE_GPU=1 allows it"
	}
	for _, d := range drivers {
		if why := d.Missing(); why != "" {
			return why
		}
	}
	return "the Vulkan loader found no adapter: a GPU, its driver for Vulkan, or the right to use the GPU is missing"
}

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
	list := adapters()
	if len(list) == 0 {
		return nil, core.Errorf(core.DeviceError, "device", "there is no GPU: %s", Reason())
	}
	if index >= len(list) {
		return nil, core.Errorf(core.DeviceError, "device", "gpu:%d does not exist, there are %d GPUs", index, len(list))
	}
	return newDevice(index, ordinal, list[index])
}
