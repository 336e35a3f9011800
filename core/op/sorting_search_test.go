package op_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TestSearchesOfManyValues compares searches with counts of the elements that come before, for values that are elements too, infinite or NaN.
func TestSearchesOfManyValues(t *testing.T) {
	core.ManualSeed(9)
	inf := math.Inf(1)
	for _, n := range []int{0, 1, 2, 31, 100} {
		sequence := make([]float32, n)
		for i := range sequence {
			sequence[i] = float32(i/3) / 2
		}
		if n > 40 {
			sequence[n-1], sequence[n-2] = float32(math.NaN()), float32(inf)
		}
		list := make([]float32, 0, 137)
		for i := range 137 {
			list = append(list, float32(i*7%40)/2-1)
		}
		list[40], list[41], list[133] = float32(math.NaN()), float32(-inf), float32(inf)
		for _, values := range [][]float32{list, list[:32], list[64:128]} {
			for _, o := range []op.SearchOptions{{}, {Right: true}, {Int32: true}, {Right: true, Int32: true}} {
				got, err := core.Values[float64](op.To(op.SearchSorted(core.FromSlice(sequence, n), core.FromSlice(values, len(values)), o), core.Float64))
				require.NoError(t, err)
				for i, v := range values {
					want := 0
					for _, e := range sequence {
						less := e < v || v != v && e == e
						if less || o.Right && (e == v || e != e && v != v) {
							want++
						}
					}
					require.EqualValues(t, want, got[i], "%v of %d elements, %+v", v, n, o)
				}
			}
		}
	}
}
