// Package data turns collections of samples into batches for training.
//
// A Dataset answers for one sample at a time, a Sampler says in which order a pass visits them, and a Loader runs passes:
// its workers prepare batches ahead of the reader, who gets them in the sampler's order whatever the workers' timing.
// Everything random is a function of a seed and the number of the pass.
package data

import (
	"context"
	"fmt"
	"iter"
)

//go:generate go run github.com/plait-ml/plait/internal/gen/exported

// Dataset is a collection with numbered samples. A Loader with workers calls At from several goroutines at once.
type Dataset[T any] interface {
	// Len returns the number of samples.
	Len() int
	// At returns sample i, 0 <= i < Len().
	At(i int) (T, error)
}

// RandomDataset is a Dataset that draws random numbers, for instance to augment: a Loader calls AtRandom in place of At.
// What a sample draws depends on the seed, the pass and the sample's place in it, and not on the workers.
type RandomDataset[T any] interface {
	Dataset[T]
	AtRandom(i int, r *Random) (T, error)
}

// BatchDataset is a collection that answers for a whole batch faster than sample by sample.
type BatchDataset[B any] interface {
	// Len returns the number of samples.
	Len() int
	// Batch returns the samples of these indices, in their order, as one batch.
	Batch(indices []int) (B, error)
}

// Iterable is a collection that is read from one end to the other, such as a log or a socket. Each worker of a Loader
// reads its own sequence, and so an Iterable leaves to the others what is theirs, by worker.ID and worker.Count.
type Iterable[T any] interface {
	// Samples returns the sequence. One that waits for something gives up when ctx is done.
	Samples(ctx context.Context, worker Worker) iter.Seq2[T, error]
}

// Worker says who reads an Iterable.
type Worker struct {
	ID, Count int
	// Epoch is the number of the pass.
	Epoch uint64
	// Random draws numbers of this worker's and this pass's own.
	Random *Random
}

// Slice is a Dataset of the elements of a slice.
type Slice[T any] []T

// Len returns the number of elements.
func (s Slice[T]) Len() int { return len(s) }

// At returns element i.
func (s Slice[T]) At(i int) (T, error) {
	if i < 0 || i >= len(s) {
		var zero T
		return zero, rangeError("slice", i, len(s))
	}
	return s[i], nil
}

// Map returns a Dataset whose samples are f of those of dataset.
func Map[T, U any](dataset Dataset[T], f func(T) (U, error)) Dataset[U] {
	if f == nil {
		return mapped[T, U]{dataset: dataset}
	}
	return mapped[T, U]{dataset, func(sample T, _ *Random) (U, error) { return f(sample) }}
}

// MapRandom is Map for an f that draws random numbers. Outside a Loader they depend on the sample's index alone.
func MapRandom[T, U any](dataset Dataset[T], f func(T, *Random) (U, error)) RandomDataset[U] {
	return mapped[T, U]{dataset, f}
}

type mapped[T, U any] struct {
	dataset Dataset[T]
	f       func(T, *Random) (U, error)
}

func (m mapped[T, U]) Len() int {
	if m.dataset == nil {
		return 0
	}
	return m.dataset.Len()
}

func (m mapped[T, U]) At(i int) (U, error) {
	return m.AtRandom(i, newRandom(0, purposeSample, uint64(i)))
}

func (m mapped[T, U]) AtRandom(i int, r *Random) (U, error) {
	if m.dataset == nil || m.f == nil {
		var zero U
		return zero, nilError("map")
	}
	sample, err := at(m.dataset, i, r)
	if err != nil {
		var zero U
		return zero, err
	}
	return m.f(sample, r)
}

// at asks a dataset for a sample, with random numbers where it takes them and there are some.
func at[T any](dataset Dataset[T], i int, r *Random) (T, error) {
	if random, ok := dataset.(RandomDataset[T]); ok && r != nil {
		return random.AtRandom(i, r)
	}
	return dataset.At(i)
}

func nilError(what string) error { return fmt.Errorf("data: %s: got nil for what it works with", what) }

func rangeError(what string, i, n int) error {
	return fmt.Errorf("data: %s: index out of range, got %d, want 0 to %d", what, i, n-1)
}
