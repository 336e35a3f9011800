package data

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"

	"github.com/plait-ml/plait/core"
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

// discard releases a batch that nobody will read. Beside an error there is none, but a zero value.
func (r result[B]) discard() {
	if r.err == nil {
		Release(r.batch)
	}
}

// mapSource makes the batches of a sampler, in its order. A goroutine asks the sampler, because its code must neither
// wait for a batch to be made nor run on the reader's thread, which may be locked. Each job has its own channel for the
// result, and the reader empties these in the order of the jobs, whichever worker was free for it.
type mapSource[B any] struct {
	fetch   func(context.Context, job) (B, error)
	mode    core.Mode
	order   chan task[B] // as the sampler gave them; closed at its end
	jobs    chan task[B] // for the workers; nil where the reader makes the batches
	current task[B]      // what the reader waits for
	running sync.WaitGroup
}

type task[B any] struct {
	job
	err  error          // of the sampler, in place of a batch
	done chan result[B] // nil where there are no workers
}

func newMapSource[B any](ctx context.Context, sampler BatchSampler, epoch uint64, o Options, fetch func(context.Context, job) (B, error)) *mapSource[B] {
	ahead := o.Workers * o.prefetch()
	s := &mapSource[B]{fetch: fetch, mode: core.CurrentMode(), order: make(chan task[B], ahead)}
	if o.Workers > 0 {
		s.jobs = make(chan task[B], ahead+1) // what is in order, and what the reader waits for
	}
	s.running.Add(1 + o.Workers)
	go s.feed(ctx, sampler, epoch)
	for range o.Workers {
		go s.work(ctx)
	}
	return s
}

// feed hands out the sampler's batches as fast as the reader takes their results.
func (s *mapSource[B]) feed(ctx context.Context, sampler BatchSampler, epoch uint64) {
	defer s.running.Done()
	defer close(s.order)
	next := job{epoch: epoch}
	send := func(t task[B]) bool {
		if s.jobs != nil {
			t.done = make(chan result[B], 1)
		}
		select {
		case s.order <- t:
		case <-ctx.Done():
			return false
		}
		if s.jobs != nil {
			s.jobs <- t // has room
		}
		return true
	}
	err := errGoexit
	defer func() {
		if err != nil {
			send(task[B]{job: next, err: err})
		}
	}()
	err = visit(sampler.Batches, epoch, func(indices []int) bool {
		next.indices = indices
		if !send(task[B]{job: next}) {
			return false
		}
		next.batch++
		next.first += len(indices)
		return true
	})
}

// visit ranges over a sequence of the caller's and returns the panic that ended it, if one did.
func visit(batches func(uint64) iter.Seq[[]int], epoch uint64, use func([]int) bool) (err error) {
	defer recovered(&err)
	for indices := range batches(epoch) {
		if !use(indices) {
			break
		}
	}
	return nil
}

// work runs jobs until the pass ends. User code that ends the goroutine (runtime.Goexit) costs its batch alone.
func (s *mapSource[B]) work(ctx context.Context) {
	regular := false
	defer func() {
		if !regular {
			go s.work(ctx)
			return
		}
		s.running.Done()
	}()
	for {
		select {
		case t := <-s.jobs:
			inherit(s.mode, func() { s.run(ctx, t) })
		case <-ctx.Done():
			regular = true
			return
		}
	}
}

func (s *mapSource[B]) run(ctx context.Context, t task[B]) {
	r := result[B]{err: &BatchError{Batch: t.batch, Index: -1, Err: errGoexit}}
	defer func() { t.done <- r }()
	r.batch, r.err = s.make(ctx, t)
}

var errGoexit = errors.New("the goroutine ended inside the caller's code (runtime.Goexit)")

// make fetches a batch and says which one failed.
func (s *mapSource[B]) make(ctx context.Context, t task[B]) (batch B, err error) {
	if err = ctx.Err(); err != nil {
		return batch, err
	}
	if err = t.err; err == nil {
		batch, err = s.fetch(ctx, t.job)
	}
	var known *BatchError
	if err != nil && !errors.As(err, &known) {
		err = &BatchError{Batch: t.batch, Index: -1, Err: err}
	}
	return batch, err
}

func (s *mapSource[B]) next(ctx context.Context) (batch B, err error) {
	var ok bool
	select {
	case s.current, ok = <-s.order:
	case <-ctx.Done():
		return batch, ctx.Err()
	}
	switch {
	case !ok:
		return batch, io.EOF
	case s.current.done == nil:
		return s.make(ctx, s.current)
	}
	select {
	case r := <-s.current.done:
		return r.batch, r.err
	case <-ctx.Done():
		return batch, ctx.Err()
	}
}

func (s *mapSource[B]) stop() {
	s.running.Wait()
	discard(s.current)
	for t := range s.order {
		discard(t)
	}
}

// discard releases a batch that nobody will read.
func discard[B any](t task[B]) {
	select {
	case r := <-t.done: // a nil channel where there are no workers
		r.discard()
	default: // it was read, or nobody had begun it
	}
}

// inherit runs fn with the context and the recording of gradients of another mode, but outside of its scope.
func inherit(mode core.Mode, fn func()) {
	current := core.CurrentMode()
	if mode.Context() == current.Context() && mode.GradEnabled() == current.GradEnabled() {
		fn()
		return
	}
	core.WithMode(func(m core.Mode) core.Mode {
		return m.WithContext(mode.Context()).WithGrad(mode.GradEnabled())
	}, fn)
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
