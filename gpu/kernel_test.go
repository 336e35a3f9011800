package gpu_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
)

func TestGPUHasEveryKernel(t *testing.T) {
	d := device(t)
	cpu, err := core.OpenDevice("cpu")
	require.NoError(t, err)
	var lacking []string
	const joins = "combine" // joins pieces of CPU ranks; data from GPUs is joined on the host
	for id, name := range core.KernelNames() {
		if k := core.KernelID(id); cpu.Supports(k) && !d.Supports(k) && !strings.HasSuffix(name, ".f64") && name != joins {
			lacking = append(lacking, name)
		}
	}
	require.Empty(t, lacking)
}
