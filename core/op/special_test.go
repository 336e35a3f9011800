package op_test

import (
	"math"
	"testing"

	"github.com/plait-ml/plait/core"
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
