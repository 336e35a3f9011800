package op_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// floatLoops are the functions whose float32 kernels have two ranges, with numbers of both.
var floatLoops = map[string]struct {
	f      func(*core.Tensor) *core.Tensor
	points []float64 // the ends of ranges
	edges  map[float64]float64
}{
	"i0":    {op.I0, []float64{-90, -8, 0, 8, 90}, map[float64]float64{math.Inf(-1): math.Inf(1), 200: math.Inf(1)}},
	"i1":    {op.I1, []float64{-90, -8, 0, 8, 90}, map[float64]float64{math.Inf(-1): math.Inf(-1), 0: 0}},
	"i0e":   {op.I0e, []float64{-1e30, -100, -8, 0, 8, 100, 1e30}, map[float64]float64{math.Inf(1): 0, 0: 1}},
	"i1e":   {op.I1e, []float64{-1e30, -100, -8, 0, 8, 100, 1e30}, map[float64]float64{math.Inf(1): 0}},
	"k0":    {op.ModifiedBesselK0, []float64{1e-40, 1e-3, 2, 20, 88}, map[float64]float64{0: math.Inf(1), -1: math.NaN(), math.Inf(1): 0, 200: 0}},
	"k1":    {op.ModifiedBesselK1, []float64{1e-37, 1e-3, 2, 20, 88}, map[float64]float64{0: math.Inf(1), -1: math.NaN(), math.Inf(1): 0, 200: 0}},
	"k0e":   {op.ScaledModifiedBesselK0, []float64{1e-40, 1e-3, 2, 20, 1e6, 1e30}, map[float64]float64{0: math.Inf(1), -1: math.NaN(), math.Inf(1): 0}},
	"k1e":   {op.ScaledModifiedBesselK1, []float64{1e-37, 1e-3, 2, 20, 1e6, 1e30}, map[float64]float64{0: math.Inf(1), -1: math.NaN(), math.Inf(1): 0}},
	"j0":    {op.BesselJ0, []float64{-100, -8, 0, 8, 1000, 1 << 20, 1e30}, map[float64]float64{0: 1, math.Inf(1): 0, math.Inf(-1): 0}},
	"j1":    {op.BesselJ1, []float64{-100, -8, 0, 8, 1000, 1 << 20, 1e30}, map[float64]float64{0: 0, math.Inf(1): 0}},
	"y0":    {op.BesselY0, []float64{1e-40, 1, 8, 1000, 1 << 20, 1e30}, map[float64]float64{0: math.Inf(-1), -1: math.NaN(), -20: math.NaN(), math.Inf(1): 0}},
	"y1":    {op.BesselY1, []float64{1e-37, 1, 8, 1000, 1 << 20, 1e30}, map[float64]float64{0: math.Inf(-1), -1: math.NaN(), -20: math.NaN(), math.Inf(1): 0}},
	"ndtri": {op.Ndtri, []float64{1e-45, 1e-30, 1e-5, 8e-5, 9e-5, 0.5, 0.9999, 1}, map[float64]float64{0: math.Inf(-1), 1: math.Inf(1), -1: math.NaN(), 1.5: math.NaN(), 0.5: 0}},
	"trigamma": {func(x *core.Tensor) *core.Tensor { return op.Polygamma(1, x) }, []float64{1e-18, 0.1, 6, 1e9, 1e30},
		map[float64]float64{0: math.Inf(1), -1: math.Inf(1), math.Inf(1): 0}},
	"tetragamma": {func(x *core.Tensor) *core.Tensor { return op.Polygamma(2, x) }, []float64{0.1, 6, 100}, map[float64]float64{math.Inf(1): 0}},
}

// TestFloatLoops compares kernels of float32 with those of float64, for numbers that all lie in one range and that do not.
func TestFloatLoops(t *testing.T) {
	for name, c := range floatLoops {
		t.Run(name, func(t *testing.T) {
			var x []float32
			for i := range len(c.points) - 1 {
				for k := range 1500 {
					x = append(x, float32(c.points[i]+(c.points[i+1]-c.points[i])*(float64(k)+0.5)/1500))
				}
			}
			x = append(x, float32(c.points[0]), float32(math.NaN()))
			for edge := range c.edges {
				x = append(x, float32(edge))
			}
			for k := range 2000 { // of all ranges in turn
				x = append(x, x[k*(len(x)-1)/2000])
			}
			got, err := core.Values[float32](c.f(core.FromSlice(x)))
			require.NoError(t, err)
			want, err := core.Values[float64](c.f(op.To(core.FromSlice(x), core.Float64)))
			require.NoError(t, err)
			for i, w := range want {
				if edge, ok := c.edges[float64(x[i])]; ok {
					require.True(t, float64(got[i]) == edge || math.IsNaN(edge) && got[i] != got[i], "%v at %v, want %v", got[i], x[i], edge)
					continue
				}
				if math.IsNaN(w) || float32(w) == float32(math.Inf(1)) || float32(w) == float32(math.Inf(-1)) {
					require.True(t, got[i] == float32(w) || got[i] != got[i] && math.IsNaN(w), "%v at %v, want %v", got[i], x[i], w)
					continue
				}
				spacing := float64(math.Nextafter32(float32(math.Abs(w)), 3e38)) - float64(float32(math.Abs(w)))
				require.LessOrEqual(t, math.Abs(float64(got[i])-w), 0.6*spacing, "%v at %v, want %v", got[i], x[i], w)
			}
			for _, i := range []int{0, 700, 1499, len(x) / 2, len(x) - 1} { // alone, an element is what it is among others
				alone, err := core.Values[float32](c.f(core.FromSlice(x[i : i+1])))
				require.NoError(t, err)
				require.Equal(t, math.Float32bits(got[i]), math.Float32bits(alone[0]), "at %v", x[i])
			}
		})
	}
}
