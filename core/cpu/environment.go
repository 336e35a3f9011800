package cpu

import (
	"runtime"
	"sync"

	"github.com/plait-ml/plait/core"
)

// maxThreads bounds the number of threads that the environment can ask for.
const maxThreads = 1 << 16

// settings are what the environment says of CPU devices. err is the first value that says nothing; opening a device returns
// it, since what a misspelt variable leaves at its default would not be seen.
type settings struct {
	threads, devices int
	sync             bool
	memory           int64 // 0 for the default
	err              error
}

// environment returns the settings, read once.
var environment = sync.OnceValue(func() (s settings) {
	note := func(err error) {
		if s.err == nil {
			s.err = err
		}
	}
	var err error
	s.threads, err = core.EnvNumber("PLAIT_NUM_THREADS", 1, maxThreads, runtime.GOMAXPROCS(0))
	note(err)
	s.devices, err = core.EnvNumber("PLAIT_CPU_DEVICES", 1, maxDevices, 1)
	note(err)
	s.sync, err = core.EnvFlag("PLAIT_SYNC")
	note(err)
	s.memory, err = core.EnvBytes("PLAIT_CPU_MEMORY")
	note(err)
	return s
})
