package op_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

var nan = math.NaN()

// requireElements compares the elements of a tensor; a NaN equals a NaN.
func requireElements(t *testing.T, want []float64, got *core.Tensor) {
	t.Helper()
	v := values(t, got)
	require.Len(t, v, len(want))
	for i := range want {
		require.True(t, v[i] == want[i] || v[i] != v[i] && want[i] != want[i], "got %v, want %v", v, want)
	}
}

func TestSortKeepsEqualElementsInOrderAndPutsNaNLast(t *testing.T) {
	x := core.FromSlice([]float32{2, float32(nan), 1, 2, float32(math.Inf(1)), 1})
	v, i := op.Sort(x, 0, op.SortOptions{})
	requireElements(t, []float64{1, 1, 2, 2, math.Inf(1), nan}, v)
	requireElements(t, []float64{2, 5, 0, 3, 4, 1}, i)
	v, i = op.Sort(x, -1, op.SortOptions{Descending: true})
	requireElements(t, []float64{nan, math.Inf(1), 2, 2, 1, 1}, v)
	requireElements(t, []float64{1, 4, 0, 3, 2, 5}, i)
	requireElements(t, []float64{1, 4, 0, 3, 2, 5}, op.ArgSort(x, 0, op.SortOptions{Descending: true}))
}

func TestSelections(t *testing.T) {
	x := core.FromSlice([]int64{4, 1, 4, 3, 1, 1, 9, 8}, 2, 4)
	v, i := op.TopK(x, 2, 1, true, true)
	requireElements(t, []float64{4, 4, 9, 8}, v)
	requireElements(t, []float64{0, 2, 2, 3}, i)
	v, i = op.KthValue(x, 2, 1, true)
	require.Equal(t, []int{2, 1}, v.Shape())
	requireElements(t, []float64{3, 1}, v)
	requireElements(t, []float64{3, 1}, i)
	v, i = op.Median(x, 1, false)
	requireElements(t, []float64{3, 1}, v)
	requireElements(t, []float64{3, 1}, i)
	v, i = op.Mode(x, 1, false)
	requireElements(t, []float64{4, 1}, v)
	requireElements(t, []float64{2, 1}, i)
	y := core.FromSlice([]float64{3, nan, 1, nan, 2})
	v, i = op.Median(y, 0, false)
	requireElements(t, []float64{nan}, v)
	requireElements(t, []float64{1}, i)
	v, i = op.NanMedian(y, 0, false)
	requireElements(t, []float64{2}, v)
	requireElements(t, []float64{4}, i)
	v, i = op.CumMax(core.FromSlice([]int32{1, 3, 2, 3}), 0)
	requireElements(t, []float64{1, 3, 3, 3}, v)
	requireElements(t, []float64{0, 1, 1, 3}, i)
}

// everyResult asks for all results of unique.
var everyResult = op.UniqueOptions{Inverse: true, Counts: true}

func TestUnique(t *testing.T) {
	x := core.FromSlice([]float32{2, 1, 2, 0, 1, 2}, 2, 3)
	v, inverse, counts := op.Unique(x, nil, everyResult)
	requireElements(t, []float64{0, 1, 2}, v)
	require.Equal(t, []int{2, 3}, inverse.Shape())
	requireElements(t, []float64{2, 1, 2, 0, 1, 2}, inverse)
	requireElements(t, []float64{1, 2, 3}, counts)

	v, inverse, counts = op.Unique(op.Transpose(x, 0, 1), nil, everyResult)
	requireElements(t, []float64{0, 1, 2}, v)
	requireElements(t, []float64{2, 0, 1, 1, 2, 2}, inverse)
	requireElements(t, []float64{1, 2, 3}, counts)

	v, inverse, counts = op.UniqueConsecutive(core.FromSlice([]int64{1, 1, 5, 1, 1, 1}), nil, everyResult)
	requireElements(t, []float64{1, 5, 1}, v)
	requireElements(t, []float64{0, 0, 1, 2, 2, 2}, inverse)
	requireElements(t, []float64{2, 1, 3}, counts)

	v, _, counts = op.Unique(core.FromSlice([]float64{nan, 1, nan}), nil, everyResult)
	requireElements(t, []float64{1, nan, nan}, v)
	requireElements(t, []float64{1, 1, 1}, counts)

	dim := 0
	rows := core.FromSlice([]int32{1, 2, 0, 5, 1, 2, 1, 0}, 4, 2)
	v, inverse, counts = op.Unique(rows, &dim, everyResult)
	require.Equal(t, []int{3, 2}, v.Shape())
	requireElements(t, []float64{0, 5, 1, 0, 1, 2}, v)
	requireElements(t, []float64{2, 0, 2, 1}, inverse)
	requireElements(t, []float64{1, 1, 2}, counts)
	dim = 1
	v, inverse, counts = op.UniqueConsecutive(core.FromSlice([]bool{true, true, false, false, false, true}, 2, 3), &dim, everyResult)
	require.Equal(t, []int{2, 2}, v.Shape())
	requireElements(t, []float64{1, 0, 0, 1}, v)
	requireElements(t, []float64{0, 0, 1}, inverse)
	requireElements(t, []float64{2, 1}, counts)

	for _, o := range []op.UniqueOptions{{}, {Inverse: true}, {Counts: true}} {
		for _, each := range []func(*core.Tensor, *int, op.UniqueOptions) (a, b, c *core.Tensor){op.Unique, op.UniqueConsecutive} {
			for x, dim := range map[*core.Tensor]*int{core.FromSlice([]int32{1, 1, 4}): nil, core.FromSlice([]float64{1, 1, 4}): nil, core.FromSlice([]int64{1, 1, 4}, 3, 1): new(int)} {
				v, inverse, counts := each(x, dim, o)
				requireElements(t, []float64{1, 4}, v)
				requireElements(t, []float64{0, 0, 1}[:3*contract.Flag(o.Inverse)], inverse)
				requireElements(t, []float64{2, 1}[:2*contract.Flag(o.Counts)], counts)
			}
		}
	}

	v, inverse, counts = op.Unique(core.FromSlice([]float32{}, 0), nil, everyResult)
	for _, r := range []*core.Tensor{v, inverse, counts} {
		require.Equal(t, []int{0}, r.Shape())
	}
}

// Runs of elements that end anywhere in the stretches of elements that are compared at once, with -0, which equals 0, and NaN.
func TestUniqueConsecutiveRuns(t *testing.T) {
	for _, d := range core.RealDTypes() {
		for _, run := range []int{1, 3, 50, 200} {
			for _, n := range []int{1, 64, 65, 129, 1000} {
				x := make([]float64, n)
				for i := range x {
					x[i] = float64(i / run % 2)
					if d.IsFloat() && i%2 == 1 && x[i] == 0 {
						x[i] = math.Copysign(0, -1)
					}
					if d.IsFloat() && i%77 == 70 {
						x[i] = nan
					}
				}
				var want, inverse, counts []float64
				for i, v := range x {
					if i == 0 || v != x[i-1] {
						want, counts = append(want, v), append(counts, 0)
					}
					counts[len(counts)-1]++
					inverse = append(inverse, float64(len(want)-1))
				}
				in := op.To(core.FromSlice(x), d)
				for _, o := range []op.UniqueOptions{{}, {Counts: true}, {Inverse: true}, everyResult} {
					v, i, c := op.UniqueConsecutive(in, nil, o)
					requireElements(t, want, v)
					requireElements(t, inverse[:int64(n)*contract.Flag(o.Inverse)], i)
					requireElements(t, counts[:int64(len(counts))*contract.Flag(o.Counts)], c)
				}
			}
		}
	}
}

// Many elements go through the sort that all threads share.
func TestUniqueOfManyElements(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]int64, 300_000)
	times := map[int64]int{}
	for i := range x {
		x[i] = r.Int64N(1000) << 40
		times[x[i]]++
	}
	v, inverse, counts := op.Unique(core.FromSlice(x), nil, everyResult)
	got, err := core.Values[int64](v)
	require.NoError(t, err)
	require.True(t, slices.IsSorted(got))
	require.Len(t, got, len(times))
	c, err := core.Values[int](counts)
	require.NoError(t, err)
	for i, k := range got {
		require.Equal(t, times[k], c[i])
	}
	at, err := core.Values[int](inverse)
	require.NoError(t, err)
	for i := range x {
		if got[at[i]] != x[i] {
			require.Equal(t, x[i], got[at[i]])
		}
	}
}

func TestNonZero(t *testing.T) {
	x := core.FromSlice([]float32{0, 1, 0, float32(nan), float32(math.Copysign(0, -1)), 3}, 2, 3)
	n := op.NonZero(x)
	require.Equal(t, []int{3, 2}, n.Shape())
	requireElements(t, []float64{0, 1, 1, 0, 1, 2}, n)
	requireElements(t, []float64{0, 1, 1, 0, 2, 1}, op.NonZero(op.Transpose(x, 0, 1)))
	require.Equal(t, []int{1, 0}, op.NonZero(core.Scalar(2.0)).Shape())
	require.Equal(t, []int{0, 1}, op.NonZero(core.FromSlice([]bool{})).Shape())

	const size = 100_000
	many := make([]uint8, size)
	var want []float64
	for i := 0; i < size; i += 7 {
		many[i] = 1
		want = append(want, float64(i/100), float64(i%100))
	}
	require.Equal(t, want, values(t, op.NonZero(core.FromSlice(many, size/100, 100))))
}

func TestSearchSorted(t *testing.T) {
	s := core.FromSlice([]float32{-1, 0, 0, 2, float32(nan)})
	x := core.FromSlice([]float32{-2, -1, 0, 1, 2, 3, float32(nan)})
	requireElements(t, []float64{0, 0, 1, 3, 3, 4, 4}, op.SearchSorted(s, x, op.SearchOptions{}))
	right := op.SearchSorted(s, x, op.SearchOptions{Right: true, Int32: true})
	require.Equal(t, core.Int32, right.DType())
	requireElements(t, []float64{0, 1, 3, 3, 4, 4, 5}, right)
	requireElements(t, []float64{0, 0, 1, 3, 3, 4, 4}, op.Bucketize(x, s, op.SearchOptions{}))
	requireElements(t, []float64{3}, op.SearchSorted(s, core.Num(1.5), op.SearchOptions{}))

	rows := core.FromSlice([]int64{1, 3, 5, 2, 4, 6}, 2, 3)
	requireElements(t, []float64{1, 3, 0, 2}, op.SearchSorted(rows, core.FromSlice([]int64{3, 9, 1, 5}, 2, 2), op.SearchOptions{}))
	shuffled := core.FromSlice([]int64{5, 1, 3})
	sorter := op.ArgSort(shuffled, 0, op.SortOptions{})
	requireElements(t, []float64{1, 2}, op.SearchSorted(shuffled, core.FromSlice([]int64{2, 4}), op.SearchOptions{Sorter: sorter}))
}

func TestHistograms(t *testing.T) {
	x := core.FromSlice([]int32{1, 3, 1, 0})
	requireElements(t, []float64{1, 2, 0, 1}, op.BinCount(x, nil, 0))
	requireElements(t, []float64{1, 2, 0, 1, 0, 0}, op.BinCount(x, nil, 6))
	w := op.BinCount(x, core.FromSlice([]float32{0.5, 1, 2, 4}), 0)
	require.Equal(t, core.Float32, w.DType())
	requireElements(t, []float64{4, 2.5, 0, 1}, w)
	require.Equal(t, core.Float64, op.BinCount(x, x, 0).DType())
	requireElements(t, []float64{0, 0}, op.BinCount(core.FromSlice([]int64{}), nil, 2))

	y := core.FromSlice([]float32{0, 1, 2, 2.5, 4, 5, -1, float32(nan)})
	requireElements(t, []float64{1, 1, 2, 1}, op.HistC(y, 4, 0, 4))
	requireElements(t, []float64{2, 2, 2}, op.HistC(op.Narrow(y, 0, 0, 6), 3, 0, 0))
	requireElements(t, []float64{0, 3}, op.HistC(core.FromSlice([]float32{2, 2, 2}), 2, 0, 0))

	// Enough elements for several parts.
	many := make([]int64, 1<<18)
	for i := range many {
		many[i] = int64(i % 5)
	}
	c := values(t, op.BinCount(core.FromSlice(many), nil, 0))
	require.Equal(t, []float64{52429, 52429, 52429, 52429, 52428}, c)
}

func TestBinsOfFewAndManyIntegers(t *testing.T) {
	for _, n := range []int{1, 7, 4096, 4097, 200_000} {
		v, w := make([]int64, n+2), make([]float64, n+2)
		v[0], v[n+1] = -1, 1000 // beside the elements counted
		counts, sums := make([]float64, 61), make([]float64, 61)
		for i := 1; i <= n; i++ {
			v[i], w[i] = int64(i*i%61), float64(i%8)
			counts[v[i]]++
			sums[v[i]] += w[i]
		}
		v[n] = 60
		counts[n*n%61]--
		counts[60]++
		sums[n*n%61] -= w[n]
		sums[60] += w[n]
		x, weights := op.Narrow(core.FromSlice(v), 0, 1, n), op.Narrow(core.FromSlice(w), 0, 1, n)
		requireElements(t, counts, op.BinCount(x, nil, 0))
		requireElements(t, sums, op.BinCount(x, weights, 0))
		require.ErrorContains(t, op.BinCount(op.Narrow(core.FromSlice(v), 0, 0, n), nil, 0).Err(), "got the negative element -1")
	}
}

func TestSortingErrors(t *testing.T) {
	x := core.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
	first := func(t, _ *core.Tensor) *core.Tensor { return t }
	first3 := func(t, _, _ *core.Tensor) *core.Tensor { return t }
	three := 3
	for want, got := range map[string]*core.Tensor{
		"sort: dimension 2 out of range, want [-2, 1]":                       first(op.Sort(x, 2, op.SortOptions{})),
		"topk: got k 3, want 0 to 2 for dimension 1 of shape [2 2]":          first(op.TopK(x, 3, 1, true, true)),
		"kthvalue: got k 0, want 1 to 2 for dimension 0 of shape [2 2]":      first(op.KthValue(x, 0, 0, false)),
		"unique: dimension 3 out of range, want [-2, 1]":                     first3(op.Unique(x, &three, everyResult)),
		"bincount: got float32[2 2], want a vector of integers":              op.BinCount(x, nil, 0),
		"bincount: got the negative element -1":                              op.BinCount(core.FromSlice([]int64{-1}), nil, 0),
		"histc: got 0 bins, want at least 1":                                 op.HistC(x, 0, 0, 0),
		"histc: the input must be floating point, got int64":                 op.HistC(core.FromSlice([]int64{-1}), 1, 0, 0),
		"bucketize: boundaries must be a vector, got shape [2 2]":            op.Bucketize(x, x, op.SearchOptions{}),
		"searchsorted: the sequence must have a dimension, got a 0-d tensor": op.SearchSorted(core.Scalar(1.0), x, op.SearchOptions{}),
		"histc: the range from NaN to NaN is not finite":                     op.HistC(core.FromSlice([]float32{float32(nan)}), 1, 0, 0),
	} {
		require.EqualError(t, got.Err(), want)
	}
	number := core.Num(2)
	for _, got := range []*core.Tensor{op.Sum(number, nil, false), op.CumSum(number, 0), first(op.Max(number, 0, false)), op.NonZero(number),
		op.SearchSorted(number, x, op.SearchOptions{}), op.BinCount(number, nil, 0), op.Bucketize(x, number, op.SearchOptions{}), op.Any(number, nil, false),
		first(op.Sort(nil, 0, op.SortOptions{})), first(op.TopK(nil, 1, 0, true, true)), op.NonZero(nil),
		first3(op.Unique(nil, nil, everyResult)), op.BinCount(nil, nil, 0), op.HistC(nil, 1, 0, 0), op.SearchSorted(nil, nil, op.SearchOptions{}),
		op.Bucketize(nil, nil, op.SearchOptions{}), op.CumSum(nil, 0), op.LogCumSumExp(nil, 0), op.Mean(nil, nil, false), op.Prod(nil, nil, false),
		op.Var(nil, nil, 1, false), op.VectorNorm(nil, 2, nil, op.ReduceOptions{}), first(op.Max(nil, 0, false)), op.ArgMax(nil, nil, false)} {
		require.Error(t, got.Err())
	}
	bad := op.SearchSorted(core.FromSlice([]int64{1, 2}), core.FromSlice([]int64{1}), op.SearchOptions{Sorter: core.FromSlice([]int64{0, 2})})
	require.ErrorContains(t, bad.Wait(), "index at position 1 of sorter is out of range, want [0, 2)")
}
