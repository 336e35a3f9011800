package op_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

func TestComposedOperationsNameThemselves(t *testing.T) {
	x := op.Zeros(2, 3)
	err := op.Dist(x, op.Zeros(4), 2).Err()
	require.ErrorContains(t, err, "dist: sub: shapes")
	kind, _ := core.KindOf(err)
	require.Equal(t, core.ShapeError, kind)
	passed := op.Dist(op.Dist(x, op.Zeros(4), 2), x, 2).Err()
	require.Equal(t, err.Error(), passed.Error(), "an error that is passed on keeps its name")
}

// Sizes far beyond what a tensor has neither take long nor take memory.
func TestHugeCountsAreCutOrRefused(t *testing.T) {
	const huge = 1 << 62
	x := op.Ones(2, 3)
	require.Equal(t, []int{2, 0}, op.Diff(x, huge, 1, op.DiffOptions{}).Shape())
	require.Equal(t, []int{2, 3}, op.LocalResponseNorm(x, huge, 1, 1, 1).Shape())
	require.Equal(t, []int{2, 3}, op.Polygamma(huge, x).Shape())
	require.Len(t, op.Chunk(x, huge, 1), 3)
	for _, parts := range [][]*core.Tensor{
		op.TensorSplit(x, huge, 1), op.Chunk(op.Ones(2, 0), huge, 1), op.Unbind(op.Expand(op.Ones(1), 1<<40), 0),
		op.Split(op.Expand(op.Ones(1), 1<<40), 1, 0),
	} {
		require.Len(t, parts, 1)
		require.ErrorContains(t, parts[0].Err(), "at most 16777216 parts")
	}
	require.ErrorContains(t, op.Movedim(x, []int{0}, nil).Err(), "1 dimensions [0] and 0 places []")
}
