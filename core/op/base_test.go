package op

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/stretchr/testify/require"
)

func TestReshapeOfATransposedTensorCopies(t *testing.T) {
	for _, c := range []struct {
		old, strides, shape, want []int
	}{
		{[]int{2, 3}, []int{3, 1}, []int{6}, []int{1}},
		{[]int{2, 3}, []int{3, 1}, []int{3, 2}, []int{2, 1}},
		{[]int{3, 2}, []int{1, 3}, []int{6}, nil},
		{[]int{3, 2}, []int{1, 3}, []int{3, 1, 2}, []int{1, 3, 3}},
		{[]int{4, 6}, []int{12, 1}, []int{2, 2, 6}, []int{24, 12, 1}},
		{[]int{4, 6}, []int{12, 1}, []int{24}, nil},
		{[]int{}, []int{}, []int{1, 1}, []int{1, 1}},
		{[]int{1}, []int{7}, []int{}, []int{}},
		{[]int{3, 1, 4}, []int{4, 99, 1}, []int{12}, []int{1}},
		{[]int{2, 0}, []int{1, 1}, []int{0, 5}, []int{5, 1}},
	} {
		got, ok := viewStrides(c.old, c.strides, c.shape)
		require.Equal(t, c.want != nil, ok, "%v", c)
		if ok {
			for i, n := range c.shape {
				if n > 1 {
					require.Equal(t, c.want[i], got[i], "%v: got %v", c, got)
				}
			}
		}
	}
}

func TestFromSliceRoundTrip(t *testing.T) {
	x := core.FromSlice([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	v, err := core.Values[float64](x)
	require.NoError(t, err)
	require.Equal(t, []float64{1, 2, 3, 4, 5, 6}, v)
}
