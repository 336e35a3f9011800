package reduction_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/kerneltest"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	_ "github.com/plait-ml/plait/core/cpu/kernel/reduction"
	"github.com/stretchr/testify/require"
)

// launch runs a kernel on a pool of the given size.
func launch(t testing.TB, threads int, name string, dims []int, floats []float64, in *rawtensor.Tensor, outs ...*rawtensor.Tensor) {
	t.Helper()
	kerneltest.Call{Threads: threads, Kernel: name, Ints: dims, Floats: floats, In: []*rawtensor.Tensor{in}, Out: outs}.MustRun(t)
}

// groups returns, for each result in row-major order, the elements that it reduces, in row-major order.
func groups(shape []int, dims []int, flat []float64) (out [][]float64, outShape []int) {
	for i, n := range shape {
		if !slices.Contains(dims, i) {
			outShape = append(outShape, n)
		}
	}
	if outShape == nil {
		outShape = []int{}
	}
	out = make([][]float64, core.Numel(outShape))
	for i, x := range flat {
		rest, at, scale := i, 0, 1
		for k := len(shape) - 1; k >= 0; k-- {
			if !slices.Contains(dims, k) {
				at += rest % shape[k] * scale
				scale *= shape[k]
			}
			rest /= shape[k]
		}
		out[at] = append(out[at], x)
	}
	return out, outShape
}

type reference struct {
	name                string
	floats              []float64
	result              func(core.DType) core.DType
	value               func(x []float64, floats []float64) float64
	nonempty, floatOnly bool
}

func same(d core.DType) core.DType { return d }

func sumType(d core.DType) core.DType {
	if d.IsFloat() {
		return d
	}
	return core.Int64
}

func isBool(core.DType) core.DType { return core.Bool }

func sum(x []float64, f func(float64) float64) float64 {
	s := 0.0
	for _, v := range x {
		s += f(v)
	}
	return s
}

func extreme(x []float64, better func(a, b float64) bool) (float64, int) {
	at := 0
	for i, v := range x {
		if (v != v && x[at] == x[at]) || better(v, x[at]) {
			at = i
		}
	}
	return x[at], at
}

func greater(a, b float64) bool { return a > b }
func less(a, b float64) bool    { return a < b }

func variance(x []float64, f []float64) float64 {
	mean := sum(x, func(v float64) float64 { return v }) / float64(len(x))
	m2 := sum(x, func(v float64) float64 { return (v - mean) * (v - mean) })
	return m2 / math.Max(float64(len(x))-f[0], 0)
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func nonzero(x []float64) float64 { return sum(x, func(v float64) float64 { return boolean(v != 0) }) }

func pnorm(x []float64, f []float64) float64 {
	switch p := f[0]; {
	case p == 0:
		return nonzero(x)
	case len(x) == 0:
		return 0
	case math.IsInf(p, 0):
		abs := make([]float64, len(x))
		for i := range x {
			abs[i] = math.Abs(x[i])
		}
		if p > 0 {
			v, _ := extreme(abs, greater)
			return v
		}
		v, _ := extreme(abs, less)
		return v
	default:
		return math.Pow(sum(x, func(v float64) float64 { return math.Pow(math.Abs(v), p) }), 1/p)
	}
}

var references = []reference{
	{name: "sum", result: sumType, value: func(x, _ []float64) float64 { return sum(x, func(v float64) float64 { return v }) }},
	{name: "mean", floatOnly: true, result: same, value: func(x, _ []float64) float64 {
		return sum(x, func(v float64) float64 { return v }) / float64(len(x))
	}},
	{name: "prod", result: sumType, value: func(x, _ []float64) float64 {
		p := 1.0
		for _, v := range x {
			p *= v
		}
		return p
	}},
	{name: "amax", nonempty: true, result: same, value: func(x, _ []float64) float64 { v, _ := extreme(x, greater); return v }},
	{name: "amin", nonempty: true, result: same, value: func(x, _ []float64) float64 { v, _ := extreme(x, less); return v }},
	{name: "any", result: isBool, value: func(x, _ []float64) float64 { return boolean(nonzero(x) > 0) }},
	{name: "all", result: isBool, value: func(x, _ []float64) float64 { return boolean(nonzero(x) == float64(len(x))) }},
	{name: "count_nonzero", result: func(core.DType) core.DType { return core.Int64 }, value: func(x, _ []float64) float64 { return nonzero(x) }},
	{name: "norm", floats: []float64{0}, floatOnly: true, result: same, value: pnorm},
	{name: "norm", floats: []float64{1}, floatOnly: true, result: same, value: pnorm},
	{name: "norm", floats: []float64{2}, floatOnly: true, result: same, value: pnorm},
	{name: "norm", floats: []float64{3.5}, floatOnly: true, result: same, value: pnorm},
	{name: "norm", floats: []float64{math.Inf(1)}, floatOnly: true, nonempty: true, result: same, value: pnorm},
	{name: "norm", floats: []float64{math.Inf(-1)}, floatOnly: true, nonempty: true, result: same, value: pnorm},
	{name: "var", floats: []float64{1}, floatOnly: true, result: same, value: variance},
	{name: "var", floats: []float64{0}, floatOnly: true, result: same, value: variance},
	{name: "std", floats: []float64{1}, floatOnly: true, result: same, value: func(x, f []float64) float64 { return math.Sqrt(variance(x, f)) }},
	{name: "logsumexp", floatOnly: true, result: same, value: func(x, _ []float64) float64 {
		if len(x) == 0 {
			return math.Inf(-1)
		}
		m, _ := extreme(x, greater)
		if math.IsInf(m, 0) || m != m {
			return m
		}
		return m + math.Log(sum(x, func(v float64) float64 { return math.Exp(v - m) }))
	}},
}

var tolerances = map[core.DType]float64{core.Float16: 2e-3, core.BFloat16: 1.6e-2, core.Float32: 2e-6, core.Float64: 1e-13}

// smallest bounds the results of each dtype whose error may come from underflow.
var smallest = map[core.DType]float64{core.Float16: 1e-4, core.BFloat16: 1e-36, core.Float32: 1e-32, core.Float64: 1e-290}

// near reports whether got is close enough to want, for a result of dtype d from numbers of the given magnitude.
func near(d core.DType, want, got, magnitude float64) bool {
	if want != want || got != got {
		return want != want && got != got
	}
	if d == core.Float16 && math.Abs(want) > 65504 || math.Abs(want) > 3.4e38 && d != core.Float64 {
		return math.IsInf(got, 0) && math.Signbit(got) == math.Signbit(want)
	}
	return want == got || math.Abs(want-got) <= tolerances[d]*(math.Abs(want)+magnitude)
}

var cases = []struct{ shape, dims []int }{
	{[]int{}, []int{}},
	{[]int{1}, []int{0}},
	{[]int{7}, []int{0}},
	{[]int{100}, []int{0}},
	{[]int{5}, []int{}},
	{[]int{3, 50}, []int{1}},
	{[]int{50, 3}, []int{0}},
	{[]int{131, 2}, []int{0}},
	{[]int{300, 70}, []int{0}},
	{[]int{300, 70}, []int{1}},
	{[]int{300, 70}, []int{0, 1}},
	{[]int{4, 5, 6, 7}, []int{0, 2}},
	{[]int{4, 5, 6, 7}, []int{1, 3}},
	{[]int{4, 5, 6, 7}, []int{1, 2}},
	{[]int{2, 3, 4, 5, 6}, []int{0, 2, 4}},
	{[]int{9, 1, 33}, []int{1}},
	{[]int{0}, []int{0}},
	{[]int{3, 0}, []int{1}},
	{[]int{0, 3}, []int{1}},
	{[]int{2, 0, 3}, []int{1}},
}

func TestReductionsAgreeWithReference(t *testing.T) {
	for _, c := range cases {
		for _, l := range kerneltest.Layouts {
			for _, d := range core.RealDTypes() {
				t.Run(fmt.Sprint(c.shape, c.dims, l.Name, d), func(t *testing.T) {
					r := rand.New(rand.NewPCG(1, uint64(d)))
					in := l.Make(t, d, c.shape)
					for round := range 3 {
						kerneltest.Random(r, in, round > 0)
						want, outShape := groups(c.shape, c.dims, kerneltest.Values(in))
						for _, ref := range references {
							checkReference(t, ref, d, in, c.dims, want, outShape)
						}
						checkIndices(t, d, in, c.dims, want, outShape)
					}
				})
			}
		}
	}
}

func checkReference(t *testing.T, ref reference, d core.DType, in *rawtensor.Tensor, dims []int, want [][]float64, outShape []int) {
	if ref.floatOnly && !d.IsFloat() || ref.nonempty && in.Numel() == 0 {
		return
	}
	out := kerneltest.New(t, ref.result(d), outShape)
	launch(t, 1, ref.name, dims, ref.floats, in, out)
	got := kerneltest.Values(out)
	for i, x := range want {
		w := ref.value(x, ref.floats)
		if !d.IsFloat() && ref.name == "prod" && !(math.Abs(w) < 1<<53) {
			continue // int64 wraps
		}
		magnitude := math.Sqrt(sum(x, func(v float64) float64 {
			if math.IsInf(v, 0) || v != v {
				return 0
			}
			return v * v
		}))
		if ref.name == "prod" {
			magnitude = smallest[d]
		}
		if !near(ref.result(d), w, got[i], magnitude) {
			require.Fail(t, "wrong result", "%s %v of %d elements %v: want %v, got %v", ref.name, ref.floats, len(x), x[:min(len(x), 8)], w, got[i])
		}
	}
}

func checkIndices(t *testing.T, d core.DType, in *rawtensor.Tensor, dims []int, want [][]float64, outShape []int) {
	if in.Numel() == 0 {
		return
	}
	for name, better := range map[string]func(a, b float64) bool{"argmax": greater, "argmin": less} {
		index, value := kerneltest.New(t, core.Int64, outShape), kerneltest.New(t, d, outShape)
		launch(t, 1, name, dims, nil, in, index, value)
		at, v := kerneltest.Values(index), kerneltest.Values(value)
		for i, x := range want {
			w, k := extreme(x, better)
			if at[i] != float64(k) || w != v[i] && (w == w || v[i] == v[i]) {
				require.Fail(t, "wrong result", "%s of %d elements %v: want %v at %d, got %v at %v", name, len(x), x[:min(len(x), 8)], w, k, v[i], at[i])
			}
		}
	}
}

// large has one kernel for each kind of leaf.
var large = map[string]bool{"sum": true, "prod": true, "amin": true, "count_nonzero": true, "norm": true, "var": true, "logsumexp": true}

// Large problems use every way of splitting the work. Each must give the same bits for any number of threads, and agree
// with the reference.
func TestLargeReductions(t *testing.T) {
	shapes := []struct{ shape, dims []int }{
		{[]int{1 << 19}, []int{0}},
		{[]int{3, 200_001}, []int{1}},
		{[]int{1000, 300}, []int{1}},
		{[]int{10_000, 70}, []int{0}},
		{[]int{200_003, 3}, []int{0}},
		{[]int{300, 3000}, []int{0}},
		{[]int{5, 700, 6, 50}, []int{1, 3}},
		{[]int{40, 8, 33, 33}, []int{0, 2, 3}},
		{[]int{4, 3000, 64}, []int{1}},
	}
	for _, c := range shapes {
		for _, l := range kerneltest.Layouts[:3] {
			for _, d := range []core.DType{core.Float32, core.BFloat16, core.Int32} {
				if d != core.Float32 && l.Name != "contiguous" {
					continue
				}
				t.Run(fmt.Sprint(c.shape, c.dims, l.Name, d), func(t *testing.T) {
					in := l.Make(t, d, c.shape)
					kerneltest.Random(rand.New(rand.NewPCG(2, 3)), in, false)
					want, outShape := groups(c.shape, c.dims, kerneltest.Values(in))
					for _, ref := range references {
						if ref.floatOnly && !d.IsFloat() || !large[ref.name] {
							continue
						}
						checkReference(t, ref, d, in, c.dims, want, outShape)
						one, many := kerneltest.New(t, ref.result(d), outShape), kerneltest.New(t, ref.result(d), outShape)
						launch(t, 1, ref.name, c.dims, ref.floats, in, one)
						launch(t, 4, ref.name, c.dims, ref.floats, in, many)
						kerneltest.RequireSameBits(t, one, many)
					}
					checkIndices(t, d, in, c.dims, want, outShape)
				})
			}
		}
	}
}

// The sum of many equal float32 numbers must not drift. A variance must stay accurate with a large mean.
func TestSumsOfManyElementsAreAccurate(t *testing.T) {
	const n = 1 << 22
	tenth, high := kerneltest.New(t, core.Float32, []int{n}), kerneltest.New(t, core.Float32, []int{n})
	for i := range n {
		kerneltest.Set(tenth, 0.1, i)
		kerneltest.Set(high, 4096+float64(i/16%2), i)
	}
	for _, shape := range [][]int{{n, 1}, {n / 16, 16}} {
		out := kerneltest.New(t, core.Float32, shape[1:])
		launch(t, 2, "sum", []int{0}, nil, reshaped(tenth, shape), out)
		for _, v := range kerneltest.Values(out) {
			require.InEpsilon(t, float64(float32(0.1))*float64(shape[0]), v, 1e-6)
		}
		launch(t, 2, "var", []int{0}, []float64{0}, reshaped(high, shape), out)
		for _, v := range kerneltest.Values(out) {
			require.InEpsilon(t, 0.25, v, 1e-6)
		}
	}
}

func reshaped(x *rawtensor.Tensor, shape []int) *rawtensor.Tensor {
	y := *x
	y.Shape, y.Strides = shape, make([]int, len(shape))
	core.ContiguousStrides(shape, y.Strides)
	return &y
}

func TestVarWritesTheMean(t *testing.T) {
	in := kerneltest.From(t, core.Float32, []int{2, 3}, []float64{1, 2, 3, 4, 5, 9})
	v, mean := kerneltest.New(t, core.Float32, []int{2, 1}), kerneltest.New(t, core.Float32, []int{2, 1})
	launch(t, 1, "var", []int{1}, []float64{1}, in, v, mean)
	require.Equal(t, []float64{2, 6}, kerneltest.Values(mean))
	require.Equal(t, []float64{1, 7}, kerneltest.Values(v))
}

// Rows of every length, with special elements at the front, in the middle and in the remainder of a vector.
func TestLogSumExpOfSpecialRows(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	negative := math.Float64frombits(math.Float64bits(nan) | 1<<63)
	for _, d := range []core.DType{core.BFloat16, core.Float32, core.Float64} {
		for _, n := range []int{1, 3, 8, 15, 16, 17, 40, 1024, 1029, 4096, 5003} {
			fills := []struct{ most, some, want float64 }{
				{0, 0, math.Log(float64(n))},
				{-inf, -inf, -inf}, {-inf, 2, 2}, {-inf, inf, inf}, {-inf, nan, nan}, {-inf, negative, nan},
				{1, inf, inf}, {1, nan, nan}, {1, negative, nan}, {inf, nan, nan}, {inf, negative, nan}, {inf, -inf, inf},
				{-200, 0, 0}, {-0x1p120, 5, 5}, {0x1p120, 0x1p120, 0x1p120}, {-0x1p120, 0x1p120, 0x1p120},
			}
			for _, at := range []int{0, n / 2, n - 1} {
				in, out := kerneltest.New(t, d, []int{len(fills), n}), kerneltest.New(t, d, []int{len(fills)})
				for r, f := range fills {
					for i := range n {
						kerneltest.Set(in, f.most, r*n+i)
					}
					kerneltest.Set(in, f.some, r*n+at)
				}
				launch(t, 1, "logsumexp", []int{1}, nil, in, out)
				for r, got := range kerneltest.Values(out) {
					f := fills[r]
					if n == 1 {
						f.want = f.some
					}
					require.Truef(t, near(d, f.want, got, 0), "%v of %d elements %v and one %v: want %v, got %v", d, n, f.most, f.some, f.want, got)
				}
			}
		}
	}
}

// A NaN stays beside an infinity in another block of the row.
func TestLogSumExpOfInfinityAndNaN(t *testing.T) {
	for _, d := range []core.DType{core.BFloat16, core.Float32, core.Float64} {
		for _, n := range []int{2, 64, 5003} {
			for _, inf := range []float64{math.Inf(1), math.Inf(-1)} {
				in, out := kerneltest.New(t, d, []int{2, n}), kerneltest.New(t, d, []int{2})
				for i := range 2 * n {
					kerneltest.Set(in, 0, i)
				}
				kerneltest.Set(in, inf, 0)
				kerneltest.Set(in, math.NaN(), n-1)
				kerneltest.Set(in, math.NaN(), n)
				kerneltest.Set(in, inf, 2*n-1)
				launch(t, 1, "logsumexp", []int{1}, nil, in, out)
				for _, got := range kerneltest.Values(out) {
					require.True(t, math.IsNaN(got), "%v of %d elements with %v", d, n, inf)
				}
			}
		}
	}
}

// A row's terms are summed with float32's precision, however many there are and however far they are below the largest.
func TestLogSumExpIsAccurate(t *testing.T) {
	for _, below := range []float64{0, 0.3, 3, 12.5, 40} {
		for _, n := range []int{100, 1000, 4096, 100_000} {
			in, out := kerneltest.New(t, core.Float32, []int{n}), kerneltest.New(t, core.Float32, []int{})
			for i := range n {
				kerneltest.Set(in, -float64(float32(below)), i)
			}
			kerneltest.Set(in, 0, n/3)
			launch(t, 1, "logsumexp", []int{0}, nil, in, out)
			want := math.Log1p(float64(n-1) * math.Exp(-float64(float32(below))))
			require.InDelta(t, want, kerneltest.Values(out)[0], 1.5e-6, "%d elements %v below the largest", n, below)
		}
	}
}

// The first of several equal elements is found at any position, and the first NaN wins over all.
func TestFirstPlacesOfExtremes(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, d := range []core.DType{core.BFloat16, core.Float32, core.Float64} {
		for _, n := range []int{1, 2, 5, 15, 16, 17, 31, 32, 33, 64, 100, 1000, 1024, 4096, 5003} {
			for _, at := range [][2]int{{0, n - 1}, {n / 3, n / 2}, {n / 2, n - 1}, {n - 1, n - 1}} {
				for _, fill := range []struct{ most, some float64 }{
					{0, 1}, {2, 2}, {-1, math.Copysign(0, -1)}, {-inf, -inf}, {-inf, -3}, {-inf, inf}, {inf, inf}, {5, inf},
					{1, nan}, {-inf, nan}, {inf, nan}, {nan, nan},
				} {
					for name, sign := range map[string]float64{"argmax": 1, "argmin": -1} {
						in := kerneltest.New(t, d, []int{n})
						for i := range n {
							kerneltest.Set(in, sign*fill.most, i)
						}
						kerneltest.Set(in, sign*fill.some, at[0])
						kerneltest.Set(in, sign*fill.some, at[1])
						index, value := kerneltest.New(t, core.Int64, []int{}), kerneltest.New(t, d, []int{})
						launch(t, 1, name, []int{0}, nil, in, index, value)
						want := at[0]
						if fill.most == fill.some || fill.most != fill.most {
							want = 0
						}
						require.Equalf(t, float64(want), kerneltest.Values(index)[0], "%s of %d elements %v, %v at %v", name, n, fill.most, fill.some, at)
						v, w := kerneltest.Values(value)[0], sign*fill.some
						require.Truef(t, v == w || v != v && w != w, "%s of %d elements %v, %v at %v: got %v", name, n, fill.most, fill.some, at, v)
					}
				}
			}
		}
	}
}
