package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRanksLearnWhatOneDeviceLearns(t *testing.T) {
	for _, ranks := range []int{1, 2, 5} {
		var out strings.Builder
		require.NoError(t, run(ranks, 300, &out))
		var alone, together float64
		var n int
		_, err := fmt.Sscanf(out.String(), "loss on one device %f, on %d ranks %f", &alone, &n, &together)
		require.NoError(t, err, out.String())
		require.Equal(t, ranks, n)
		require.Less(t, alone, 0.1)
		require.LessOrEqual(t, math.Abs(alone-together), 0.02*alone+1e-4)
	}
}

func TestWrongArguments(t *testing.T) {
	for _, a := range [][2]int{{0, 1}, {-1, 1}, {1, 0}} {
		require.ErrorContains(t, run(a[0], a[1], io.Discard), "must be at least 1")
	}
}
