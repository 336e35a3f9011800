package vmath

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// bounds are the errors in ulp that the header states.
var bounds = map[string]float64{
	"exp": 1, "exp2": 1.1, "expm1": 1.5, "log": 1, "log2": 1.5, "log10": 1.5, "log1p": 1.5,
	"sin": 0.6, "cos": 0.6, "tan": 0.6, "asin": 1, "acos": 1, "atan": 0.53,
	"sinh": 1, "cosh": 1, "tanh": 1.6, "asinh": 1, "acosh": 1, "atanh": 1,
	"erf": 1.5, "erfc": 0.6, "erfinv": 1, "normal_cdf": 2.1, "lgamma": 1, "digamma": 1,
	"sigmoid": 2.5, "softplus": 2, "logsigmoid": 2, "sqrt": 0.5, "rsqrt": 1.5,
	"floor": 0, "ceil": 0, "trunc": 0, "round": 0,
	"pow": 1, "atan2": 1, "fmod": 0, "remainder": 1,
}

// slack is the absolute error that the header allows near a zero of the function other than at 0, and where it tends to 0.
var slack = map[string]float64{"normal_cdf": 0x1p-24, "lgamma": 0x1p-40, "digamma": 0x1p-40}

var variants = []Variant{Baseline, AVX2, AVX512}

const block = 1 << 14

// forEachVariant compares f with the reference on blocks of inputs.
func forEachVariant(t *testing.T, f Function, blocks func(yield func(a, b []float32))) {
	want, got := make([]float64, block), make([]float32, block)
	var worst [3]float64
	var at [3][2]float32
	blocks(func(a, b []float32) {
		f.Reference(want[:len(a)], a, b)
		for _, v := range variants {
			if !v.Supported() {
				continue
			}
			f.Apply(v, got[:len(a)], a, b)
			if e, i := Worst(got[:len(a)], want[:len(a)], slack[f.Name]); e > worst[v] {
				worst[v], at[v][0] = e, a[i]
				if b != nil {
					at[v][1] = b[i]
				}
			}
		}
	})
	for _, v := range variants {
		require.LessOrEqualf(t, worst[v], bounds[f.Name], "%v at %v", v, at[v])
	}
}

func TestUnaryAccuracy(t *testing.T) {
	for _, f := range Functions() {
		if f.Arguments != 1 {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, bounds, f.Name)
			forEachVariant(t, f, func(yield func(a, b []float32)) {
				// Every 1999th of all floats, then all floats of some small ranges where functions have special cases.
				a := make([]float32, block)
				for bits := uint64(0); bits < 1<<32; {
					n := 0
					for ; n < block && bits < 1<<32; n++ {
						a[n] = math.Float32frombits(uint32(bits))
						bits += 1999
					}
					yield(a[:n], nil)
				}
				for _, centre := range special {
					start := math.Float32bits(centre) - block/2
					for i := range a {
						a[i] = math.Float32frombits(start + uint32(i))
					}
					yield(a, nil)
				}
			})
		})
	}
}

var special = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 0.5, -0.5, 2, -2, 3, 0.25, 0.625, 0.92, 1.4616321, float32(math.Pi / 2), float32(math.Pi),
	float32(-math.Pi), 88.72, -87.33, -103.97, 128, -149, 1 << 23, 5e-39, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 16777216, 8388607.5, math.Sqrt2, math.Sqrt2 / 2, 10, 1000,
}

func TestBinaryAccuracy(t *testing.T) {
	for _, f := range Functions() {
		if f.Arguments != 2 || f.Name == "remainder" || f.Name == "floor_divide" {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			forEachVariant(t, f, pairs)
		})
	}
}

// pairs yields all pairs of special values, and random pairs of several kinds.
func pairs(yield func(a, b []float32)) {
	var a, b []float32
	for _, x := range special {
		for _, y := range append(special, 3, -3, 7, -7, 16777215, -16777215, 33554434, 0.1, 1.5, -1.5) {
			a, b = append(a, x), append(b, y)
		}
	}
	yield(a, b)
	a, b = make([]float32, block), make([]float32, block)
	state := uint64(1)
	for round := range 120 {
		for i := range a {
			state = state*6364136223846793005 + 1442695040888963407
			x, y := uint32(state>>32), uint32(state>>16)
			a[i], b[i] = math.Float32frombits(x), math.Float32frombits(y)
			switch round % 4 {
			case 1: // small powers, and quotients near integers
				b[i] = float32(int32(y)>>20) / 256
			case 2: // a base near one and a large power
				a[i], b[i] = 1+float32(int32(x))*0x1p-44, float32(int32(y))*0x1p-8
			case 3:
				a[i], b[i] = float32(x)*0x1p-24, float32(int32(y))*0x1p-26
			}
		}
		yield(a, b)
	}
}

// TestRemainders compares remainder and floor_divide with results from an exact fmod.
func TestRemainders(t *testing.T) {
	byName := map[string]Function{}
	for _, f := range Functions() {
		byName[f.Name] = f
	}
	r, q := make([]float32, block), make([]float32, block)
	for _, v := range variants {
		if !v.Supported() {
			continue
		}
		pairs(func(a, b []float32) {
			byName["remainder"].Apply(v, r[:len(a)], a, b)
			byName["floor_divide"].Apply(v, q[:len(a)], a, b)
			for i, x := range a {
				y := b[i]
				m := float32(math.Mod(float64(x), float64(y)))
				want := m
				if m != 0 && (m < 0) != (y < 0) {
					want += y
				}
				if math.Float32bits(want) != math.Float32bits(r[i]) && (want == want || r[i] == r[i]) {
					require.Failf(t, "remainder", "%v: remainder(%v, %v) = %v, want %v", v, x, y, r[i], want)
				}
				quotient := float64(x) / float64(y)
				if quotient != 0 && math.Abs(quotient) < 1<<22 && float64(q[i]) != math.Floor(quotient) {
					// The rounded quotient may be an integer although the exact one is slightly less.
					exact := math.Round(quotient)
					if !(math.Abs(quotient-exact) < 1e-9*math.Abs(quotient) && math.Abs(float64(q[i])-exact) <= 1) {
						require.Failf(t, "floor_divide", "%v: floor_divide(%v, %v) = %v", v, x, y, q[i])
					}
				}
			}
		})
	}
}

// doubleBounds are the float64 errors in ulp that the header states.
var doubleBounds = map[string]float64{
	"exp": 0.8, "exp2": 0.8, "expm1": 0.6, "log": 0.65, "log2": 0.8, "log10": 0.8, "log1p": 0.7, "sigmoid": 1.8, "tanh": 0.6,
	"sinh": 0.56, "cosh": 0.53, "asinh": 1, "acosh": 0.65, "atanh": 0.55, "softplus": 1.5, "logsigmoid": 1.5, "erf": 0.9, "erfc": 1.1,
	"sin": 0.52, "cos": 0.52, "tan": 0.54, "asin": 0.66, "acos": 0.65, "atan": 0.53, "atan2": 0.55, "pow": 0.9, "erfinv": 2,
}

func TestDoubleAccuracy(t *testing.T) {
	edges := []float64{
		0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64,
		-math.SmallestNonzeroFloat64, 0x1p-1022, 0x1.fffffffffffffp-1023, 1, -1, 709.782712893384, 709.7827128933841, -708.3964185322641, -745.1332191019411,
		-745.1332191019412, -746, -1000, 1000, math.Sqrt2, math.Sqrt2 / 2, math.Ln2 / 2, -math.Ln2 / 2,
		0.5, -0.5, 1 - 0x1p-53, 0x1p-53 - 1, 0x1p20, 0x1p20 - 0x1p-33, math.Pi / 8, math.Sqrt2 - 1, math.Sqrt2 + 1, 1e22,
	}
	ranges := [][2]float64{{-750, 715}, {-745.2, -708}, {-1, 1}, {-1e-5, 1e-5}, {0.5, 2}, {0.99, 1.01}, {709, 710}, {0, 1e-307}, {-23, 23}, {-0.51, -0.49}, {-1e6, 1e6}}
	for _, f := range DoubleFunctions() {
		t.Run(f.Name, func(t *testing.T) {
			require.Contains(t, doubleBounds, f.Name)
			rng, bound := rand.New(rand.NewPCG(1, 2)), doubleBounds[f.Name]
			check := func(a []float64) {
				got, part, b := make([]float64, len(a)), make([]float64, 7), []float64(nil)
				if f.Arguments == 2 {
					b = make([]float64, len(a))
					for i := range b {
						b[i] = a[rng.IntN(len(a))]
					}
				}
				for _, v := range variants {
					if !v.Supported() {
						continue
					}
					f.Apply(v, got, a, b)
					e, at := f.Worst(got, a, b)
					require.LessOrEqualf(t, e, bound, "%v(%v) = %v for %v", f.Name, a[at], got[at], v)
					// Results do not depend on the elements around them.
					for i := 0; i+len(part) <= len(a); i += 191 {
						f.Apply(v, part, a[i:i+len(part)], b[min(i, len(b)):min(i+len(part), len(b))])
						for j, y := range part {
							require.Equal(t, math.Float64bits(got[i+j]), math.Float64bits(y), "%v(%v) for %v", f.Name, a[i+j], v)
						}
					}
				}
			}
			for range 20 { // for two arguments, with others
				check(edges)
			}
			a := make([]float64, block)
			multiples := a[:0]
			for n := 1; len(multiples) < block; n += 1 + n/600 { // about pi/2
				x := float64(n) * (math.Pi / 2)
				multiples = append(multiples, x, -x, math.Nextafter(x, 0), math.Nextafter(x, 2*x))
			}
			check(multiples)
			for range 8 {
				bound = doubleBounds[f.Name]
				for _, r := range ranges {
					for i := range a {
						a[i] = r[0] + (r[1]-r[0])*rng.Float64()
					}
					check(a)
				}
				if f.Arguments == 2 {
					bound = 1.5 // of subnormal quotients
				}
				for i := range a {
					a[i] = math.Float64frombits(rng.Uint64()) // all bit patterns, including NaN and infinities
				}
				check(a)
			}
		})
	}
}

// TestDouble checks the float64 functions that are not libm's.
func TestDouble(t *testing.T) {
	byName := map[string]Function{}
	for _, f := range Functions() {
		byName[f.Name] = f
	}
	near := func(name string, want, x float64) {
		t.Helper()
		require.InDelta(t, want, byName[name].Double(x, 0), 4e-15*math.Max(1, math.Abs(want)), "%s(%v)", name, x)
	}
	for x := -0.99995; x < 1; x += 0.0001 {
		near("erfinv", math.Erfinv(x), x)
	}
	near("erfinv", math.Inf(1), 1)
	near("erfinv", 5.863584748755168, 1-0x1p-53)
	const euler = 0.57721566490153286
	near("digamma", -euler, 1)
	near("digamma", -euler-2*math.Ln2, 0.5)
	near("digamma", 1-euler, 2)
	near("digamma", 2.2517525890667211, 10)
	for x := -20.45; x < 20; x += 0.37 {
		near("digamma", byName["digamma"].Double(x+1, 0)-1/x, x)
	}
	for x := -30.0; x < 30; x += 0.01 {
		near("sigmoid", 1/(1+math.Exp(-x)), x)
		near("softplus", math.Log1p(math.Exp(x)), x)
		near("logsigmoid", -math.Log1p(math.Exp(-x)), x)
	}
	require.Equal(t, 1.5, byName["remainder"].Double(-0.5, 2))
	require.Equal(t, -1.0, byName["floor_divide"].Double(-0.5, 2))
}

func BenchmarkFunctions(b *testing.B) {
	a, c, y := make([]float32, block), make([]float32, block), make([]float32, block)
	for i := range a {
		a[i], c[i] = 0.01+float32(i)*0x1p-15, 1.5+float32(i)*0x1p-14
	}
	for _, f := range Functions() {
		for _, v := range variants {
			if !v.Supported() {
				continue
			}
			b.Run(f.Name+"/"+v.String(), func(b *testing.B) {
				for b.Loop() {
					f.Apply(v, y, a, c)
				}
				b.ReportMetric(float64(block)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "elem/ns")
			})
		}
	}
	for _, f := range DoubleFunctions() {
		for _, v := range variants {
			if !v.Supported() {
				continue
			}
			b.Run("double/"+f.Name+"/"+v.String(), func(b *testing.B) {
				a, y := make([]float64, block), make([]float64, block)
				for i := range a {
					a[i] = 0.01 + float64(i)*0x1p-15
				}
				for b.Loop() {
					f.Apply(v, y, a, a)
				}
				b.ReportMetric(float64(block)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "elem/ns")
			})
		}
	}
}
