package data

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"sort"
)

// NewWeightedSampler returns a Sampler of this many indices into weights, each drawn with a chance proportional to its
// weight; without replacement, to its weight among those that are left.
//
// Errors: a weight that is negative or not finite; more samples than there are positive weights to draw them from.
func NewWeightedSampler(weights []float64, samples int, replacement bool, seed uint64) (Sampler, error) {
	s := weighted{samples: samples, replacement: replacement, seed: seed, ends: make([]float64, len(weights))}
	sum, positive := 0.0, 0
	for i, w := range weights {
		if !(w >= 0) || math.IsInf(w, 1) {
			return nil, fmt.Errorf("data: weighted sampler: weight %d is not a finite number from 0 up, got %v", i, w)
		}
		if w > 0 {
			positive++
		}
		sum += w
		s.ends[i] = sum
	}
	if math.IsInf(sum, 1) {
		return nil, fmt.Errorf("data: weighted sampler: the weights' sum is not finite")
	}
	if samples < 0 || samples > 0 && positive == 0 || !replacement && samples > positive {
		return nil, fmt.Errorf("data: weighted sampler: cannot draw %d samples from %d positive weights (replacement: %v)",
			samples, positive, replacement)
	}
	s.weights = slices.Clone(weights)
	return s, nil
}

type weighted struct {
	weights     []float64
	ends        []float64 // running sums of the weights
	samples     int
	replacement bool
	seed        uint64
}

func (s weighted) Len() int { return s.samples }

func (s weighted) Indices(epoch uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		if s.samples == 0 {
			return
		}
		r := newRandom(s.seed, purposeOrder, epoch)
		if !s.replacement {
			for _, i := range s.withoutReplacement(r) {
				if !yield(i) {
					return
				}
			}
			return
		}
		sum := s.ends[len(s.ends)-1]
		for range s.samples {
			x := r.Float64() * sum
			// The first end past x belongs to a positive weight, as an index of weight 0 ends where the one before it does.
			// Rounding can put x at the sum itself: then the last positive weight is meant.
			i := sort.Search(len(s.ends), func(i int) bool { return s.ends[i] > x })
			if i == len(s.ends) {
				i = sort.Search(len(s.ends), func(i int) bool { return s.ends[i] >= sum })
			}
			if !yield(i) {
				return
			}
		}
	}
}

// withoutReplacement gives each index an exponentially distributed time with its weight as rate: the order of the times is
// that of drawing one after the other (Efraimidis and Spirakis, "Weighted Random Sampling with a Reservoir", 2006).
func (s weighted) withoutReplacement(r *Random) []int {
	type arrival struct {
		index int
		time  float64
	}
	arrivals := make([]arrival, 0, len(s.weights))
	for i, w := range s.weights {
		wait := -math.Log(1 - r.Float64())
		if w > 0 {
			arrivals = append(arrivals, arrival{i, wait / w})
		}
	}
	slices.SortFunc(arrivals, func(a, b arrival) int {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.index, b.index))
	})
	order := make([]int, s.samples)
	for i := range order {
		order[i] = arrivals[i].index
	}
	return order
}
