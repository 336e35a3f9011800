package data

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"

	"github.com/plait-ml/plait/core"
)

// iterableSource reads each worker's sequence in a goroutine of its own, and takes a batch from each in turn. Without
// workers there is one such goroutine, which goes on when the reader asks.
type iterableSource[B any] struct {
	streams []chan result[B] // of the workers that have more; closed at a sequence's end
	asked   chan struct{}    // nil where workers run ahead
	turn    int
	batch   int
	running sync.WaitGroup
}

func newIterableSource[T, B any](ctx context.Context, dataset Iterable[T], collate func([]T) (B, error), epoch uint64, o Options) *iterableSource[B] {
	s := &iterableSource[B]{}
	count, ahead := o.Workers, o.prefetch()
	if count == 0 {
		count, ahead = 1, 0
		s.asked = make(chan struct{})
	}
	mode := core.CurrentMode()
	for id := range count {
		stream := make(chan result[B], ahead)
		s.streams = append(s.streams, stream)
		worker := Worker{ID: id, Count: count, Epoch: epoch, Random: newRandom(o.Seed, purposeWorker, epoch, uint64(id))}
		s.running.Add(1)
		go func() {
			defer s.running.Done()
			inherit(mode, func() { s.produce(ctx, stream, streamBatches(ctx, dataset, collate, worker, o)) })
		}()
	}
	return s
}

// produce sends a sequence of batches.
func (s *iterableSource[B]) produce(ctx context.Context, stream chan<- result[B], batches iter.Seq2[B, error]) {
	defer close(stream)
	send := func(r result[B]) bool {
		select {
		case stream <- r:
			return s.wait(ctx)
		case <-ctx.Done():
			r.discard()
			return false
		}
	}
	regular := false
	defer func() {
		if !regular {
			send(result[B]{err: errGoexit})
		}
	}()
	if s.wait(ctx) {
		for batch, err := range batches {
			if !send(result[B]{batch, err}) {
				break
			}
		}
	}
	regular = true
}

// wait waits until the reader asks for a batch, or returns at once where workers run ahead; false at the end of ctx.
func (s *iterableSource[B]) wait(ctx context.Context) bool {
	if s.asked == nil {
		return true
	}
	select {
	case <-s.asked:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *iterableSource[B]) next(ctx context.Context) (B, error) {
	r, ok := s.take(ctx)
	if !ok {
		return r.batch, io.EOF
	}
	if r.err != nil {
		r.err = &BatchError{Batch: s.batch, Index: -1, Err: r.err}
	}
	s.batch++
	return r.batch, r.err
}

// take returns what comes next, or false after the end of the last sequence or of ctx.
func (s *iterableSource[B]) take(ctx context.Context) (r result[B], ok bool) {
	for len(s.streams) > 0 {
		if s.asked != nil {
			select {
			case s.asked <- struct{}{}:
			case <-ctx.Done():
				return r, false
			}
		}
		s.turn %= len(s.streams)
		select {
		case r, ok = <-s.streams[s.turn]:
			if ok {
				s.turn++
				return r, true
			}
			s.streams = append(s.streams[:s.turn], s.streams[s.turn+1:]...)
		case <-ctx.Done():
			return r, false
		}
	}
	return r, false
}

func (s *iterableSource[B]) stop() {
	s.running.Wait()
	for _, stream := range s.streams {
		for r := range stream {
			r.discard()
		}
	}
}

// streamBatches cuts a sequence into batches. A sample that failed takes its batch with it; a panic ends the sequence.
func streamBatches[T, B any](ctx context.Context, dataset Iterable[T], collate func([]T) (B, error), worker Worker, o Options) iter.Seq2[B, error] {
	size := o.batchSize()
	return func(yield func(B, error) bool) {
		var samples []T
		stopped := false
		// emit hands on a batch, or the error in its place.
		emit := func(failed error) bool {
			batch, err := collateAll(collate, samples, failed)
			samples = nil
			stopped = !yield(batch, err)
			return !stopped
		}
		var failed error
		count := 0
		err := visitSamples(ctx, dataset, worker, func(sample T, err error) bool {
			samples = append(samples, sample)
			failed = errors.Join(failed, err)
			if count++; count < size {
				return true
			}
			err, failed, count = failed, nil, 0
			return emit(err)
		})
		if stopped {
			return
		}
		if err != nil {
			emit(errors.Join(failed, err))
		} else if count > 0 && !o.DropLast {
			emit(failed)
		}
	}
}

func collateAll[T, B any](collate func([]T) (B, error), samples []T, failed error) (batch B, err error) {
	if failed != nil {
		return batch, failed
	}
	defer recovered(&err)
	return collate(samples)
}

// visitSamples ranges over a worker's sequence and returns the panic that ended it, if one did.
func visitSamples[T any](ctx context.Context, dataset Iterable[T], worker Worker, use func(T, error) bool) (err error) {
	defer recovered(&err)
	for sample, err := range dataset.Samples(ctx, worker) {
		if !use(sample, err) {
			break
		}
	}
	return nil
}
