package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"sync"
)

// Options says how a Loader makes its batches. The zero value visits the samples in order, one a batch, in the reader's
// own goroutine.
type Options struct {
	// BatchSize is the number of samples in a batch; 0 means 1.
	BatchSize int
	// DropLast leaves out the last batch if it is smaller.
	DropLast bool
	// Shuffle visits the samples in an order drawn anew for each pass.
	Shuffle bool
	// Sampler gives the order itself, in place of Shuffle.
	Sampler Sampler
	// BatchSampler gives the batches themselves, in place of BatchSize, DropLast, Shuffle and Sampler.
	BatchSampler BatchSampler
	// Seed is what all random numbers derive from, together with the number of the pass.
	Seed uint64
	// Workers is the number of goroutines that prepare batches ahead of the reader.
	Workers int
	// Prefetch is how many batches each worker may be ahead; 0 means 2.
	Prefetch int
}

// Loader makes batches, pass by pass. It may be used by several goroutines, each with a pass of its own.
type Loader[B any] struct {
	batches int // of a pass; -1 if unknown
	open    func(ctx context.Context, epoch uint64) source[B]

	mu    sync.Mutex
	epoch uint64 // of the next pass
}

// source is where a pass gets its batches from.
type source[B any] interface {
	// next returns the next batch; io.EOF after the last one. Errors other than these of ctx leave the pass in use.
	next(ctx context.Context) (B, error)
	// stop waits until the workers are gone, which the end of the pass's context tells them to.
	stop()
}

// NewLoader returns a Loader that makes batches of a dataset's samples with collate.
//
// Errors: options that contradict each other or are out of range.
func NewLoader[T, B any](dataset Dataset[T], collate func([]T) (B, error), options Options) (*Loader[B], error) {
	if dataset == nil || collate == nil {
		return nil, nilError("loader")
	}
	sampler, err := options.batchSampler(dataset.Len())
	if err != nil {
		return nil, err
	}
	return mapLoader(sampler, options, func(ctx context.Context, j job) (B, error) {
		return fetch(ctx, dataset, collate, j, options.Seed)
	}), nil
}

// NewBatchLoader returns a Loader whose batches the dataset makes itself.
//
// Errors: as NewLoader.
func NewBatchLoader[B any](dataset BatchDataset[B], options Options) (*Loader[B], error) {
	if dataset == nil {
		return nil, nilError("loader")
	}
	sampler, err := options.batchSampler(dataset.Len())
	if err != nil {
		return nil, err
	}
	n := dataset.Len()
	return mapLoader(sampler, options, func(_ context.Context, j job) (batch B, err error) {
		defer recovered(&err)
		for _, i := range j.indices {
			if i < 0 || i >= n {
				return batch, &BatchError{Batch: j.batch, Index: i, Err: rangeError("loader", i, n)}
			}
		}
		return dataset.Batch(j.indices)
	}), nil
}

func mapLoader[B any](sampler BatchSampler, options Options, fetch func(context.Context, job) (B, error)) *Loader[B] {
	return &Loader[B]{batches: sampler.Len(), open: func(ctx context.Context, epoch uint64) source[B] {
		return newMapSource(ctx, sampler, epoch, options, fetch)
	}}
}

// NewIterableLoader returns a Loader that makes batches of what an Iterable yields. Each worker fills batches from its own
// sequence, and the reader gets one from each worker in turn. An order cannot be asked for.
//
// Errors: as NewLoader.
func NewIterableLoader[T, B any](dataset Iterable[T], collate func([]T) (B, error), options Options) (*Loader[B], error) {
	if dataset == nil || collate == nil {
		return nil, nilError("loader")
	}
	if options.Shuffle || options.Sampler != nil || options.BatchSampler != nil {
		return nil, errors.New("data: loader: an iterable dataset has its own order, want neither Shuffle nor a sampler")
	}
	if err := options.check(); err != nil {
		return nil, err
	}
	return &Loader[B]{batches: -1, open: func(ctx context.Context, epoch uint64) source[B] {
		return newIterableSource(ctx, dataset, collate, epoch, options)
	}}, nil
}

func (o Options) check() error {
	if o.BatchSize < 0 || o.Workers < 0 || o.Prefetch < 0 {
		return fmt.Errorf("data: loader: negative option, got BatchSize %d, Workers %d, Prefetch %d", o.BatchSize, o.Workers, o.Prefetch)
	}
	return nil
}

func (o Options) batchSize() int { return max(o.BatchSize, 1) }

func (o Options) prefetch() int {
	if o.Prefetch == 0 {
		return 2
	}
	return o.Prefetch
}

func (o Options) batchSampler(n int) (BatchSampler, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.BatchSampler != nil {
		if o.BatchSize != 0 || o.DropLast || o.Shuffle || o.Sampler != nil {
			return nil, errors.New("data: loader: BatchSampler excludes BatchSize, DropLast, Shuffle and Sampler")
		}
		return o.BatchSampler, nil
	}
	sampler := o.Sampler
	switch {
	case sampler != nil && o.Shuffle:
		return nil, errors.New("data: loader: Sampler excludes Shuffle")
	case sampler == nil && o.Shuffle:
		sampler = Shuffled(n, o.Seed)
	case sampler == nil:
		sampler = Sequential(n)
	}
	return Batches(sampler, o.batchSize(), o.DropLast)
}

// Len returns the number of batches of a pass, or -1 if the dataset is iterable.
func (l *Loader[B]) Len() int { return l.batches }

// SetEpoch sets the number of the next pass, which the order derives from. The passes after it count on from there, so
// that only a program that resumes needs to call it.
func (l *Loader[B]) SetEpoch(epoch uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch = epoch
}

// Epoch returns the batches of the next pass, to be ranged over: each time, of another one. A failed batch comes as an
// error at its place, and the loop may go on; leaving it ends the workers.
//
// Errors: *BatchError; the cause of ctx, after which nothing comes.
func (l *Loader[B]) Epoch(ctx context.Context) iter.Seq2[B, error] {
	return func(yield func(B, error) bool) {
		pass := l.Start(ctx)
		defer pass.Close()
		for {
			batch, err := pass.Next()
			if err == io.EOF || !yield(batch, err) || err != nil && pass.ended() {
				return
			}
		}
	}
}

// Start begins the next pass for a reader that calls Next itself. The workers begin at once.
func (l *Loader[B]) Start(ctx context.Context) *Pass[B] {
	if ctx == nil {
		ctx = context.Background()
	}
	l.mu.Lock()
	epoch := l.epoch
	l.epoch++
	l.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	p := &Pass[B]{ctx: ctx, cancel: cancel, source: l.open(ctx, epoch)}
	// The workers know the source and not the pass, so that one that nobody closed can be collected.
	p.cleanup = runtime.AddCleanup(p, func(s source[B]) {
		cancel(errClosed)
		go s.stop()
	}, p.source)
	return p
}

var errClosed = errors.New("data: the pass is closed")

// Pass is one pass over a dataset.
type Pass[B any] struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	cleanup runtime.Cleanup

	mu     sync.Mutex
	source source[B]
	done   error // what every further Next returns
}

// Next returns the next batch.
//
// Errors: io.EOF after the last batch; *BatchError for one that failed, after which the next ones follow; the cause of the
// context; an error after Close.
func (p *Pass[B]) Next() (B, error) {
	var zero B
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done != nil {
		return zero, p.done
	}
	if p.ctx.Err() == nil {
		batch, err := p.source.next(p.ctx)
		if err == nil || err != io.EOF && p.ctx.Err() == nil {
			return batch, err
		}
		p.done = err
	}
	if p.ctx.Err() != nil {
		p.done = context.Cause(p.ctx)
	}
	p.finish()
	return zero, p.done
}

// Close ends the pass and waits until its workers are gone: each finishes the sample that it is at.
func (p *Pass[B]) Close() {
	p.cancel(errClosed) // before the lock: it ends a Next that waits
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		p.done = errClosed
		p.finish()
	}
}

// ended says whether all further calls of Next return the same error.
func (p *Pass[B]) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done != nil
}

func (p *Pass[B]) finish() {
	p.cancel(errClosed)
	p.source.stop()
	p.cleanup.Stop()
}
