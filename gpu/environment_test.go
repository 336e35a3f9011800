package gpu_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
)

func TestPrintEnvironment(t *testing.T) {
	if os.Getenv("PLAIT_TEST_ENVIRONMENT") == "" {
		return
	}
	_, err := core.OpenDevice("gpu:0")
	fmt.Printf("opened: %v\n", err)
}

// TestEnvironment checks that invalid values of environment variables are an error when a device is opened, also without a GPU.
func TestEnvironment(t *testing.T) {
	for variable, want := range map[string]string{
		"PLAIT_SYNC=yes":          `PLAIT_SYNC is "yes", want a whole number from 0 to 1`,
		"PLAIT_GPU_FUSION=off":    `PLAIT_GPU_FUSION is "off", want a whole number from 0 to 1`,
		"PLAIT_GPU_PEERS=no":      `PLAIT_GPU_PEERS is "no", want a whole number from 0 to 1`,
		"PLAIT_SOFTWARE_GPU=-1":   `PLAIT_SOFTWARE_GPU is "-1", want a whole number from 0 to 255`,
		"PLAIT_GPU_MEMORY=plenty": `PLAIT_GPU_MEMORY is "plenty", want bytes, or a size such as 8GiB`,
		"PLAIT_TUNE=always":       `PLAIT_TUNE is "always", want a whole number from 0 to 1`,
		"PLAIT_GPU_DRIVER=vulkan": `PLAIT_GPU_DRIVER is "vulkan", want cuda, webgpu, or drivers of single GPUs such as gpu:0=cuda,gpu:1=webgpu`,
	} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestPrintEnvironment$", "-test.v")
		cmd.Env = append(os.Environ(), "PLAIT_TEST_ENVIRONMENT=1", variable)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "opened: device: "+want+"\n")
	}
}
