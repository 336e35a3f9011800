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

func TestTile(t *testing.T) {
	type part struct {
		shape, strides []int
		offset         int
	}
	memory := Ones(1000)
	for name, c := range map[string]struct {
		parts       []part
		first, size int // 0 where the parts fill nothing
	}{
		"rows":           {[]part{{[]int{5, 2}, []int{5, 1}, 10}, {[]int{5, 3}, []int{5, 1}, 12}}, 10, 25},
		"heads, any row": {[]part{{[]int{2, 3, 5, 4}, []int{120, 4, 24, 1}, 0}, {[]int{2, 3, 5, 4}, []int{120, 4, 24, 1}, 12}}, 0, 240},
		"fewer heads":    {[]part{{[]int{2, 1, 5, 4}, []int{80, 99, 16, 1}, 12}, {[]int{2, 3, 5, 4}, []int{80, 4, 16, 1}, 0}}, 0, 160},
		"one row":        {[]part{{[]int{1, 4}, []int{7, 1}, 4}, {[]int{1, 3}, []int{7, 1}, 1}}, 1, 7},
		"alone":          {[]part{{[]int{3, 4}, []int{1, 3}, 2}}, 2, 12},
		"a gap":          {[]part{{[]int{4}, []int{1}, 0}, {[]int{4}, []int{1}, 4}, {[]int{4}, []int{1}, 12}}, 0, 0},
		"a gap in rows":  {[]part{{[]int{5, 2}, []int{6, 1}, 0}, {[]int{5, 3}, []int{6, 1}, 2}}, 0, 0},
		"overlap":        {[]part{{[]int{4}, []int{1}, 0}, {[]int{4}, []int{1}, 3}}, 0, 0},
		"the same":       {[]part{{[]int{5, 2}, []int{4, 1}, 0}, {[]int{5, 2}, []int{4, 1}, 0}}, 0, 0},
		"other rows":     {[]part{{[]int{5, 2}, []int{4, 1}, 0}, {[]int{4, 2}, []int{4, 1}, 2}}, 0, 0},
		"repeated":       {[]part{{[]int{5, 2}, []int{0, 1}, 0}}, 0, 0},
		"columns":        {[]part{{[]int{5}, []int{2}, 0}, {[]int{5}, []int{2}, 1}}, 0, 10},
		"empty":          {[]part{{[]int{5, 0}, []int{2, 1}, 0}, {[]int{5, 2}, []int{2, 1}, 0}}, 0, 0},
	} {
		var parts []*core.Tensor
		for _, p := range c.parts {
			parts = append(parts, AsStrided(memory, p.shape, p.strides, p.offset))
		}
		first, size, ok := tile(parts)
		require.Equal(t, c.size > 0, ok, name)
		require.Equal(t, []int{c.first, c.size}, []int{first, size}, name)
	}
}

func TestFromSliceRoundTrip(t *testing.T) {
	x := core.FromSlice([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	v, err := core.Values[float64](x)
	require.NoError(t, err)
	require.Equal(t, []float64{1, 2, 3, 4, 5, 6}, v)
}
