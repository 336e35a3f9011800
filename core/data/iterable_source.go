package data

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
)

// iterableSource reads each worker's sequence in a goroutine of its own, and takes a batch from each in turn.
type iterableSource[B any] struct {
	streams []chan result[B] // of the workers that have more; closed at a sequence's end
	turn    int
	batch   int
	running sync.WaitGroup

	pull     func() (B, error, bool) // in place of streams where the reader does the work
	stopPull func()
}

func newIterableSource[T, B any](ctx context.Context, dataset Iterable[T], collate func([]T) (B, error), epoch uint64, o Options) *iterableSource[B] {
	batches := func(id, count int) iter.Seq2[B, error] {
		worker := Worker{ID: id, Count: count, Epoch: epoch, Random: newRandom(o.Seed, purposeWorker, epoch, uint64(id))}
		return streamBatches(ctx, dataset, collate, worker, o)
	}
	s := &iterableSource[B]{}
	if o.Workers == 0 {
		s.pull, s.stopPull = iter.Pull2(batches(0, 1))
		return s
	}
	for id := range o.Workers {
		stream := make(chan result[B], o.prefetch())
		s.streams = append(s.streams, stream)
		s.running.Add(1)
		go func() {
			defer s.running.Done()
			defer close(stream)
			send := func(r result[B]) bool {
				select {
				case stream <- r:
					return true
				case <-ctx.Done():
					return false
				}
			}
			regular := false
			defer func() {
				if !regular {
					send(result[B]{err: errGoexit})
				}
			}()
			for batch, err := range batches(id, o.Workers) {
				if !send(result[B]{batch, err}) {
					break
				}
			}
			regular = true
		}()
	}
	return s
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
	if s.pull != nil {
		r.batch, r.err, ok = s.pull()
		return r, ok
	}
	for len(s.streams) > 0 {
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
	if s.stopPull != nil {
		stopPull(s.stopPull)
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
		err := visit(ctx, dataset, worker, func(sample T, err error) bool {
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

// visit ranges over a worker's sequence and returns the panic that ended it, if one did.
func visit[T any](ctx context.Context, dataset Iterable[T], worker Worker, use func(T, error) bool) (err error) {
	defer recovered(&err)
	for sample, err := range dataset.Samples(ctx, worker) {
		if !use(sample, err) {
			break
		}
	}
	return nil
}
