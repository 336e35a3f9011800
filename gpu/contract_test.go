package gpu_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	cpu "github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel"
)

// lacking has the kernels that GPUs do without: least squares are made of the SVD there, products of complex numbers, dot products, the
// gradients of sampled grids and of distances and the largest rows of bags of other kernels, and the host does the work of the others.
var lacking = []core.KernelID{contract.LinalgLstSq, contract.LinalgComplex, contract.LinalgGeqrf, contract.LinalgLDL, contract.ComplexProd,
	contract.ComplexCumProd, contract.ComplexLinearScan,
	contract.ComplexMatMul, contract.Dot, contract.CTCLoss, contract.CTCLossBackward, contract.GridSampleGrad, contract.BagMax, contract.PairNormsGrad, contract.Poisson, contract.LinalgCross}

func TestContractsHaveKernels(t *testing.T) {
	for _, k := range contract.Kernels() {
		require.NotNil(t, cpu.Lookup(k), "%v has no kernel on the CPU: register one in its family's folder of core/cpu/kernel, or delete its contract", k)
		require.Equal(t, slices.Contains(lacking, k), kernel.Lookup(k) == nil, "%v has no kernel on GPUs: register one in its family's folder of gpu/kernel, or name it here", k)
	}
}
