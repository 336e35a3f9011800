package scan_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/kerneltest"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	_ "github.com/plait-ml/plait/core/cpu/kernel/scan"
	"github.com/stretchr/testify/require"
)

func sumType(d core.DType) core.DType {
	if d.IsFloat() {
		return d
	}
	return core.Int64
}

func same(d core.DType) core.DType { return d }

// A reference computes the running values of a line and, for extremes, their indices.
type reference struct {
	name    string
	result  func(core.DType) core.DType
	indexed bool
	floats  bool
	scan    func(x []float64) (y []float64, index []int)
}

func running(f func(a, x float64) float64, start float64) func([]float64) ([]float64, []int) {
	return func(x []float64) ([]float64, []int) {
		y, a := make([]float64, len(x)), start
		for i, v := range x {
			a = f(a, v)
			y[i] = a
		}
		return y, nil
	}
}

func extreme(beats func(x, a float64) bool) func([]float64) ([]float64, []int) {
	return func(x []float64) ([]float64, []int) {
		y, index, at := make([]float64, len(x)), make([]int, len(x)), 0
		for i, v := range x {
			if v != v || x[at] == x[at] && beats(v, x[at]) {
				at = i
			}
			y[i], index[i] = x[at], at
		}
		return y, index
	}
}

func logAddExp(a, x float64) float64 {
	switch m := math.Max(a, x); {
	case math.IsInf(m, 0) || m != m:
		return m
	default:
		return m + math.Log(math.Exp(a-m)+math.Exp(x-m))
	}
}

var references = []reference{
	{name: "cumsum", result: sumType, scan: running(func(a, x float64) float64 { return a + x }, 0)},
	{name: "cumprod", result: sumType, scan: running(func(a, x float64) float64 { return a * x }, 1)},
	{name: "cummax", result: same, indexed: true, scan: extreme(func(x, a float64) bool { return x >= a })},
	{name: "cummin", result: same, indexed: true, scan: extreme(func(x, a float64) bool { return x <= a })},
	{name: "logcumsumexp", result: same, floats: true, scan: running(logAddExp, math.Inf(-1))},
}

// lines calls f with the row-major positions of each line along dim.
func lines(shape []int, dim int, f func(at []int)) {
	inner := core.Numel(shape[dim+1:])
	n := shape[dim]
	for o := range core.Numel(shape[:dim]) {
		for i := range inner {
			at := make([]int, n)
			for k := range at {
				at[k] = (o*n+k)*inner + i
			}
			f(at)
		}
	}
}

var tolerances = map[core.DType]float64{core.Float16: 2e-3, core.BFloat16: 1.6e-2, core.Float32: 1e-6, core.Float64: 1e-13}

var smallest = map[core.DType]float64{core.Float16: 6e-8, core.BFloat16: 1e-38, core.Float32: 1e-38}

func near(d core.DType, want, got, magnitude float64) bool {
	switch {
	case want != want || got != got:
		return want != want && got != got
	case d == core.Float16 && math.Abs(want) > 65504, d != core.Float64 && math.Abs(want) > 3.4e38:
		return math.IsInf(got, int(math.Copysign(1, want)))
	}
	return want == got || math.Abs(want-got) <= tolerances[d]*(math.Abs(want)+magnitude)+smallest[d]
}

// launch runs a scan and returns its outputs.
func launch(t *testing.T, ref reference, d core.DType, in *rawtensor.Tensor, dim, threads int) []*rawtensor.Tensor {
	t.Helper()
	outs := []*rawtensor.Tensor{kerneltest.New(t, ref.result(d), in.Shape)}
	ints := []int{dim, 0}
	if ref.indexed {
		outs, ints = append(outs, kerneltest.New(t, core.Int64, in.Shape)), ints[:1]
	}
	kerneltest.Call{Threads: threads, Kernel: ref.name, Ints: ints, In: []*rawtensor.Tensor{in}, Out: outs}.MustRun(t)
	return outs
}

// check fails unless outs is the scan of in.
func check(t *testing.T, ref reference, d core.DType, in *rawtensor.Tensor, dim int, outs []*rawtensor.Tensor) {
	t.Helper()
	x, got := kerneltest.Values(in), kerneltest.Values(outs[0])
	var indices []float64
	if ref.indexed {
		indices = kerneltest.Values(outs[1])
	}
	lines(in.Shape, dim, func(at []int) {
		line, magnitude := make([]float64, len(at)), 0.0
		for i, p := range at {
			line[i] = x[p]
			if v := x[p] * x[p]; v < math.Inf(1) {
				magnitude += v
			}
		}
		magnitude = math.Sqrt(magnitude)
		if ref.name == "cumprod" {
			magnitude = 0
		}
		want, index := ref.scan(line)
		for i, p := range at {
			if !d.IsFloat() && !(math.Abs(want[i]) < 1<<53) {
				break // int64 wraps
			}
			if !near(ref.result(d), want[i], got[p], magnitude) {
				require.Fail(t, "wrong value", "%s of %v at %d: want %v, got %v", ref.name, line[:min(len(line), 8)], i, want[i], got[p])
			}
			if ref.indexed && float64(index[i]) != indices[p] {
				require.Fail(t, "wrong index", "%s of %v at %d: want %v, got %v", ref.name, line[:min(len(line), 8)], i, index[i], indices[p])
			}
		}
	})
}

func TestScansAgreeWithReference(t *testing.T) {
	for _, c := range []struct {
		shape []int
		dim   int
	}{
		{[]int{1}, 0}, {[]int{9}, 0}, {[]int{3, 50}, 1}, {[]int{50, 3}, 0}, {[]int{20, 33}, 0}, {[]int{5, 33}, 1},
		{[]int{2, 3, 4, 5}, 0}, {[]int{2, 3, 4, 5}, 1}, {[]int{2, 7, 300}, 1}, {[]int{2, 3, 4, 5}, 3}, {[]int{0, 3}, 0}, {[]int{3, 0}, 0},
	} {
		for _, l := range kerneltest.Layouts {
			for _, d := range core.RealDTypes() {
				t.Run(fmt.Sprint(c.shape, c.dim, l.Name, d), func(t *testing.T) {
					r := rand.New(rand.NewPCG(1, uint64(d)))
					in := l.Make(t, d, c.shape)
					for round := range 3 {
						kerneltest.Random(r, in, round > 0)
						for _, ref := range references {
							if !ref.floats || d.IsFloat() {
								check(t, ref, d, in, c.dim, launch(t, ref, d, in, c.dim, 1))
							}
						}
					}
				})
			}
		}
	}
}

// Short lines are scanned side by side, forwards and in reverse.
func TestShortScansAgreeWithReference(t *testing.T) {
	shapes := [][]int{{300, 3}, {131, 4}, {260, 32}, {50, 5, 3}, {70, 16, 4}, {9, 8, 7}}
	for n := 1; n <= 40; n++ {
		shapes = append(shapes, []int{n*7%40 + 1, n}, []int{n%6 + 1, n, n*3%21 + 1})
	}
	for i, shape := range shapes {
		l := kerneltest.Layouts[i%len(kerneltest.Layouts)]
		for _, d := range core.RealDTypes() {
			t.Run(fmt.Sprint(shape, l.Name, d), func(t *testing.T) {
				r := rand.New(rand.NewPCG(2, uint64(d)))
				in, flipped := l.Make(t, d, shape), kerneltest.New(t, d, shape)
				for round := range 2 {
					kerneltest.Random(r, in, round > 0)
					x := kerneltest.Values(in)
					lines(shape, 1, func(at []int) {
						for i, p := range at {
							kerneltest.Set(flipped, x[at[len(at)-1-i]], p)
						}
					})
					for _, ref := range references {
						if ref.floats && !d.IsFloat() {
							continue
						}
						check(t, ref, d, in, 1, launch(t, ref, d, in, 1, 1))
						if ref.indexed {
							continue
						}
						out := kerneltest.New(t, ref.result(d), shape)
						kerneltest.Call{Kernel: ref.name, Ints: []int{1, 1}, In: []*rawtensor.Tensor{in}, Out: []*rawtensor.Tensor{out}}.MustRun(t)
						got, want := kerneltest.Values(out), kerneltest.Values(launch(t, ref, d, flipped, 1, 1)[0])
						lines(shape, 1, func(at []int) {
							for i, p := range at {
								if g, w := got[p], want[at[len(at)-1-i]]; !near(ref.result(d), w, g, 0) {
									require.Fail(t, "wrong value in reverse", "%s at %d: want %v, got %v", ref.name, i, w, g)
								}
							}
						})
					}
				}
			})
		}
	}
}

func TestShortScansOnManyThreads(t *testing.T) {
	for _, shape := range [][]int{{70_001, 3}, {9_001, 5, 3}} {
		in := kerneltest.New(t, core.Float32, shape)
		kerneltest.Random(rand.New(rand.NewPCG(4, 5)), in, true)
		for _, ref := range references {
			one, many := launch(t, ref, core.Float32, in, 1, 1), launch(t, ref, core.Float32, in, 1, 4)
			for i := range one {
				kerneltest.RequireSameBits(t, one[i], many[i])
			}
		}
	}
}

// Long lines are split into pieces. The bits must not depend on the number of threads.
func TestLongScans(t *testing.T) {
	for _, c := range []struct {
		shape []int
		dim   int
	}{{[]int{100_003}, 0}, {[]int{2, 66_001}, 1}, {[]int{66_001, 8}, 0}, {[]int{3, 2000, 40}, 1}} {
		for _, d := range []core.DType{core.Float32, core.Int32} {
			t.Run(fmt.Sprint(c.shape, d), func(t *testing.T) {
				in := kerneltest.New(t, d, c.shape)
				kerneltest.Random(rand.New(rand.NewPCG(3, 4)), in, false)
				for _, ref := range references {
					if ref.floats && !d.IsFloat() {
						continue
					}
					one, many := launch(t, ref, d, in, c.dim, 1), launch(t, ref, d, in, c.dim, 4)
					check(t, ref, d, in, c.dim, one)
					for i := range one {
						kerneltest.RequireSameBits(t, one[i], many[i])
					}
				}
			})
		}
	}
}
