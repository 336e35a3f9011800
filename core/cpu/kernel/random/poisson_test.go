package random

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

func drawPoisson(t *testing.T, threads int, rates *rawtensor.Tensor, seed int64) ([]float64, error) {
	t.Helper()
	out := rawtensor.New(t, rawtensor.Float64, rates.Shape...)
	p := pool.New(threads)
	defer p.Close()
	err := poisson(&kernel.Context{Pool: p.Ptr()}, &core.Call{Op: "poisson", Ins: []core.Operand{operand(rates)}, Outs: []core.Operand{operand(out)}, Ints: []int64{seed, 0}})
	return values[float64](out), err
}

// TestPoissonProbabilities compares how often each number is drawn with its probability, by a chi-squared test of numbers that are expected.
func TestPoissonProbabilities(t *testing.T) {
	const n = 200_000
	for _, rate := range []float64{0.01, 0.7, 4, 9.9, 10, 13, 60, 400} {
		rates := rawtensor.New(t, rawtensor.Float64, n)
		for i := range values[float64](rates) {
			values[float64](rates)[i] = rate
		}
		drawn, err := drawPoisson(t, 1, rates, 5)
		require.NoError(t, err)
		counts := map[float64]float64{}
		for _, v := range drawn {
			require.True(t, v >= 0 && v == math.Floor(v))
			counts[v]++
		}
		sum, degrees, rest, found := 0.0, -1.0, float64(n), float64(n)
		for k := range 1000 {
			lg, _ := math.Lgamma(float64(k) + 1)
			want := n * math.Exp(float64(k)*math.Log(rate)-rate-lg)
			if want < 10 {
				continue
			}
			got := counts[float64(k)]
			sum += (got - want) * (got - want) / want
			rest, found, degrees = rest-want, found-got, degrees+1
		}
		if rest > 10 {
			sum, degrees = sum+(found-rest)*(found-rest)/rest, degrees+1
		}
		require.Less(t, sum, degrees+5*math.Sqrt(2*max(degrees, 1))+5, "rate %v", rate)
	}
}

// TestPoissonNumbers: a number depends on its position and its rate, not on threads or other rates.
func TestPoissonNumbers(t *testing.T) {
	const n = 30_011
	rates, others := rawtensor.New(t, rawtensor.Float64, n), rawtensor.New(t, rawtensor.Float64, n/2)
	for i := range n {
		values[float64](rates)[i] = float64(i%97) * 0.7
		if i < n/2 {
			values[float64](others)[i] = float64(i%97) * 0.7 * float64(i%2)
		}
	}
	one, err := drawPoisson(t, 1, rates, 9)
	require.NoError(t, err)
	three, err := drawPoisson(t, 3, rates, 9)
	require.NoError(t, err)
	require.Equal(t, one, three)
	part, err := drawPoisson(t, 1, others, 9)
	require.NoError(t, err)
	for i, v := range part {
		if i%2 == 1 {
			require.Equal(t, one[i], v, "element %d", i)
		} else {
			require.Zero(t, v)
		}
	}
	values[float64](rates)[20_000], values[float64](rates)[300] = -2.5, math.NaN()
	_, err = drawPoisson(t, 3, rates, 9)
	require.EqualError(t, err, "poisson: want rates of 0 or more, got nan at element 300")
}
