package data

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
)

// job is a batch to be made.
type job struct {
	epoch   uint64
	batch   int
	first   int // the place in the pass of its first sample
	indices []int
}

type result[B any] struct {
	batch B
	err   error
}

// mapSource makes the batches of a sampler, in its order: by itself, or by workers that take jobs as they get free. Each
// job has its own channel for the result, and the reader empties these in the order of the jobs.
type mapSource[B any] struct {
	fetch    func(context.Context, job) (B, error)
	pull     func() ([]int, bool)
	stopPull func()
	epoch    uint64
	batch    int // of the next job
	first    int
	ended    bool // the sampler has no more

	ahead   int // jobs that may be under way
	waiting []chan result[B]
	jobs    chan task[B]
	workers sync.WaitGroup
}

type task[B any] struct {
	job
	done chan result[B]
}

func newMapSource[B any](ctx context.Context, sampler BatchSampler, epoch uint64, o Options, fetch func(context.Context, job) (B, error)) *mapSource[B] {
	s := &mapSource[B]{fetch: fetch, epoch: epoch}
	s.pull, s.stopPull = iter.Pull(sampler.Batches(epoch))
	if o.Workers == 0 {
		return s
	}
	s.ahead = o.Workers * o.prefetch()
	s.jobs = make(chan task[B], s.ahead)
	s.workers.Add(o.Workers)
	for range o.Workers {
		go s.work(ctx)
	}
	s.fill()
	return s
}

// work runs jobs until the pass ends. User code that ends the goroutine (runtime.Goexit) costs its batch alone.
func (s *mapSource[B]) work(ctx context.Context) {
	regular := false
	defer func() {
		if !regular {
			go s.work(ctx)
			return
		}
		s.workers.Done()
	}()
	for {
		select {
		case t := <-s.jobs:
			s.run(ctx, t)
		case <-ctx.Done():
			regular = true
			return
		}
	}
}

func (s *mapSource[B]) run(ctx context.Context, t task[B]) {
	r := result[B]{err: &BatchError{Batch: t.batch, Index: -1, Err: errGoexit}}
	defer func() { t.done <- r }()
	r.batch, r.err = s.make(ctx, t.job)
}

var errGoexit = errors.New("the worker's goroutine ended inside the dataset")

// make fetches a batch and says which one failed.
func (s *mapSource[B]) make(ctx context.Context, j job) (B, error) {
	if err := ctx.Err(); err != nil {
		var zero B
		return zero, err
	}
	batch, err := s.fetch(ctx, j)
	var known *BatchError
	if err != nil && !errors.As(err, &known) {
		err = &BatchError{Batch: j.batch, Index: -1, Err: err}
	}
	return batch, err
}

// nextJob asks the sampler, whose code is the caller's and may panic.
func (s *mapSource[B]) nextJob() (j job, err error) {
	defer recovered(&err)
	j = job{epoch: s.epoch, batch: s.batch, first: s.first}
	var ok bool
	if j.indices, ok = s.pull(); !ok {
		return j, io.EOF
	}
	s.batch++
	s.first += len(j.indices)
	return j, nil
}

// fill hands jobs to the workers until enough are under way. What ends the sampler waits its turn behind them.
func (s *mapSource[B]) fill() {
	for !s.ended && len(s.waiting) < s.ahead {
		done := make(chan result[B], 1)
		j, err := s.nextJob()
		if err != nil {
			s.ended = true
			if err != io.EOF {
				done <- result[B]{err: &BatchError{Batch: j.batch, Index: -1, Err: err}}
				s.waiting = append(s.waiting, done)
			}
			return
		}
		s.waiting = append(s.waiting, done)
		s.jobs <- task[B]{j, done} // has room: it holds as many as may be under way
	}
}

func (s *mapSource[B]) next(ctx context.Context) (B, error) {
	var zero B
	if s.ahead == 0 {
		return s.serial(ctx)
	}
	s.fill()
	if len(s.waiting) == 0 {
		return zero, io.EOF
	}
	select {
	case r := <-s.waiting[0]:
		s.waiting[0] = nil
		s.waiting = s.waiting[1:]
		s.fill()
		return r.batch, r.err
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}

// serial makes a batch in the reader's goroutine.
func (s *mapSource[B]) serial(ctx context.Context) (B, error) {
	var zero B
	if s.ended {
		return zero, io.EOF
	}
	j, err := s.nextJob()
	if err == nil {
		return s.make(ctx, j)
	}
	s.ended = true
	if err != io.EOF {
		err = &BatchError{Batch: j.batch, Index: -1, Err: err}
	}
	return zero, err
}

func (s *mapSource[B]) stop() {
	s.workers.Wait()
	stopPull(s.stopPull)
}

// stopPull ends a sequence of the caller's; nobody is left to hear of a panic.
func stopPull(stop func()) {
	var ignored error
	defer recovered(&ignored)
	stop()
}

// fetch gets the samples of a batch, and collates them.
func fetch[T, B any](ctx context.Context, dataset Dataset[T], collate func([]T) (B, error), j job, seed uint64) (batch B, err error) {
	samples := make([]T, len(j.indices))
	for k, i := range j.indices {
		if err := ctx.Err(); err != nil {
			return batch, err
		}
		r := newRandom(seed, purposeSample, j.epoch, uint64(j.first+k))
		if samples[k], err = sample(dataset, i, r); err != nil {
			return batch, &BatchError{Batch: j.batch, Index: i, Err: err}
		}
	}
	defer recovered(&err)
	return collate(samples)
}

func sample[T any](dataset Dataset[T], i int, r *Random) (sample T, err error) {
	defer recovered(&err)
	if n := dataset.Len(); i < 0 || i >= n {
		return sample, rangeError("loader", i, n)
	}
	return at(dataset, i, r)
}
