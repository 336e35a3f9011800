package op_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

func vector64(v ...float64) *core.Tensor { return core.FromSlice(v) }

func requireNear(t *testing.T, x *core.Tensor, want ...float64) {
	t.Helper()
	got, err := core.Values[float64](x)
	require.NoError(t, err)
	require.Len(t, got, len(want))
	for i := range want {
		if math.IsNaN(want[i]) {
			require.True(t, math.IsNaN(got[i]), "element %d is %v, want NaN", i, got[i])
			continue
		}
		require.InDelta(t, want[i], got[i], 1e-9, "element %d of %v", i, got)
	}
}

func TestCovariances(t *testing.T) {
	x := op.Reshape(vector64(1, 2, 4, 3, 1, 0), 2, 3)
	requireNear(t, op.Cov(x, 1, op.CovOptions{}), 7./3, -13./6, -13./6, 7./3)
	requireNear(t, op.CorrCoef(x), 1, -13./14, -13./14, 1)
	requireNear(t, op.CorrCoef(vector64(1, 5, 2)), 1)
	counts := core.FromSlice([]int64{1, 2, 1})
	requireNear(t, op.Cov(vector64(1, 2, 4), 1, op.CovOptions{FWeights: counts}), 19./12) // of 1, 2, 2, 4
	requireNear(t, op.Cov(vector64(1, 2, 4), 0, op.CovOptions{AWeights: vector64(2, 4, 2)}), 19./16)
	requireNear(t, op.Cov(vector64(1, 2, 4), 1, op.CovOptions{AWeights: vector64(1, 2, 1)}), 1.9)
	require.ErrorContains(t, op.Cov(x, 1, op.CovOptions{FWeights: core.FromSlice([]int64{1})}).Err(), "want [3]")
}

func TestQuantiles(t *testing.T) {
	nan := math.NaN()
	x := op.Reshape(vector64(3, 1, 2, 10, nan, 5, 4, 6), 2, 4)
	dim := 1
	requireNear(t, op.Quantile(x, vector64(0.25, 0.5), op.QuantileOptions{Dim: &dim}), 1.75, nan, 2.5, nan)
	requireNear(t, op.NanQuantile(x, vector64(0.25, 0.5), op.QuantileOptions{Dim: &dim}), 1.75, 4.5, 2.5, 5)
	requireNear(t, op.NanQuantile(x, core.Num(0.5), op.QuantileOptions{}), 4)
	requireNear(t, op.NanQuantile(vector64(nan, nan), core.Num(0.5), op.QuantileOptions{}), nan)
	for how, want := range map[string]float64{"lower": 1, "higher": 2, "midpoint": 1.5, "nearest": 2} {
		requireNear(t, op.Quantile(op.Select(x, 0, 0), core.Num(0.25), op.QuantileOptions{Interpolation: how}), want)
	}
	require.Equal(t, []int{2, 2, 1}, op.Quantile(x, vector64(0, 1), op.QuantileOptions{Dim: &dim, KeepDim: true}).Shape())
	require.ErrorContains(t, op.Quantile(x, core.Num(0.5), op.QuantileOptions{Interpolation: "spline"}).Err(), "unknown interpolation")
}

func TestDistancesAndProducts(t *testing.T) {
	requireNear(t, op.Cross(vector64(1, 0, 0), vector64(0, 1, 0), -1), 0, 0, 1)
	requireNear(t, op.Dist(vector64(1, 2), vector64(4, 6), 2), 5)
	requireNear(t, op.CDist(op.Reshape(vector64(0, 0, 3, 4), 2, 2), op.Reshape(vector64(3, 4), 1, 2), 2, op.CDistOptions{}), 5, 0)
	requireNear(t, op.Renorm(op.Reshape(vector64(3, 4, 0.3, 0.4), 2, 2), 2, 0, 1), 0.6/(1+2e-8), 0.8/(1+2e-8), 0.3, 0.4)
	requireNear(t, op.NanSum(vector64(1, math.NaN(), 2), nil, false), 3)
	requireNear(t, op.NanMean(vector64(1, math.NaN(), 2), nil, false), 1.5)
	require.ErrorContains(t, op.Cross(vector64(1, 2), vector64(1, 2), 0).Err(), "want size 3")
}

func TestDifferencesAndIntegrals(t *testing.T) {
	requireNear(t, op.Diff(vector64(1, 4, 9, 16), 2, 0, op.DiffOptions{}), 2, 2)
	requireNear(t, op.Diff(vector64(1, 4), 1, 0, op.DiffOptions{Prepend: vector64(0), Append: vector64(9)}), 1, 3, 5)
	requireNear(t, op.Trapezoid(vector64(1, 2, 3), nil, 1, -1), 4)
	requireNear(t, op.Trapezoid(vector64(1, 2, 3), vector64(0, 2, 3), 1, -1), 5.5)
	requireNear(t, op.CumulativeTrapezoid(vector64(1, 2, 3), nil, 2, -1), 3, 8)
}

func TestComparisonsInPlaceAndMembers(t *testing.T) {
	x := vector64(1, 2, 3)
	require.Same(t, x, op.GtInPlace(x, core.Num(1.5)))
	requireNear(t, x, 0, 1, 1)
	leaf := vector64(1, 2).SetRequiresGrad(true)
	require.ErrorContains(t, op.EqInPlace(leaf, core.Num(1)).Err(), "leaf that requires a gradient")
	requireNear(t, op.IsIn(vector64(1, 5, math.NaN(), 7), vector64(7, math.NaN(), 1), false), 1, 0, 0, 1)
	requireNear(t, op.IsIn(core.FromSlice([]int64{1, 2}), core.FromSlice([]int64{2}), true), 1, 0)
	requireNear(t, op.Equal(vector64(1, 2), vector64(1, 2)), 1)
	requireNear(t, op.Equal(vector64(1, 2), vector64(1)), 0)
	requireNear(t, op.AllClose(vector64(1, 2), vector64(1, 2.1), 0, 0.2, false), 1)
}

func TestAssembledMatrices(t *testing.T) {
	requireNear(t, op.BlockDiag([]*core.Tensor{op.Reshape(vector64(1, 2), 2, 1), vector64(3, 4)}), 1, 0, 0, 2, 0, 0, 0, 3, 4)
	requireNear(t, op.Combinations(vector64(1, 2, 3), 2, false), 1, 2, 1, 3, 2, 3)
	requireNear(t, op.Combinations(vector64(1, 2), 2, true), 1, 1, 1, 2, 2, 2)
	require.Equal(t, []int{0, 3}, op.Combinations(vector64(1, 2), 3, false).Shape())
	require.Equal(t, []int{15504, 5}, op.Combinations(op.Zeros(20), 5, false).Shape())
	require.Equal(t, []int{42504, 5}, op.Combinations(op.Zeros(20), 5, true).Shape())
	for _, many := range []*core.Tensor{op.Combinations(op.Zeros(40000), 4, false), op.Combinations(op.Zeros(1), math.MaxInt, true)} {
		kind, _ := core.KindOf(many.Err())
		require.Equal(t, core.MemoryError, kind, "%v", many.Err())
	}
	requireNear(t, op.Vander(vector64(2, 3), 3, false), 4, 2, 1, 9, 3, 1)
	requireNear(t, op.IndexReduce(vector64(1, 2, 3), 0, core.FromSlice([]int64{2, 2, 0}), vector64(5, 6, 7), "prod", true), 7, 2, 90)
	requireNear(t, op.SelectScatter(op.Reshape(vector64(1, 2, 3, 4), 2, 2), vector64(8, 9), 1, 0), 8, 2, 9, 4)
	requireNear(t, op.Heaviside(vector64(-2, 0, 3), core.Num(0.5)), 0, 0.5, 1)
	requireNear(t, op.RoundTo(vector64(1.25, -0.34), 1), 1.2, -0.3)
	require.ErrorContains(t, op.SelectScatter(op.Zeros(2, 2), op.Zeros(3), 0, 0).Err(), "want [2]")
	require.ErrorContains(t, op.HSplit(op.Zeros(2, 3), 2)[0].Err(), "into 2 equal parts")
}
