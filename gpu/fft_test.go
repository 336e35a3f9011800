package gpu_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// TestFourierTransforms compares transforms of a GPU with those of the CPU in float64: lines that share a workgroup, that fill one, that are
// split, and whose length has a large prime factor; along the last dimension and another one.
func TestFourierTransforms(t *testing.T) {
	coretest.SkipUnderRace(t)
	dev := device(t)
	for dim, lengths := range [][]int{{16, 21}, {37, 2500}} {
		for _, n := range lengths {
			t.Run(fmt.Sprintf("%d along %d", n, dim), func(t *testing.T) {
				core.Tidy(func() {
					values := make([]complex128, 3*n)
					for i := range values {
						values[i] = complex(math.Sin(float64(i*i%1001)), math.Cos(float64(7*i%997)))
					}
					shape := []int{3, n}
					if dim == 0 {
						shape = []int{n, 3}
					}
					x := core.FromSlice(values, shape...)
					on := op.ToDevice(op.To(x, core.Complex64), dev)
					compareTransforms(t, "fft", op.FFT(x, nil, dim, ""), op.FFT(on, nil, dim, ""))
					compareTransforms(t, "ifft", op.IFFT(x, nil, dim, "ortho"), op.IFFT(on, nil, dim, "ortho"))
					compareTransforms(t, "rfft", op.RFFT(op.Real(x), nil, dim, ""), op.RFFT(op.Real(on), nil, dim, ""))
					compareTransforms(t, "ihfft", op.IHFFT(op.Imag(x), nil, dim, ""), op.IHFFT(op.Imag(on), nil, dim, ""))
					compareTransforms(t, "irfft", op.IRFFT(x, &n, dim, "forward"), op.IRFFT(on, &n, dim, "forward"))
					compareTransforms(t, "hfft", op.HFFT(x, &n, dim, ""), op.HFFT(on, &n, dim, ""))
				})
			})
		}
	}
}

// compareTransforms compares a result with the right one by the norms of the difference and of the result.
func compareTransforms(t *testing.T, name string, want, got *core.Tensor) {
	t.Helper()
	require.NoError(t, want.Err(), name)
	require.NoError(t, got.Err(), name)
	require.Equal(t, want.Shape(), got.Shape(), name)
	cpu := want.Device()
	size, err := op.Norm(op.Abs(want), 2, nil, op.ReduceOptions{}).Item()
	require.NoError(t, err)
	off, err := op.Norm(op.Abs(op.Sub(op.To(op.ToDevice(got, cpu), want.DType()), want)), 2, nil, op.ReduceOptions{}).Item()
	require.NoError(t, err)
	require.LessOrEqual(t, off, 1e-6*size, name)
}
