package gpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/op/expr"
)

// ulps returns the distance of got from want in units in the last place of float32. Denormals count as zero.
func ulps(want float64, got float32) float64 {
	const least = 1.1754944e-38
	w := float32(want)
	switch {
	case want != want:
		if got != got {
			return 0
		}
		return math.Inf(1)
	case w == got || math.Abs(want) < least && math.Abs(float64(got)) <= least:
		return 0
	case math.IsInf(float64(w), 0) || math.IsInf(float64(got), 0) || got != got:
		return math.Inf(1)
	}
	a := math.Max(math.Abs(want), least)
	_, e := math.Frexp(a)
	return math.Abs(float64(got)-want) / math.Ldexp(1, e-24)
}

// accuracy is the allowed error, in units in the last place, of the functions in elementwise programs, for arguments of every
// size. Functions in the second table are small differences of large numbers near their zeros: their error is relative to the
// larger of the result and 1.
var accuracy = map[string]float64{
	"exp": 2, "exp2": 2, "expm1": 3, "log": 2, "log2": 3, "log10": 3, "log1p": 3, "sin": 3, "cos": 3, "tan": 4, "asin": 3,
	"acos": 3, "atan": 3, "atan2": 4, "sinh": 4, "cosh": 4, "tanh": 4, "asinh": 4, "acosh": 4, "atanh": 4, "erf": 3,
	"erfc": 8, "erfinv": 8, "sigmoid": 4, "pow": 3, "sqrt": 1, "rsqrt": 2, "hypot": 3, "fmod": 0, "remainder": 1,
	"floor_divide": 2, "lgamma": 16, "digamma": 16,
}

// sampleArguments returns numbers of every size, and those at which functions change.
func sampleArguments(rng *rand.Rand, n int, low, high float64) []float64 {
	v := []float64{0, math.Copysign(0, -1), 1, -1, 0.5, -0.5, 2, -2, 3, 10, 88.7, -87, 1e-30, 1e30, -1e30, 65504, math.Inf(1), math.Inf(-1), math.NaN()}
	var out []float64
	for _, x := range v {
		if x != x || x >= low && x <= high {
			out = append(out, x)
		}
	}
	for len(out) < n {
		x := low + (high-low)*rng.Float64()
		if rng.IntN(2) == 0 {
			x = math.Copysign(math.Exp(60*rng.Float64()-30), float64(rng.IntN(2))-0.5)
		}
		if x >= low && x <= high {
			out = append(out, float64(float32(x)))
		}
	}
	return out
}

func TestFunctionAccuracy(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles many programs")
	}
	d := device(t)
	core.Tidy(func() {
		for name, allowed := range accuracy {
			f := expr.Lookup(name)
			row := op.Lookup(f.Op)
			require.NotNil(t, row, name)
			rng := rand.New(rand.NewPCG(1, 2))
			low, high := -1e30, 1e30
			x, y := sampleArguments(rng, 4000, low, high), []float64(nil)
			if f.Arity() == 2 {
				y = sampleArguments(rng, 4000, low, high)
				rng.Shuffle(len(y), func(i, j int) { y[i], y[j] = y[j], y[i] })
				if name == "pow" {
					for i := range y {
						if i%2 == 0 {
							x[i], y[i] = math.Abs(x[i]), float64(float32(y[i]/math.Max(1, math.Abs(y[i]))*80/math.Max(math.Abs(math.Log(math.Abs(x[i]))), 1e-3)))
						}
					}
				}
			}
			on := func(v []float64) *core.Tensor { return op.ToDevice(op.To(core.FromSlice(v), core.Float32), d) }
			args := []any{on(x)}
			if y != nil {
				args = append(args, on(y))
			}
			out, err := core.Values[float32](row.Call(args...)[0])
			require.NoError(t, err, name)
			worst, at := 0.0, 0
			for i, got := range out {
				a := []float64{float64(float32(x[i]))}
				if y != nil {
					a = append(a, float64(float32(y[i])))
				}
				want := f.Float(a...)
				u := ulps(want, got)
				if name == "lgamma" || name == "digamma" {
					if v := math.Abs(want); v < 1 && !(u == 0) {
						u = math.Abs(float64(got)-want) / math.Ldexp(1, -24)
					}
				}
				if u > worst {
					worst, at = u, i
				}
			}
			ys := math.NaN()
			if y != nil {
				ys = y[at]
			}
			t.Logf("%s: %.2f ulps at %v %v", name, worst, x[at], ys)
			if worst > allowed {
				t.Errorf("%s: %.2f ulps at %v %v: got %v, want at most %v", name, worst, x[at], ys, out[at], allowed)
			}
		}
	})
}
