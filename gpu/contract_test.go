package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	cpu "github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel"
)

// onlyOnCPU lists the kernels that GPUs lack, and why.
var onlyOnCPU = map[core.KernelID]string{
	contract.Combine: "collectives of GPUs go through memory of the host",
}

func TestContractsHaveKernels(t *testing.T) {
	for _, k := range contract.Kernels() {
		require.NotNil(t, cpu.Lookup(k), "%v has no kernel on the CPU: register one in its family's folder of core/cpu/kernel, or delete its contract", k)
		if onlyOnCPU[k] == "" {
			require.NotNil(t, kernel.Lookup(k), "%v has no kernel on GPUs: register one in its family's folder of gpu/kernel, or say here why not", k)
		} else {
			require.Nil(t, kernel.Lookup(k), "%v is here among those that GPUs lack", k)
		}
	}
}
