package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/contract"
	cpu "github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel"
)

func TestContractsHaveKernels(t *testing.T) {
	for _, k := range contract.Kernels() {
		require.NotNil(t, cpu.Lookup(k), "%v has no kernel on the CPU: register one in its family's folder of core/cpu/kernel, or delete its contract", k)
		require.NotNil(t, kernel.Lookup(k), "%v has no kernel on GPUs: register one in its family's folder of gpu/kernel", k)
	}
}
