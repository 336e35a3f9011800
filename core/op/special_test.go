package op_test

import (
	"math"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

func TestEntrAtItsEdges(t *testing.T) {
	got, err := core.Values[float64](op.Entr(core.FromSlice([]float64{0, -1, math.Inf(1), math.NaN(), math.E})))
	require.NoError(t, err)
	require.Equal(t, []float64{0, math.Inf(-1), math.Inf(-1)}, got[:3])
	require.True(t, math.IsNaN(got[3]))
	require.InDelta(t, -math.E, got[4], 1e-15)
}

// A recurrence is as long as the degree, and nobody can end it.
func TestLongestDegree(t *testing.T) {
	x := core.FromSlice([]float32{0.5, 0.25})
	for _, f := range []func(x, n *core.Tensor) *core.Tensor{op.HermiteH, op.LaguerreL, op.LegendreP, op.ChebyshevT, op.ShiftedChebyshevW} {
		for _, degree := range []float64{1<<20 + 1, 1 << 40, 1e300} {
			for _, n := range []*core.Tensor{core.FromSlice([]float64{3, degree}), core.FromSlice([]float32{3, float32(min(degree, 1e30))})} {
				_, err := core.Values[float64](op.To(f(x, n), core.Float64))
				require.ErrorContains(t, err, "the degree at position 1 is more than is computed, 1048576")
			}
		}
	}
	y, err := core.Values[float32](op.ChebyshevT(x, core.FromSlice([]float32{1 << 20, float32(math.Inf(1))})))
	require.NoError(t, err)
	require.InDelta(t, math.Cos((1<<20)*math.Acos(0.5)), y[0], 1e-5)
	require.True(t, math.IsNaN(float64(y[1])))
}

// TestRecordedGradientsOfNumbersAreNotRounded has a derivative that chooses among numbers.
func TestRecordedGradientsOfNumbersAreNotRounded(t *testing.T) {
	x := core.FromSlice([]float64{0.5, -2}).SetRequiresGrad(true)
	y := op.Sum(op.XLog1py(x, core.Num(1.5)), nil, false)
	g, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{x}, nil, autograd.Options{CreateGraph: true})
	require.NoError(t, err)
	values, err := core.Values[float64](g[0])
	require.NoError(t, err)
	for _, v := range values {
		require.InDelta(t, math.Log1p(1.5), v, 1e-15)
	}
}
