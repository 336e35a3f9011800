package gpu

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
)

// settings are the environment variables for GPUs. err is the error of the first invalid one; opening a device returns it.
type settings struct {
	sync, fusion bool
	peers        bool // GPUs use each other's memory where they can
	software     int  // how many times each software adapter is listed
	memory       int  // 0 for the default
	tune         int  // 1 to measure, 0 to ignore stored measurements, -1 to use them
	drivers      driverChoice
	hidesCUDA    bool // CUDA_VISIBLE_DEVICES hides GPUs from CUDA
	err          error
}

// A driverChoice says which driver runs which GPU: the value of PLAIT_GPU_DRIVER.
type driverChoice struct {
	every   string         // the driver of all GPUs, or empty
	byIndex map[int]string // the drivers of some GPUs
}

// The names of the drivers.
const (
	cudaDriver   = "cuda"
	webgpuDriver = "webgpu"
)

var driverNames = []string{cudaDriver, webgpuDriver}

// benchmark says whether devices measure which algorithm for a matrix product is fastest. It is set from the environment once, or by
// SetBenchmark.
var (
	benchmark    atomic.Bool
	benchmarkSet sync.Once
)

// Benchmark reports whether algorithms of matrix products are measured. PLAIT_TUNE=1 turns it on.
func Benchmark() bool {
	benchmarkSet.Do(func() { benchmark.Store(environment().tune == 1) })
	return benchmark.Load()
}

// SetBenchmark turns the measurement of matrix products on or off.
func SetBenchmark(on bool) {
	benchmarkSet.Do(func() {})
	benchmark.Store(on)
}

// environment returns the settings. The environment is read once.
var environment = sync.OnceValue(func() (s settings) {
	note := func(err error) {
		if s.err == nil {
			s.err = err
		}
	}
	var err error
	s.sync, err = core.EnvFlag("PLAIT_SYNC")
	note(err)
	fusion, err := core.EnvNumber("PLAIT_GPU_FUSION", 0, 1, 1)
	s.fusion = fusion == 1
	note(err)
	peers, err := core.EnvNumber("PLAIT_GPU_PEERS", 0, 1, 1)
	s.peers = peers == 1
	note(err)
	s.software, err = core.EnvNumber("PLAIT_SOFTWARE_GPU", 0, math.MaxUint8, 0)
	note(err)
	memory, err := core.EnvBytes("PLAIT_GPU_MEMORY")
	s.memory = int(memory)
	note(err)
	s.tune, err = core.EnvNumber("PLAIT_TUNE", 0, 1, -1)
	note(err)
	s.hidesCUDA = os.Getenv("CUDA_VISIBLE_DEVICES") != ""
	s.drivers, err = parseDrivers(os.Getenv("PLAIT_GPU_DRIVER"))
	note(err)
	return s
})

// parseDrivers reads the name of a driver, or a list such as "gpu:0=cuda,gpu:1=webgpu".
func parseDrivers(value string) (driverChoice, error) {
	if value == "" || slices.Contains(driverNames, value) {
		return driverChoice{every: value}, nil
	}
	c := driverChoice{byIndex: map[int]string{}}
	for part := range strings.SplitSeq(value, ",") {
		gpu, name, assigned := strings.Cut(strings.TrimSpace(part), "=")
		kind, number, _ := strings.Cut(gpu, ":")
		index, err := strconv.ParseUint(number, 10, 16)
		gpu = fmt.Sprint("gpu:", index)
		switch {
		case !assigned || kind != "gpu" && kind != "cuda" || err != nil:
			return driverChoice{}, core.Errorf(core.ValueError, "device",
				"PLAIT_GPU_DRIVER is %q, want cuda, webgpu, or drivers of single GPUs such as gpu:0=cuda,gpu:1=webgpu", value)
		case !slices.Contains(driverNames, name):
			return driverChoice{}, core.Errorf(core.ValueError, "device", "PLAIT_GPU_DRIVER gives %s the driver %q, want cuda or webgpu", gpu, name)
		case c.byIndex[int(index)] != "":
			return driverChoice{}, core.Errorf(core.ValueError, "device", "PLAIT_GPU_DRIVER gives %s two drivers, in %q", gpu, value)
		}
		c.byIndex[int(index)] = name
	}
	return c, nil
}
