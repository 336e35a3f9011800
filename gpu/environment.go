package gpu

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
)

// settings are the environment variables for GPUs. err is the error of the first invalid one; opening a device returns it.
type settings struct {
	sync, fusion bool
	software     int // how many times each software adapter is listed
	memory       int // 0 for the default
	tune         int // 1 to measure, 0 to ignore stored measurements, -1 to use them
	err          error
}

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
	s.software, err = core.EnvNumber("PLAIT_SOFTWARE_GPU", 0, math.MaxUint8, 0)
	note(err)
	memory, err := core.EnvBytes("PLAIT_GPU_MEMORY")
	s.memory = int(memory)
	note(err)
	s.tune, err = core.EnvNumber("PLAIT_TUNE", 0, 1, -1)
	note(err)
	return s
})
