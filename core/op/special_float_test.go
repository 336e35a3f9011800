package op_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

func TestBesselFunctions(t *testing.T) {
	// Integrals of exp(x cos t) cos(n t) over half a turn, which the trapezoidal rule gives to all digits.
	want := func(n int, x float64) float64 {
		const steps = 400
		sum := 0.0
		for i := range steps {
			a := 2 * math.Pi * float64(i) / steps
			sum += math.Exp(x*(math.Cos(a)-1)) * math.Cos(float64(n)*a)
		}
		return sum / steps * math.Exp(x)
	}
	for _, x := range []float64{0, 1e-9, 0.5, 3, 29.9, 30.1, 60, 500} {
		for n, f := range []func(*core.Tensor) *core.Tensor{op.I0, op.I1} {
			got, err := core.Values[float64](f(vector64(x, -x)))
			require.NoError(t, err)
			w := want(n, x)
			require.InDelta(t, w, got[0], 1e-15+2e-13*w, "I%d(%v)", n, x)
			require.Equal(t, []float64{got[0], -got[0]}[n], got[1])
		}
	}
	v, err := core.Values[float64](op.I0(vector64(math.Inf(1), math.NaN(), 711)))
	require.NoError(t, err)
	require.True(t, math.IsInf(v[0], 1) && math.IsNaN(v[1]) && !math.IsInf(v[2], 0))
}

func TestMantissasAndNeighbours(t *testing.T) {
	m, e := op.Frexp(vector64(8, -0.3, 0, math.Inf(-1), 5e-324))
	requireNear(t, op.Narrow(m, 0, 0, 3), 0.5, -0.6, 0)
	require.Equal(t, core.Int32, e.DType())
	got, err := core.Values[int32](e)
	require.NoError(t, err)
	require.Equal(t, []int32{4, -1, 0, 0, -1073}, got)
	v, err := core.Values[float64](op.NextAfter(vector64(1, 1, 0), vector64(2, -2, -1)))
	require.NoError(t, err)
	require.Equal(t, []float64{math.Nextafter(1, 2), math.Nextafter(1, 0), -5e-324}, v)
	f, err := core.Values[float32](op.NextAfter(core.FromSlice([]float32{1}), core.FromSlice([]float32{2})))
	require.NoError(t, err)
	require.Equal(t, math.Nextafter32(1, 2), f[0])
	requireNear(t, op.LCM(core.FromSlice([]int64{4, -6, 0}), core.FromSlice([]int64{6, 4, 5})), 12, 12, 0)
	require.ErrorContains(t, op.LCM(vector64(1), vector64(2)).Err(), "lcm")
}

func TestNextAfterOfSpecialNumbers(t *testing.T) {
	inf := math.Inf(1)
	ends := []float64{0, math.Copysign(0, -1), 1, -1, inf, -inf, math.NaN(), 5e-324, -5e-324, math.MaxFloat64, -math.MaxFloat64, 0x1p-1022, math.MaxFloat32,
		-math.MaxFloat32, math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, 0x1p-126}
	var x, y []float64
	for _, a := range ends {
		for _, b := range ends {
			x, y = append(x, a), append(y, b)
		}
	}
	wide, err := core.Values[float64](op.NextAfter(core.FromSlice(x), core.FromSlice(y)))
	require.NoError(t, err)
	from, to := op.To(core.FromSlice(x), core.Float32), op.To(core.FromSlice(y), core.Float32)
	narrow, err := core.Values[float32](op.NextAfter(from, to))
	require.NoError(t, err)
	for i := range x {
		want, want32 := math.Nextafter(x[i], y[i]), math.Nextafter32(float32(x[i]), float32(y[i]))
		if x[i] == y[i] { // C returns y, which may be a zero of the other sign
			want = y[i]
		}
		if float32(x[i]) == float32(y[i]) {
			want32 = float32(y[i])
		}
		if math.IsNaN(want) {
			require.True(t, math.IsNaN(wide[i]) && narrow[i] != narrow[i], "%v to %v", x[i], y[i])
			continue
		}
		require.Equal(t, math.Float64bits(want), math.Float64bits(wide[i]), "%v to %v", x[i], y[i])
		require.Equal(t, math.Float32bits(want32), math.Float32bits(narrow[i]), "%v to %v as float32", x[i], y[i])
	}
}

// TestFarArguments checks that numbers have the same results beside ones that the loops for near arguments do not take.
func TestFarArguments(t *testing.T) {
	x := op.Mul(op.Randn(1000), core.Num(300))
	y := op.Randn(1000)
	for _, far := range []float64{1e30, math.Inf(1), math.NaN()} {
		beside := func(v *core.Tensor) *core.Tensor {
			return op.Cat([]*core.Tensor{v, op.Full([]int{1}, core.Num(far), op.TensorOptions{})}, 0)
		}
		for _, f := range []func(a, b *core.Tensor) *core.Tensor{
			func(a, _ *core.Tensor) *core.Tensor { return op.Sin(a) }, func(a, _ *core.Tensor) *core.Tensor { return op.Cos(a) },
			func(a, _ *core.Tensor) *core.Tensor { return op.Tan(a) }, op.Fmod, op.Remainder, op.FloorDivide,
		} {
			want, got := f(x, y), op.Narrow(f(beside(x), beside(y)), 0, 0, 1000)
			require.Equal(t, values(t, want), values(t, got))
		}
		sinc := func(v *core.Tensor) []float64 { return values(t, op.Narrow(op.Sinc(v), 0, 0, 1000)) }
		require.Equal(t, sinc(x), sinc(beside(x)))
		wide := op.Abs(op.To(y, core.Float64))
		for _, f := range []func(*core.Tensor) *core.Tensor{op.Exp, op.Exp2, op.Log, op.Log2, op.Log10} {
			end := op.To(op.Full([]int{1}, core.Num(-far), op.TensorOptions{}), core.Float64)
			require.Equal(t, values(t, f(wide)), values(t, op.Narrow(f(op.Cat([]*core.Tensor{wide, end}, 0)), 0, 0, 1000)))
		}
	}
}

func TestPolygamma(t *testing.T) {
	inf := math.Inf(1)
	for n, at1 := range []float64{1: math.Pi * math.Pi / 6, 2: -2 * 1.2020569031595942854, 3: math.Pow(math.Pi, 4) / 15, 4: -24 * 1.0369277551433699263} {
		if n == 0 {
			continue
		}
		f := at1 / math.Abs(at1)
		for k := 1; k <= n; k++ {
			f *= float64(k)
		}
		// Derivatives at x and at x + 1 differ by one power.
		got := values(t, op.Polygamma(n, vector64(1, 2, -0.5, 0.5, inf, 0, -1)))
		require.InEpsilon(t, at1, got[0], 1e-13)
		require.InEpsilon(t, at1-f, got[1], 1e-12)
		require.InEpsilon(t, got[3]+f*math.Pow(-0.5, -float64(n+1)), got[2], 1e-12)
		require.Zero(t, got[4])
		require.True(t, math.IsInf(got[5], int(f)) && math.IsInf(got[6], int(f)))
	}
}

// TestBesselFunctionsOfFloats compares the loops over floats with the functions in double.
func TestBesselFunctionsOfFloats(t *testing.T) {
	x := op.Cat([]*core.Tensor{op.Mul(op.Randn(3000), core.Num(20)), op.Randn(1000),
		core.FromSlice([]float32{0, 8, -8, 8.000001, 7.9999995, 91.9, -92, 93, 1e30, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())})}, 0)
	for i, f := range []func(*core.Tensor) *core.Tensor{op.I0, op.I1, op.I0e, op.I1e} {
		want, got := values(t, op.To(f(op.To(x, core.Float64)), core.Float32)), values(t, f(x))
		for j := range want {
			if math.IsNaN(want[j]) || math.IsInf(want[j], 0) {
				require.Equal(t, math.IsNaN(want[j]), math.IsNaN(got[j]))
				require.Equal(t, math.IsInf(want[j], 1), math.IsInf(got[j], 1))
				continue
			}
			require.InDelta(t, want[j], got[j], 1.5e-7*math.Abs(want[j]), "function %d, element %d", i, j)
		}
	}
}
