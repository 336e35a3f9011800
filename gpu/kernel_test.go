package gpu_test

import (
	"slices"
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
	// What GPUs do in another way: combine joins pieces of CPU ranks, while data from GPUs is joined on the host; least squares are made of
	// other kernels; the host factorises matrices of complex numbers, and symmetric ones, and finds reflections;
	// products of complex numbers, running ones too, are those of pairs, dot products are matrix products, and the CTC loss is made of other
	// kernels, and so are gradients of distances.
	otherwise := []string{"bag_max", "combine", "complex_cumprod", "complex_linear_scan", "complex_matmul", "complex_prod", "ctc_loss", "ctc_loss_backward", "dot", "grid_sample_grad", "linalg_lstsq", "linalg_complex", "linalg_geqrf", "linalg_ldl", "pair_norms_grad", "poisson", "linalg_cross"}
	for id, name := range core.KernelNames() {
		if k := core.KernelID(id); cpu.Supports(k) && !d.Supports(k) && !strings.HasSuffix(name, ".f64") && !slices.Contains(otherwise, name) {
			lacking = append(lacking, name)
		}
	}
	require.Empty(t, lacking)
}
