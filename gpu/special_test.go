package gpu_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TestSpecialFunctions compares functions that the registry samples in a small range, over their whole range, with float64 on the
// CPU.
func TestSpecialFunctions(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles many programs")
	}
	d := device(t)
	all := []float64{0, 1e-6, 0.01, 0.3, 0.5, 0.9, 1, 1.5, 2.4, 3, 5, 7.9, 8.1, 11.9, 12.1, 20, 50, 85, 300, 1e4, 1e30, math.Inf(1), math.NaN()}
	for _, x := range all[1:22] {
		all = append(all, -x)
	}
	shares := []float64{0, 1e-30, 1e-10, 0.001, 0.0999, 0.1001, 0.5, 0.8999, 0.9001, 0.999, 1, -1, 2, math.NaN()}
	cases := map[string][]float64{
		"i0": all, "special_i1": all, "special_i0e": all, "special_i1e": all, "special_modified_bessel_k0": all,
		"special_modified_bessel_k1": all, "special_scaled_modified_bessel_k0": all, "special_scaled_modified_bessel_k1": all,
		"special_bessel_j0": all, "special_bessel_j1": all, "special_bessel_y0": all, "special_bessel_y1": all, "special_erfcx": all,
		"special_log_ndtr": all, "special_ndtri": shares, "special_airy_ai": {0, 0.5, 1, 1.1, 3, 20, -0.5, -1.9, -2.1, -5, -9.9, -10.1, -20},
	}
	for name, x := range cases {
		t.Run(name, func(t *testing.T) {
			core.Tidy(func() {
				row := op.Lookup(name)
				single := op.To(core.FromSlice(x), core.Float32)
				want, err := core.Values[float64](row.Call(op.To(single, core.Float64))[0])
				require.NoError(t, err)
				got, err := core.Values[float32](row.Call(op.ToDevice(single, d))[0])
				require.NoError(t, err)
				for i, w := range want {
					g := float64(got[i])
					if w != w && g != g || w == g || math.Abs(w) < 2e-38 && math.Abs(g) < 2e-38 || math.Abs(w) > math.MaxFloat32/2 && math.Abs(g) > 1e38 {
						continue
					}
					// The error is relative to the envelope: near the zeros of an oscillating function, the rounding of the argument dominates.
					scale := math.Max(math.Abs(w), math.Min(1, 1/math.Sqrt(math.Abs(x[i]))))
					if name != "special_airy_ai" && !strings.HasPrefix(name, "special_bessel_") {
						scale = math.Abs(w)
					}
					if !(math.Abs(w-g) <= 1.2e-5*scale) {
						t.Errorf("at %v: got %v, want %v", x[i], g, w)
					}
				}
			})
		})
	}
}

func TestNextAfter(t *testing.T) {
	d := device(t)
	core.Tidy(func() {
		least := math.Float32frombits(1)
		inf := float32(math.Inf(1))
		x := []float32{0, 0, 1, 1, -1, least, -least, math.MaxFloat32, inf, 3, float32(math.NaN())}
		y := []float32{1, -1, 2, 0, 0, 0, 0, inf, 0, 3, 1}
		got, err := core.Values[float32](op.NextAfter(op.ToDevice(core.FromSlice(x), d), op.ToDevice(core.FromSlice(y), d)))
		require.NoError(t, err)
		for i := range x {
			want := math.Nextafter32(x[i], y[i])
			require.Equal(t, math.Float32bits(want)&0x7fffffff > 0x7f800000, got[i] != got[i])
			if want == want {
				require.Equal(t, want, got[i], "%v towards %v", x[i], y[i])
			}
		}
	})
	core.Tidy(func() {
		x := []float32{0, 1, -0.75, 1e-40, math.Float32frombits(1), math.MaxFloat32, float32(math.Inf(-1))}
		m, e := op.Frexp(op.ToDevice(core.FromSlice(x), d))
		mantissas, err := core.Values[float32](m)
		require.NoError(t, err)
		exponents, err := core.Values[int32](e)
		require.NoError(t, err)
		for i := range x {
			want, exponent := math.Frexp(float64(x[i]))
			require.Equal(t, float32(want), mantissas[i], "%v", x[i])
			require.Equal(t, int32(exponent), exponents[i], "%v", x[i])
		}
	})
}

func TestPolynomialDegreeLimit(t *testing.T) {
	d := device(t)
	core.Tidy(func() {
		x, n := op.ToDevice(core.FromSlice([]float32{0.5, 0.25}), d), op.ToDevice(core.FromSlice([]float32{3, 1e9}), d)
		_, err := op.ChebyshevT(x, n).Bytes()
		require.ErrorContains(t, err, "degree at position 1")
		v, err := core.Values[float32](op.ChebyshevT(x, op.ToDevice(core.FromSlice([]float32{3, 20000}), d)))
		require.NoError(t, err)
		require.InDelta(t, -1, v[0], 1e-6)
		require.InDelta(t, math.Cos(20000*math.Acos(0.25)), float64(v[1]), 2e-2)
	})
}
