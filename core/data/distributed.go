package data

import (
	"fmt"
	"iter"
)

// DistributedSampler deals the indices of a dataset out to ranks: in each pass rank r of n visits every n-th index from
// the r-th on, so that all ranks visit equally many. Where n does not divide them, indices from the start of the order come
// again at its end, or with DropLast the end is dropped. All ranks use the same seed.
type DistributedSampler struct {
	// N is the number of the dataset's samples.
	N int
	// Ranks is the number of ranks, Rank this one, from 0.
	Ranks, Rank int
	// Shuffle visits the samples in an order drawn from Seed and the pass; otherwise in their own.
	Shuffle bool
	Seed    uint64
	// DropLast drops what does not divide; otherwise ranks are filled up.
	DropLast bool
}

// NewDistributedSampler checks the fields and returns the Sampler.
//
// Errors: a rank that is none of the ranks; a negative N.
func NewDistributedSampler(s DistributedSampler) (Sampler, error) {
	if s.N < 0 {
		return nil, fmt.Errorf("data: distributed sampler: negative number of samples, got %d", s.N)
	}
	if s.Ranks < 1 || s.Rank < 0 || s.Rank >= s.Ranks {
		return nil, fmt.Errorf("data: distributed sampler: rank out of range, got rank %d of %d", s.Rank, s.Ranks)
	}
	return s, nil
}

// Len returns the indices of one rank.
func (s DistributedSampler) Len() int {
	if s.Ranks < 1 {
		return 0
	}
	if s.DropLast {
		return s.N / s.Ranks
	}
	return (s.N + s.Ranks - 1) / s.Ranks
}

// Indices returns this rank's part of the order.
func (s DistributedSampler) Indices(epoch uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		var order []int
		if s.Shuffle {
			order = newRandom(s.Seed, purposeOrder, epoch).Perm(s.N)
		}
		for k := range s.Len() {
			// Past its end the order begins again, as often as it takes: there may be more ranks than samples.
			i := (k*s.Ranks + s.Rank) % s.N
			if order != nil {
				i = order[i]
			}
			if !yield(i) {
				return
			}
		}
	}
}
