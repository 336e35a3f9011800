package cpu

import (
	"runtime"
	"sync"

	"github.com/plait-ml/plait/core"
)

// maxThreads is the largest number of threads that the environment may set.
const maxThreads = 1 << 16

// settings are the CPU settings from environment variables. err is the first invalid value. Opening a device returns it, because a silent
// default would hide a misspelt value.
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
