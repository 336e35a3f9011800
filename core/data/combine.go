package data

import (
	"fmt"
	"math"
	"sort"
)

// Subset returns a Dataset of the samples of these indices, in their order. The indices are kept, not copied.
//
// Errors: an index outside the dataset.
func Subset[T any](dataset Dataset[T], indices []int) (Dataset[T], error) {
	if dataset == nil {
		return nil, nilError("subset")
	}
	for _, i := range indices {
		if i < 0 || i >= dataset.Len() {
			return nil, rangeError("subset", i, dataset.Len())
		}
	}
	return subset[T]{dataset, indices}, nil
}

type subset[T any] struct {
	dataset Dataset[T]
	indices []int
}

func (s subset[T]) Len() int { return len(s.indices) }

func (s subset[T]) At(i int) (T, error) { return s.AtRandom(i, nil) }

func (s subset[T]) AtRandom(i int, r *Random) (T, error) {
	if i < 0 || i >= len(s.indices) {
		var zero T
		return zero, rangeError("subset", i, len(s.indices))
	}
	return at(s.dataset, s.indices[i], r)
}

// Concat returns a Dataset of the samples of one dataset after the other.
//
// Errors: no dataset.
func Concat[T any](datasets ...Dataset[T]) (Dataset[T], error) {
	if len(datasets) == 0 {
		return nil, fmt.Errorf("data: concat: no datasets, want at least one")
	}
	c := concat[T]{datasets: datasets, ends: make([]int, len(datasets))}
	end := 0
	for i, d := range datasets {
		if d == nil {
			return nil, nilError("concat")
		}
		end += d.Len()
		c.ends[i] = end
	}
	return c, nil
}

type concat[T any] struct {
	datasets []Dataset[T]
	ends     []int // of each dataset's indices
}

func (c concat[T]) Len() int { return c.ends[len(c.ends)-1] }

func (c concat[T]) At(i int) (T, error) { return c.AtRandom(i, nil) }

func (c concat[T]) AtRandom(i int, r *Random) (T, error) {
	if i < 0 || i >= c.Len() {
		var zero T
		return zero, rangeError("concat", i, c.Len())
	}
	part := sort.SearchInts(c.ends, i+1)
	if part > 0 {
		i -= c.ends[part-1]
	}
	return at(c.datasets[part], i, r)
}

// RandomSplit deals the samples out at random to datasets of these lengths, which add up to the dataset's.
//
// Errors: a negative length, a wrong sum.
func RandomSplit[T any](dataset Dataset[T], lengths []int, seed uint64) ([]Dataset[T], error) {
	if dataset == nil {
		return nil, nilError("random split")
	}
	sum := 0
	for _, n := range lengths {
		if n < 0 {
			return nil, fmt.Errorf("data: random split: negative length in %v", lengths)
		}
		sum += n
	}
	if sum != dataset.Len() {
		return nil, fmt.Errorf("data: random split: lengths add up to a wrong sum, got %d, want %d", sum, dataset.Len())
	}
	order := newRandom(seed, purposeSplit).Perm(sum)
	parts := make([]Dataset[T], len(lengths))
	for i, n := range lengths {
		parts[i] = subset[T]{dataset, order[:n:n]}
		order = order[n:]
	}
	return parts, nil
}

// SplitLengths turns fractions that add up to 1 into lengths that add up to n: each is rounded down, and what is left goes
// to the first ones, one each.
//
// Errors: a fraction outside 0 to 1, a sum that is not 1.
func SplitLengths(n int, fractions []float64) ([]int, error) {
	sum, left := 0.0, n
	lengths := make([]int, len(fractions))
	for i, f := range fractions {
		if !(f >= 0 && f <= 1) {
			return nil, fmt.Errorf("data: split lengths: fraction out of range, got %v, want 0 to 1", f)
		}
		sum += f
		lengths[i] = int(math.Floor(float64(n) * f))
		left -= lengths[i]
	}
	if math.Abs(sum-1) > 1e-6 || n < 0 {
		return nil, fmt.Errorf("data: split lengths: fractions of %d add up to a wrong sum, got %v, want 1", n, sum)
	}
	for i := 0; left > 0; i, left = i+1, left-1 {
		lengths[i%len(lengths)]++
	}
	return lengths, nil
}
