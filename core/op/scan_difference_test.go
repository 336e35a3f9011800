package op_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

func TestTrapezoidOfInfinities(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct{ y, want []float64 }{{[]float64{inf, 1, 2}, []float64{inf}}, {[]float64{1, -inf, 3}, []float64{-inf}}, {[]float64{1, 2, 4}, []float64{9}}} {
		got, err := core.Values[float64](op.Trapezoid(core.FromSlice(c.y), nil, 2, 0))
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}
