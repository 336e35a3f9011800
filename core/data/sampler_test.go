package data

import (
	"math"
	"slices"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

func pass(s Sampler, epoch uint64) []int { return slices.Collect(s.Indices(epoch)) }

func TestSequentialAndShuffled(t *testing.T) {
	require.Equal(t, []int{0, 1, 2}, pass(Sequential(3), 9))
	require.Empty(t, pass(Sequential(0), 0))
	require.Empty(t, pass(Shuffled(0, 1), 0))

	s := Shuffled(50, 1)
	first := pass(s, 0)
	require.Equal(t, first, pass(s, 0), "a pass is a function of its number")
	require.NotEqual(t, first, pass(s, 1))
	require.NotEqual(t, first, pass(Shuffled(50, 2), 0))
	require.ElementsMatch(t, numbers(50), first)
}

// Every order of three must come about equally often, which a naive shuffle misses.
func TestPermIsUniform(t *testing.T) {
	const draws = 60000
	r := newRandom(3)
	counts := map[[3]int]int{}
	for range draws {
		counts[[3]int(r.Perm(3))]++
	}
	require.Len(t, counts, 6)
	for order, n := range counts {
		// Five deviations of a binomial with p = 1/6.
		require.InDelta(t, draws/6, n, 5*math.Sqrt(draws*5./36), "%v", order)
	}
}

func TestPhiloxKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		seed, counter uint64
		want          [4]uint32
	}{
		{0, 0, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
	} {
		w0, w1, w2, w3 := philox(c.seed, c.counter)
		require.Equal(t, c.want, [4]uint32{w0, w1, w2, w3})
	}
	r := Random{}
	require.Equal(t, uint64(0xe169c58d6627e8d5), r.Uint64())
	require.Equal(t, uint64(0x9b00dbd8bc57ac4c), r.Uint64())
	w0, w1, _, _ := philox(0, 1)
	require.Equal(t, uint64(w1)<<32|uint64(w0), r.Uint64())
}

// A draw is the same numbers as a kernel's of the same seed.
func TestRandomAgreesWithTensors(t *testing.T) {
	const seed = 0x1234567890abcdef
	x, err := core.Values[float64](op.RandWith([]int{9}, op.RandomOptions{DType: new(core.Float32), Generator: core.NewGenerator(seed)}))
	require.NoError(t, err)
	r := Random{seed: seed}
	var words []uint32
	for range 5 {
		u := r.Uint64()
		words = append(words, uint32(u), uint32(u>>32))
	}
	for i, v := range x {
		require.Equal(t, float64(words[i]>>8)*0x1p-24, v)
	}
}

func TestRandomNumbers(t *testing.T) {
	r := newRandom(1, 2, 3)
	const draws = 100000
	var sum, normal, square float64
	seen := map[int]int{}
	for range draws {
		x := r.Float64()
		require.True(t, x >= 0 && x < 1)
		sum += x
		z := r.NormFloat64()
		normal += z
		square += z * z
		seen[r.IntN(7)]++
	}
	require.InDelta(t, 0.5, sum/draws, 0.005)
	require.InDelta(t, 0, normal/draws, 0.02)
	require.InDelta(t, 1, square/draws, 0.03)
	require.Len(t, seen, 7)
	for _, n := range seen {
		require.InDelta(t, draws/7, n, 600)
	}
	require.Zero(t, r.IntN(0))
	require.NotEqual(t, newRandom(1, 2, 3).Uint64(), newRandom(1, 3, 2).Uint64())
	require.NotEqual(t, newRandom(1).Uint64(), newRandom(1, 0).Uint64())
}

func TestRandomSampler(t *testing.T) {
	s, err := NewRandomSampler(4, 10, false, 1)
	require.NoError(t, err)
	require.Equal(t, 10, s.Len())
	got := pass(s, 0)
	require.Len(t, got, 10)
	require.ElementsMatch(t, numbers(4), got[:4])
	require.ElementsMatch(t, numbers(4), got[4:8])

	s, err = NewRandomSampler(3, 3000, true, 1)
	require.NoError(t, err)
	counts := make([]int, 3)
	for _, i := range pass(s, 0) {
		counts[i]++
	}
	for _, n := range counts {
		require.InDelta(t, 1000, n, 150)
	}

	s, err = NewRandomSampler(0, 0, false, 1)
	require.NoError(t, err)
	require.Empty(t, pass(s, 0))
	_, err = NewRandomSampler(0, 1, true, 1)
	require.ErrorContains(t, err, "cannot draw 1 samples from 0")
	_, err = NewRandomSampler(3, -1, true, 1)
	require.Error(t, err)
}

func TestSubsetShuffled(t *testing.T) {
	s := SubsetShuffled([]int{3, 5, 8, 9, 11, 20}, 4)
	require.ElementsMatch(t, []int{3, 5, 8, 9, 11, 20}, pass(s, 0))
	require.NotEqual(t, pass(s, 0), pass(s, 1))
}

func TestWeightedSampler(t *testing.T) {
	weights := []float64{0, 1, 0, 3, 0}
	s, err := NewWeightedSampler(weights, 40000, true, 1)
	require.NoError(t, err)
	counts := make([]int, len(weights))
	for _, i := range pass(s, 0) {
		counts[i]++
	}
	require.Zero(t, counts[0]+counts[2]+counts[4])
	require.InDelta(t, 10000, counts[1], 450)

	// Without replacement the first draw follows the weights, and the second what is left of them.
	const passes = 20000
	s, err = NewWeightedSampler([]float64{1, 2, 0, 5}, 2, false, 1)
	require.NoError(t, err)
	first, both := make([]int, 4), map[[2]int]int{}
	for epoch := range uint64(passes) {
		got := pass(s, epoch)
		require.Len(t, got, 2)
		require.NotEqual(t, got[0], got[1])
		first[got[0]]++
		both[[2]int(got)]++
	}
	require.Zero(t, first[2])
	require.InDelta(t, passes/8, first[0], 250)
	require.InDelta(t, passes*5/8, first[3], 350)
	require.InDelta(t, passes*5/8*2/3, both[[2]int{3, 1}], 350)

	for _, bad := range []struct {
		weights     []float64
		samples     int
		replacement bool
	}{
		{[]float64{1, -1}, 1, true}, {[]float64{math.NaN()}, 1, true}, {[]float64{math.Inf(1)}, 1, true}, {[]float64{0, 0}, 1, true},
		{nil, 1, true}, {[]float64{1, 0}, 2, false}, {[]float64{1}, -1, true}, {[]float64{math.MaxFloat64, math.MaxFloat64}, 1, true},
	} {
		_, err := NewWeightedSampler(bad.weights, bad.samples, bad.replacement, 0)
		require.Error(t, err, "%v", bad)
	}
}

func TestDistributedSampler(t *testing.T) {
	for _, c := range []struct {
		n, ranks int
		drop     bool
		want     [][]int
	}{
		{10, 4, false, [][]int{{0, 4, 8}, {1, 5, 9}, {2, 6, 0}, {3, 7, 1}}},
		{10, 4, true, [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
		{8, 4, false, [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
		{8, 4, true, [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
		{2, 5, false, [][]int{{0}, {1}, {0}, {1}, {0}}}, // more padding than samples
		{2, 5, true, [][]int{nil, nil, nil, nil, nil}},
		{0, 2, false, [][]int{nil, nil}},
		{3, 1, false, [][]int{{0, 1, 2}}},
	} {
		for rank, want := range c.want {
			s, err := NewDistributedSampler(DistributedSampler{N: c.n, Ranks: c.ranks, Rank: rank, DropLast: c.drop})
			require.NoError(t, err)
			require.Equal(t, len(want), s.Len())
			require.Equal(t, want, pass(s, 0), "%+v", s)
		}
	}

	// Shuffled, the ranks still share one order.
	var all []int
	for rank := range 4 {
		s, err := NewDistributedSampler(DistributedSampler{N: 20, Ranks: 4, Rank: rank, Shuffle: true, Seed: 3})
		require.NoError(t, err)
		require.Equal(t, pass(s, 7), pass(s, 7))
		require.NotEqual(t, pass(s, 7), pass(s, 8))
		all = append(all, pass(s, 7)...)
	}
	require.False(t, slices.IsSorted(all))
	require.ElementsMatch(t, numbers(20), all)

	for _, bad := range []DistributedSampler{{N: 1}, {N: 1, Ranks: 2, Rank: 2}, {N: 1, Ranks: 2, Rank: -1}, {N: -1, Ranks: 1}} {
		_, err := NewDistributedSampler(bad)
		require.Error(t, err)
	}
}

func TestBatches(t *testing.T) {
	for _, c := range []struct {
		n, size int
		drop    bool
		want    [][]int
	}{
		{5, 2, false, [][]int{{0, 1}, {2, 3}, {4}}},
		{5, 2, true, [][]int{{0, 1}, {2, 3}}},
		{4, 2, false, [][]int{{0, 1}, {2, 3}}},
		{1, 3, true, nil},
		{0, 3, false, nil},
	} {
		b, err := Batches(Sequential(c.n), c.size, c.drop)
		require.NoError(t, err)
		require.Equal(t, len(c.want), b.Len())
		require.Equal(t, c.want, slices.Collect(b.Batches(0)))
	}
	_, err := Batches(Sequential(1), 0, false)
	require.ErrorContains(t, err, "got 0")
}

// A reader that stops early must stop the sampler too.
func TestSamplersStopEarly(t *testing.T) {
	random, err := NewRandomSampler(3, 10, true, 0)
	require.NoError(t, err)
	weighted, err := NewWeightedSampler([]float64{1, 1}, 2, false, 0)
	require.NoError(t, err)
	replaced, err := NewWeightedSampler([]float64{1, 1}, 2, true, 0)
	require.NoError(t, err)
	for _, s := range []Sampler{Sequential(3), Shuffled(3, 0), random, SubsetShuffled([]int{1, 2}, 0), weighted, replaced,
		DistributedSampler{N: 4, Ranks: 2, Shuffle: true}} {
		for range s.Indices(0) {
			break
		}
		b, err := Batches(s, 2, false)
		require.NoError(t, err)
		for range b.Batches(0) {
			break
		}
	}
}
