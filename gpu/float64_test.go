package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
)

// TestFloat64NeedsALanguage checks that float64 is refused where the language lacks it, but not its bits, and that it is not where it has it.
func TestFloat64NeedsALanguage(t *testing.T) {
	for index, name := range []string{"fakegpu:0", "fakegpu:2"} {
		opened, err := core.OpenDevice(name)
		require.NoError(t, err)
		d := opened.(*gpu.Device)
		require.Equal(t, index == 1, d.Float64(), name)
		f := core.Float64
		core.Tidy(func() {
			x := op.Full([]int{2, 3}, core.Num(1), op.TensorOptions{DType: &f, Device: d})
			require.NoError(t, op.Clone(x).Err(), "bits of any dtype can be kept and copied")
			for _, y := range []*core.Tensor{op.Exp(x), op.To(x, core.Float32), op.Add(x, op.OnesLike(x, op.TensorOptions{}))} {
				if d.Float64() {
					require.NoError(t, y.Err())
				} else {
					require.ErrorContains(t, y.Err(), "float64 is not supported on "+d.String()+": WGSL has no such type")
				}
			}
		})
		require.NoError(t, d.Synchronize())
	}
}
