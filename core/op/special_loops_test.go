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

// TestDoubleLoops compares kernels of float64 that have two ranges with numbers of more digits.
func TestDoubleLoops(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for name, c := range map[string]struct {
		f       func(*core.Tensor) *core.Tensor
		x, want []float64
	}{
		"i0": {op.I0, []float64{0, -0.5, 0.5, 7.99, 8.01, 50, 713, 714, -inf, nan},
			[]float64{1, 1.0634833707413236, 1.0634833707413236, 423.5842036746737, 431.5817860520924, 2.9325537838493362e+20, 6.705128263670996e+307, inf, inf, nan}},
		"i1": {op.I1, []float64{0, 1e-300, -0.5, 7.99, 8.01, 50, 713, 714, -inf, nan},
			[]float64{0, 5e-301, -0.2578943053908963, 396.1152262074013, 403.6669399977041, 2.903078590103557e+20, 6.700424559186402e+307, inf, -inf, nan}},
		"k0": {op.ModifiedBesselK0, []float64{0, -1, 5e-324, 1e-300, 0.5, 1, 1.5, 30, 700, 800, inf, nan},
			[]float64{inf, nan, 744.5560034370396, 690.8914594138721, 0.9244190712276659, 0.42102443824070834, 0.21380556264752573, 2.1324774964630563e-14,
				4.669776431685377e-306, 0, 0, nan}},
		"k1": {op.ModifiedBesselK1, []float64{0, -1, 5e-324, 1e-300, 0.5, 1, 1.5, 30, 700, 800, inf, nan},
			[]float64{inf, nan, inf, 9.999999999999999e+299, 1.656441120003301, 0.6019072301972346, 0.2773878004568438, 2.1677320018915495e-14,
				4.6731107967079664e-306, 0, 0, nan}},
		"j0": {op.BesselJ0, []float64{0, 1e-300, -0.5, 1.59, 1.61, 2.404825557695773, 4.99, 5.01, 5.5, 50, 1048575, 1048577, inf, -inf, nan},
			[]float64{1, 1, 0.9384698072408129, 0.4610960979350913, 0.4496983156596651, -6.10876525973673e-17, -0.1808669025116955, -0.17431543205674924,
				-0.006843869417819197, 0.055812327669251816, 9.4998165690159e-05, 0.0006636911173262065, 0, 0, nan}},
		"j1": {op.BesselJ1, []float64{0, 1e-300, -0.5, 1.59, 1.61, 4.99, 5.01, -5.5, 50, 1048575, 1048577, inf, nan},
			[]float64{0, 5e-301, -0.2422684576748739, 0.568883306126207, 0.5708676355661539, -0.32644149050101634, -0.32868309571784987, 0.34143821542904335,
				-0.09751182812517514, -0.0007733716982643759, 0.0004082177193397496, 0, nan}},
		"ndtri": {op.Ndtri, []float64{-1e-300, 0, 5e-324, 1e-300, 4e-17, 8e-17, 1e-3, 0.25, 0.5, 0.75, 1 - 0x1p-53, 1, 1.5, nan},
			[]float64{nan, -inf, -38.467405617144344, -37.0470962993612, -8.331239950200123, -8.248794724493472, -3.0902323061678136, -0.6744897501960817, 0,
				0.6744897501960817, 8.209536151601387, inf, nan, nan}},
	} {
		t.Run(name, func(t *testing.T) {
			got := values(t, c.f(core.FromSlice(c.x)))
			for i, w := range c.want {
				if math.IsNaN(w) || math.IsInf(w, 0) || w == 0 {
					require.True(t, got[i] == w || math.IsNaN(w) && math.IsNaN(got[i]), "%v at %v, want %v", got[i], c.x[i], w)
				} else {
					require.InEpsilon(t, w, got[i], 6e-16, "at %v", c.x[i])
				}
				alone := values(t, c.f(core.FromSlice(c.x[i:i+1])))
				require.Equal(t, math.Float64bits(got[i]), math.Float64bits(alone[0]), "at %v", c.x[i])
			}
		})
	}
	// The Wronskian of I and K is 1 / x.
	x := op.Exp(op.Mul(op.To(op.Randn(3000), core.Float64), core.Num(5)))
	wronskian := op.Add(op.Mul(op.I0e(x), op.ScaledModifiedBesselK1(x)), op.Mul(op.I1e(x), op.ScaledModifiedBesselK0(x)))
	for i, w := range values(t, op.Mul(wronskian, x)) {
		require.InDelta(t, 1, w, 1.2e-15, "element %d", i)
	}
}
