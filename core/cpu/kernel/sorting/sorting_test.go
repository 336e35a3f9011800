package sorting_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/kerneltest"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	_ "github.com/plait-ml/plait/core/cpu/kernel/sorting"
	"github.com/stretchr/testify/require"
)

// compare orders numbers, with NaN last.
func compare(a, b float64) int {
	switch {
	case a != a && b != b:
		return 0
	case a != a:
		return 1
	case b != b || a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// order returns the indices that sort x.
func order(x []float64, descending bool) []int {
	index := make([]int, len(x))
	for i := range index {
		index[i] = i
	}
	slices.SortStableFunc(index, func(a, b int) int {
		if descending {
			return compare(x[b], x[a])
		}
		return compare(x[a], x[b])
	})
	return index
}

// A reference returns the indices of the results among the elements of a line.
type reference struct {
	kernel string
	ints   []int // the attributes after the dimension
	count  func(n int) int
	choose func(x []float64) []int
}

func one(int) int { return 1 }

func topk(k int, largest bool) reference {
	flag := 0
	if largest {
		flag = 1
	}
	return reference{"topk", []int{k, flag}, func(int) int { return k }, func(x []float64) []int { return order(x, largest)[:k] }}
}

func median(x []float64) []int {
	if i := slices.IndexFunc(x, math.IsNaN); i >= 0 {
		return []int{i}
	}
	return []int{order(x, false)[(len(x)-1)/2]}
}

func nanMedian(x []float64) []int {
	n := 0
	for _, v := range x {
		if v == v {
			n++
		}
	}
	return []int{order(x, false)[max(n-1, 0)/2]}
}

func mode(x []float64) []int {
	index, longest, start, last := order(x, false), 0, 0, 0
	for i := 1; i <= len(x); i++ {
		if i < len(x) && compare(x[index[i]], x[index[start]]) == 0 {
			continue
		}
		if i-start > longest {
			longest, last = i-start, index[i-1]
		}
		start = i
	}
	return []int{last}
}

func references(n int) []reference {
	all := func(n int) int { return n }
	list := []reference{
		{"sort", []int{0}, all, func(x []float64) []int { return order(x, false) }},
		{"sort", []int{1}, all, func(x []float64) []int { return order(x, true) }},
		{"median", []int{1}, one, median},
		{"nanmedian", []int{1}, one, nanMedian},
		{"mode", []int{1}, one, mode},
	}
	for _, k := range []int{1, n / 10, n / 8, n / 2, n} {
		if k > 0 {
			list = append(list, topk(k, true), topk(k, false),
				reference{"kthvalue", []int{k}, one, func(x []float64) []int { return order(x, false)[k-1 : k] }})
		}
	}
	return list
}

// lines calls f with the row-major positions of each line along dim.
func lines(shape []int, dim int, f func(line int, at []int)) {
	inner, n := core.Numel(shape[dim+1:]), shape[dim]
	for o := range core.Numel(shape[:dim]) {
		for i := range inner {
			at := make([]int, n)
			for k := range at {
				at[k] = (o*n+k)*inner + i
			}
			f(o*inner+i, at)
		}
	}
}

func launch(t *testing.T, ref reference, d core.DType, in *rawtensor.Tensor, dim, threads int) (values, indices *rawtensor.Tensor) {
	t.Helper()
	shape := slices.Clone(in.Shape)
	shape[dim] = ref.count(shape[dim])
	values, indices = kerneltest.New(t, d, shape), kerneltest.New(t, core.Int64, shape)
	kerneltest.Call{Threads: threads, Kernel: ref.kernel, Ints: append([]int{dim}, ref.ints...), In: []*rawtensor.Tensor{in},
		Out: []*rawtensor.Tensor{values, indices}}.MustRun(t)
	return values, indices
}

func check(t *testing.T, ref reference, in *rawtensor.Tensor, dim int, values, indices *rawtensor.Tensor) {
	t.Helper()
	x, v, index := kerneltest.Values(in), kerneltest.Values(values), kerneltest.Values(indices)
	var outs [][]int
	lines(values.Shape, dim, func(_ int, at []int) { outs = append(outs, at) })
	lines(in.Shape, dim, func(line int, at []int) {
		elements := make([]float64, len(at))
		for i, p := range at {
			elements[i] = x[p]
		}
		for i, want := range ref.choose(elements) {
			p := outs[line][i]
			if index[p] != float64(want) || math.Float64bits(v[p]) != math.Float64bits(elements[want]) {
				require.Fail(t, "wrong result", "%s %v of %d elements %v: result %d is %v at %v, want %v at %v", ref.kernel, ref.ints,
					len(elements), elements[:min(len(elements), 16)], i, v[p], index[p], elements[want], want)
			}
		}
	})
}

func TestSortingAgreesWithReference(t *testing.T) {
	for _, c := range []struct {
		shape []int
		dim   int
	}{
		{[]int{1}, 0}, {[]int{9}, 0}, {[]int{3, 50}, 1}, {[]int{50, 3}, 0}, {[]int{300, 2}, 0}, {[]int{2, 400}, 1}, {[]int{2, 5000}, 1},
		{[]int{2, 3, 4, 5}, 1}, {[]int{0, 3}, 1}, {[]int{3, 0}, 0},
	} {
		for _, l := range kerneltest.Layouts {
			for _, d := range core.RealDTypes() {
				t.Run(fmt.Sprint(c.shape, c.dim, l.Name, d), func(t *testing.T) {
					r := rand.New(rand.NewPCG(1, uint64(d)))
					in := l.Make(t, d, c.shape)
					for round := range 2 {
						kerneltest.Random(r, in, round > 0)
						for _, ref := range references(c.shape[c.dim]) {
							values, indices := launch(t, ref, d, in, c.dim, 1)
							check(t, ref, in, c.dim, values, indices)
						}
					}
				})
			}
		}
	}
}

// Many short lines are sorted at once. Half of the inputs have many ties.
func TestSortingOfShortLines(t *testing.T) {
	shapes := [][]int{{300, 3}, {131, 4}, {260, 32}, {50, 5, 3}, {70, 16, 4}, {9, 8, 7}}
	for n := 1; n <= 40; n++ {
		shapes = append(shapes, []int{n*7%40 + 1, n}, []int{n%6 + 1, n, n*3%21 + 1})
	}
	for i, shape := range shapes {
		l := kerneltest.Layouts[i%len(kerneltest.Layouts)]
		for _, d := range core.RealDTypes() {
			t.Run(fmt.Sprint(shape, l.Name, d), func(t *testing.T) {
				r := rand.New(rand.NewPCG(2, uint64(d)))
				in := l.Make(t, d, shape)
				for round := range 2 {
					kerneltest.Random(r, in, round > 0)
					if round == 0 && l.Name == kerneltest.Layouts[0].Name {
						for i := range in.Numel() {
							kerneltest.Set(in, float64(r.IntN(2)), i)
						}
					}
					for _, ref := range references(shape[1]) {
						values, indices := launch(t, ref, d, in, 1, 1)
						check(t, ref, in, 1, values, indices)
					}
				}
			})
		}
	}
	in := kerneltest.New(t, core.Float32, []int{70_001, 3})
	kerneltest.Random(rand.New(rand.NewPCG(4, 5)), in, true)
	for _, ref := range references(3) {
		one, oneIndex := launch(t, ref, core.Float32, in, 1, 1)
		many, manyIndex := launch(t, ref, core.Float32, in, 1, 4)
		kerneltest.RequireSameBits(t, one, many)
		kerneltest.RequireSameBits(t, oneIndex, manyIndex)
	}
}

// Keys that use all their bits: ascending, descending, and all equal.
func TestSortingOfExtremeInputs(t *testing.T) {
	const n = 20_000
	r := rand.New(rand.NewPCG(5, 6))
	inputs := map[string]func(i int) float64{
		"bits":       func(int) float64 { return float64(int32(r.Uint32())) },
		"ascending":  func(i int) float64 { return float64(i) },
		"descending": func(i int) float64 { return float64(-i) },
		"equal":      func(int) float64 { return 3 },
		"few":        func(int) float64 { return float64(r.IntN(3)) },
	}
	for name, f := range inputs {
		for _, d := range []core.DType{core.Int32, core.Int64, core.Float32, core.Float64} {
			t.Run(name+" "+d.String(), func(t *testing.T) {
				in := kerneltest.New(t, d, []int{1, n})
				for i := range n {
					kerneltest.Set(in, f(i), i)
				}
				for _, ref := range references(n) {
					values, indices := launch(t, ref, d, in, 1, 1)
					check(t, ref, in, 1, values, indices)
				}
			})
		}
	}
}

// Wide keys that differ in all bytes, and a line long enough for all threads. The bits must not depend on the number of
// threads.
func TestSortingOfLongLines(t *testing.T) {
	const n = 200_000
	r := rand.New(rand.NewPCG(7, 8))
	for _, d := range []core.DType{core.Float32, core.Float64, core.BFloat16} {
		in := kerneltest.New(t, d, []int{n})
		for i := range n {
			kerneltest.Set(in, math.Ldexp(r.NormFloat64(), r.IntN(100)-50), i)
		}
		for _, ref := range references(n)[:2] {
			one, oneIndex := launch(t, ref, d, in, 0, 1)
			check(t, ref, in, 0, one, oneIndex)
			many, manyIndex := launch(t, ref, d, in, 0, 4)
			kerneltest.RequireSameBits(t, one, many)
			kerneltest.RequireSameBits(t, oneIndex, manyIndex)
		}
	}
}

func TestManyLinesOnManyThreads(t *testing.T) {
	in := kerneltest.New(t, core.Float32, []int{500, 100})
	kerneltest.Random(rand.New(rand.NewPCG(9, 10)), in, true)
	for dim := range 2 {
		for _, ref := range references(in.Shape[dim]) {
			values, indices := launch(t, ref, core.Float32, in, dim, 5)
			check(t, ref, in, dim, values, indices)
		}
	}
}

func TestArgsortGivesTheIndicesOfSort(t *testing.T) {
	in := kerneltest.From(t, core.Float32, []int{5}, []float64{3, math.NaN(), -1, 3, 0})
	out := kerneltest.New(t, core.Int64, []int{5})
	kerneltest.Call{Kernel: "argsort", Ints: []int{0, 1}, In: []*rawtensor.Tensor{in}, Out: []*rawtensor.Tensor{out}}.MustRun(t)
	require.Equal(t, []float64{1, 0, 3, 4, 2}, kerneltest.Values(out))
}
