package cpu_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/core/op"
)

// environment runs TestPrintEnvironment in a process with the variables.
func environment(t *testing.T, variables ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestPrintEnvironment$", "-test.v")
	cmd.Env = append(append(os.Environ(), "PLAIT_TEST_ENVIRONMENT=1"), variables...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func TestPrintEnvironment(t *testing.T) {
	if os.Getenv("PLAIT_TEST_ENVIRONMENT") == "" {
		return
	}
	if err := op.Zeros(1).Err(); err != nil {
		fmt.Printf("error %v\n", err)
		return
	}
	d := device(t)
	x := op.Zeros(1)
	s := x.Storage().Stream()
	c := s.Begin(-1, "slow").Out(x)
	c.Work = 1 << 40 // too much for the caller's thread
	gate := make(chan struct{})
	if os.Getenv("PLAIT_SYNC") == "1" {
		close(gate)
	}
	c.Fn = func() error { <-gate; return nil }
	s.Launch(c)
	waited := s.Record().Done()
	if !waited {
		close(gate)
	}
	require.NoError(t, x.Wait())
	fmt.Printf("threads %d of %d, devices %d, limit %d, waited %v\n", d.(*cpu.Device).Threads(), cpu.NumThreads(),
		core.DeviceCount("cpu"), cpu.MemoryLimit(), waited)
}

func TestEnvironment(t *testing.T) {
	require.Contains(t, environment(t, "PLAIT_NUM_THREADS=6", "PLAIT_CPU_DEVICES=2", "PLAIT_CPU_MEMORY=1.5GiB", "PLAIT_SYNC=1"),
		"threads 3 of 6, devices 2, limit 1610612736, waited true\n")
	require.Contains(t, environment(t, "PLAIT_NUM_THREADS=2", "PLAIT_CPU_DEVICES=", "PLAIT_CPU_MEMORY=64M", "PLAIT_SYNC=0"),
		"threads 2 of 2, devices 1, limit 67108864, waited false\n")
	for variable, want := range map[string]string{
		"PLAIT_NUM_THREADS=four":  `PLAIT_NUM_THREADS is "four", want a whole number from 1 to 65536`,
		"PLAIT_NUM_THREADS=0":     `PLAIT_NUM_THREADS is "0", want a whole number from 1 to 65536`,
		"PLAIT_CPU_DEVICES=-1":    `PLAIT_CPU_DEVICES is "-1", want a whole number from 1 to 256`,
		"PLAIT_SYNC=yes":          `PLAIT_SYNC is "yes", want a whole number from 0 to 1`,
		"PLAIT_CPU_MEMORY=plenty": `PLAIT_CPU_MEMORY is "plenty", want bytes, or a size such as 8GiB`,
		"PLAIT_CPU_MEMORY=-1":     `PLAIT_CPU_MEMORY is "-1", want bytes, or a size such as 8GiB`,
	} {
		require.Contains(t, environment(t, variable), "error device: "+want)
	}
}
