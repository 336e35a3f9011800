package op_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

func TestBesselFunctions(t *testing.T) {
	// Integrals of exp(x cos t) cos(n t) over half a turn, which the trapezoidal rule gives to all digits.
	want := func(n int, x float64) float64 {
		const steps = 400
		sum := 0.0
		for i := range steps {
			a := 2 * math.Pi * float64(i) / steps
			sum += math.Exp(x*(math.Cos(a)-1)) * math.Cos(float64(n)*a)
		}
		return sum / steps * math.Exp(x)
	}
	for _, x := range []float64{0, 1e-9, 0.5, 3, 29.9, 30.1, 60, 500} {
		for n, f := range []func(*core.Tensor) *core.Tensor{op.I0, op.I1} {
			got, err := core.Values[float64](f(vector64(x, -x)))
			require.NoError(t, err)
			w := want(n, x)
			require.InDelta(t, w, got[0], 1e-15+2e-13*w, "I%d(%v)", n, x)
			require.Equal(t, []float64{got[0], -got[0]}[n], got[1])
		}
	}
	v, err := core.Values[float64](op.I0(vector64(math.Inf(1), math.NaN(), 711)))
	require.NoError(t, err)
	require.True(t, math.IsInf(v[0], 1) && math.IsNaN(v[1]) && !math.IsInf(v[2], 0))
}

func TestMantissasAndNeighbours(t *testing.T) {
	m, e := op.Frexp(vector64(8, -0.3, 0, math.Inf(-1), 5e-324))
	requireNear(t, op.Narrow(m, 0, 0, 3), 0.5, -0.6, 0)
	require.Equal(t, core.Int32, e.DType())
	got, err := core.Values[int32](e)
	require.NoError(t, err)
	require.Equal(t, []int32{4, -1, 0, 0, -1073}, got)
	v, err := core.Values[float64](op.NextAfter(vector64(1, 1, 0), vector64(2, -2, -1)))
	require.NoError(t, err)
	require.Equal(t, []float64{math.Nextafter(1, 2), math.Nextafter(1, 0), -5e-324}, v)
	f, err := core.Values[float32](op.NextAfter(core.FromSlice([]float32{1}), core.FromSlice([]float32{2})))
	require.NoError(t, err)
	require.Equal(t, math.Nextafter32(1, 2), f[0])
	requireNear(t, op.LCM(core.FromSlice([]int64{4, -6, 0}), core.FromSlice([]int64{6, 4, 5})), 12, 12, 0)
	require.ErrorContains(t, op.LCM(vector64(1), vector64(2)).Err(), "gcd")
}
