package data

import (
	"fmt"
	"iter"
)

// Sampler is the order in which a pass visits a dataset. Samplers of this package may be used by several goroutines.
type Sampler interface {
	// Len returns how many indices a pass has.
	Len() int
	// Indices returns those of pass number epoch: the same each time it is asked.
	Indices(epoch uint64) iter.Seq[int]
}

// BatchSampler is the order of a pass, cut into batches.
type BatchSampler interface {
	// Len returns how many batches a pass has.
	Len() int
	// Batches returns those of pass number epoch. Each slice is the caller's own.
	Batches(epoch uint64) iter.Seq[[]int]
}

// Sequential returns the Sampler of 0, 1, ..., n-1.
func Sequential(n int) Sampler { return sequential(max(n, 0)) }

type sequential int

func (s sequential) Len() int { return int(s) }

func (s sequential) Indices(uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range int(s) {
			if !yield(i) {
				return
			}
		}
	}
}

// Shuffled returns the Sampler of all of 0, ..., n-1 in random order.
func Shuffled(n int, seed uint64) Sampler {
	return random{n: max(n, 0), samples: max(n, 0), seed: seed}
}

// NewRandomSampler returns a Sampler of this many random indices from 0 to n-1. With replacement each is drawn on its own;
// without, an index comes again only after all others have come as often.
//
// Errors: a negative count; samples from no indices.
func NewRandomSampler(n, samples int, replacement bool, seed uint64) (Sampler, error) {
	if n < 0 || samples < 0 || n == 0 && samples > 0 {
		return nil, fmt.Errorf("data: random sampler: cannot draw %d samples from %d", samples, n)
	}
	return random{n, samples, replacement, seed}, nil
}

type random struct {
	n, samples  int
	replacement bool
	seed        uint64
}

func (s random) Len() int { return s.samples }

func (s random) Indices(epoch uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		r := newRandom(s.seed, purposeOrder, epoch)
		if s.replacement {
			for range s.samples {
				if !yield(r.IntN(s.n)) {
					return
				}
			}
			return
		}
		for left := s.samples; left > 0; {
			for _, i := range r.Perm(s.n) {
				if left == 0 || !yield(i) {
					return
				}
				left--
			}
		}
	}
}

// SubsetShuffled returns the Sampler of these indices in random order. They are kept, not copied.
func SubsetShuffled(indices []int, seed uint64) Sampler { return subsetRandom{indices, seed} }

type subsetRandom struct {
	indices []int
	seed    uint64
}

func (s subsetRandom) Len() int { return len(s.indices) }

func (s subsetRandom) Indices(epoch uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, i := range newRandom(s.seed, purposeOrder, epoch).Perm(len(s.indices)) {
			if !yield(s.indices[i]) {
				return
			}
		}
	}
}

// Batches returns the BatchSampler that cuts a sampler's order into batches of size; what is left at the end is a smaller
// batch, or is dropped.
//
// Errors: a size below 1.
func Batches(sampler Sampler, size int, dropLast bool) (BatchSampler, error) {
	if size < 1 {
		return nil, fmt.Errorf("data: batches: size too small, got %d, want at least 1", size)
	}
	if sampler == nil {
		return nil, nilError("batches")
	}
	return batches{sampler, size, dropLast}, nil
}

type batches struct {
	sampler  Sampler
	size     int
	dropLast bool
}

func (b batches) Len() int {
	if b.dropLast {
		return b.sampler.Len() / b.size
	}
	return (b.sampler.Len() + b.size - 1) / b.size
}

func (b batches) Batches(epoch uint64) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		var batch []int
		for i := range b.sampler.Indices(epoch) {
			if batch == nil {
				batch = make([]int, 0, b.size)
			}
			batch = append(batch, i)
			if len(batch) == b.size {
				if !yield(batch) {
					return
				}
				batch = nil
			}
		}
		if len(batch) > 0 && !b.dropLast {
			yield(batch)
		}
	}
}
