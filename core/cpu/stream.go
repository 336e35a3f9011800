package cpu

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

const (
	// queueSize bounds how far the host may run ahead.
	queueSize = 1024
	// crowdedSize leaves room for the calls of one operation by a host that must not wait.
	crowdedSize = queueSize - 256
	// inlineWork is the work, in elements, up to which an idle stream runs a call on the caller's thread: waking a
	// parked goroutine costs more than such a call.
	inlineWork = 16 << 10
	// spin is how long workers and waiters stay awake before they park.
	spin = 20 * time.Microsecond
)

// A stream is an in-order queue of calls, run by one goroutine. Calls are numbered from 1; tail is the last one
// launched and done the last one finished.
type stream struct {
	device *Device
	rank   int
	cache  cache
	counts core.Counters

	calls core.Calls

	mu      sync.Mutex     // held in Launch
	slots   []*core.Call   // that are queued, by number; the rest are for use again
	pending []core.Event   // of other streams, that the next call must wait for
	inline  kernel.Context // of calls on the caller's thread
	worker  bool           // the goroutine runs
	closed  bool

	tail atomic.Uint64
	done atomic.Uint64

	parked  atomic.Bool
	wake    chan struct{}
	crowded atomic.Bool // the queue was more than crowdedSize full, and not yet half empty since

	waiters atomic.Int32
	doneMu  sync.Mutex
	doneCv  sync.Cond

	failure atomic.Pointer[failure] // the first unread error

	queue kernel.Context // of the worker's calls
}

type failure struct{ err error }

func newStream(d *Device, rank int) *stream {
	s := &stream{device: d, rank: rank, slots: make([]*core.Call, queueSize), wake: make(chan struct{}, 1)}
	s.doneCv.L = &s.doneMu
	s.cache.device = d
	s.counts = core.NewCounters(d.ordinal, rank)
	s.inline.Memory, s.queue.Memory = workspace{s}, workspace{s}
	return s
}

// Device implements [core.Stream].
func (s *stream) Device() core.Device { return s.device }

// Rank implements [core.Stream].
func (s *stream) Rank() int { return s.rank }

// Counters implements [core.Stream].
func (s *stream) Counters() core.Counters { return s.counts }

// Alloc implements [core.Stream].
func (s *stream) Alloc(bytes int) (core.Memory, error) {
	if core.AllocFault(s, bytes) {
		return core.Memory{}, s.device.outOfMemory("allocate", bytes)
	}
	class := sizeClass(bytes)
	b, ok := s.cache.take(class)
	if !ok {
		return s.device.allocate(s.rank, class, bytes)
	}
	for _, e := range b.after {
		if !e.Done() {
			s.Wait(e)
		}
	}
	return b.memory, nil
}

// Free implements [core.Stream].
func (s *stream) Free(m core.Memory, after ...core.Event) {
	s.cache.put(block{memory: m, freed: s.tail.Load(), after: after})
}

// Begin implements [core.Stream].
func (s *stream) Begin(k core.KernelID, op string) *core.Call { return s.calls.Get(s, k, op) }

// Abandon implements [core.Stream].
func (s *stream) Abandon(c *core.Call) {
	c.Clear()
	s.calls.Put(c)
}

// Launch implements [core.Stream].
func (s *stream) Launch(c *core.Call) {
	if err := c.Err(); err != nil {
		c.Fail(err)
		s.fail(err)
		s.Abandon(c)
		return
	}
	s.mu.Lock()
	t := s.tail.Load() + 1
	for t-s.done.Load() > queueSize {
		s.mu.Unlock()
		s.wait(t - 1 - queueSize/2) // a host that came back for each free slot would take its core from the workers
		s.mu.Lock()
		t = s.tail.Load() + 1
	}
	c.Place()
	if len(s.pending) > 0 {
		c.AddWaits(s.pending...)
		s.pending = s.pending[:0]
	}
	if s.closed {
		for _, e := range c.Waits() {
			e.Wait()
		}
	}
	if (c.Work <= inlineWork || s.closed) && s.done.Load() == t-1 && !pending(c.Waits()) {
		s.run(&s.inline, c)
		if s.closed {
			s.inline.FreeScratch()
		}
		s.done.Store(t) // before tail, so that the worker does not take the call for queued
		s.tail.Store(t)
		s.notify()
		s.mu.Unlock()
		s.calls.Put(c)
		return
	}
	slot := &s.slots[t%queueSize]
	s.calls.Put(*slot)
	*slot = c
	if !s.worker {
		s.worker = true
		go s.work()
	}
	wait := machine.sync || c.Shared()
	s.tail.Store(t)
	if t-s.done.Load() > crowdedSize && s.crowded.CompareAndSwap(false, true) {
		core.Crowd(1)
	}
	s.mu.Unlock()
	if s.parked.Load() && s.parked.CompareAndSwap(true, false) {
		s.wake <- struct{}{}
	}
	if wait {
		core.Waiting(func() { s.wait(t) })
	}
}

// work runs calls until the stream is closed.
func (s *stream) work() {
	ctx := &s.queue
	defer ctx.FreeScratch()
	for {
		if !s.queued() && !s.await() {
			return
		}
		next := s.done.Load() + 1
		c := s.slots[next%queueSize]
		for _, e := range c.Waits() {
			e.Wait()
		}
		p := s.device.pool.Load()
		ctx.Pool = p.Ptr()
		s.run(ctx, c)
		s.done.Store(next)
		if s.crowded.Load() && s.tail.Load()-next <= queueSize/2 && s.crowded.CompareAndSwap(true, false) {
			core.Crowd(-1)
		}
		s.notify()
	}
}

// queued reports whether a call waits for the worker. It reads tail first: a call that runs on its caller's thread moves
// done before tail, and must not be taken for a queued one.
func (s *stream) queued() bool {
	t := s.tail.Load()
	return t > s.done.Load()
}

// await blocks until a call is queued; it returns false when the stream is closed instead.
func (s *stream) await() bool {
	start := time.Now()
	for i := 1; !s.queued(); i++ {
		if i%64 != 0 || time.Since(start) < spin {
			continue
		}
		s.parked.Store(true)
		if s.queued() && s.parked.CompareAndSwap(true, false) {
			return true
		}
		if _, open := <-s.wake; !open {
			return false
		}
		start = time.Now()
	}
	return true
}

// run runs one call: unless an input failed, its kernel. A failure goes to its outputs and is the stream's error.
func (s *stream) run(ctx *kernel.Context, c *core.Call) {
	profile := core.ActiveProfile()
	var start time.Duration
	if profile != nil {
		start = profile.Now()
	}
	if err := c.CheckInputs(); err != nil {
		c.Skip(err)
	} else {
		err = execute(ctx, c)
		ctx.Done()
		if err != nil {
			c.Fail(err)
			s.fail(err)
		}
	}
	if profile != nil {
		profile.Record(s, c, start)
	}
	c.Clear()
}

func execute(ctx *kernel.Context, c *core.Call) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = core.Errorf(core.StateError, c.Op, "internal error: %v\n%s", r, debug.Stack())
		}
	}()
	c.Touch()
	switch {
	case c.Fn != nil:
		return c.Fn()
	case c.Mark != nil:
		c.Mark()
		return nil
	}
	f := kernel.Lookup(c.Kernel)
	if f == nil {
		return core.Errorf(core.NotImplemented, c.Op, "the CPU has no kernel %q", c.Kernel)
	}
	if err = f(ctx, c); err != nil {
		if kind, _ := core.KindOf(err); kind == core.MemoryError {
			err = core.Errorf(kind, c.Op, "%w", err) // of the scratch memory, which does not know what it was for
		}
	}
	return err
}

// Upload implements [core.Stream].
func (s *stream) Upload(m core.Memory, offset int, src []byte) {
	dst := unsafe.Slice((*byte)(unsafe.Add(m.Ptr, offset)), len(src))
	c := s.Begin(-1, "upload")
	if s.done.Load() != s.tail.Load() || pending(s.pending) {
		src = append([]byte(nil), src...)
		c.Work = inlineWork + 1
	}
	c.Fn = func() error {
		m.Touch(true)
		copy(dst, src)
		return nil
	}
	s.Launch(c)
}

// Download implements [core.Stream].
func (s *stream) Download(dst []byte, m core.Memory, offset int) {
	s.wait(s.tail.Load())
	m.Touch(false)
	copy(dst, unsafe.Slice((*byte)(unsafe.Add(m.Ptr, offset)), len(dst)))
}

// fail keeps the stream's first error.
func (s *stream) fail(err error) { s.failure.CompareAndSwap(nil, &failure{err}) }

// Crowded implements [core.Stream].
func (s *stream) Crowded() bool { return s.crowded.Load() }

// MakeRoom implements [core.Stream].
func (s *stream) MakeRoom() {
	if t := s.tail.Load(); t > queueSize/2 {
		s.wait(t - queueSize/2)
	}
}

// Failure returns the first unread error, and leaves it unread.
func (s *stream) Failure() error {
	if f := s.failure.Load(); f != nil {
		return f.err
	}
	return nil
}

// TakeError implements [core.Stream].
func (s *stream) TakeError() error {
	if s.failure.Load() == nil {
		return nil
	}
	if f := s.failure.Swap(nil); f != nil {
		return f.err
	}
	return nil
}

// Synchronize implements [core.Stream].
func (s *stream) Synchronize() error {
	s.mu.Lock()
	others := slices.Clone(s.pending)
	s.mu.Unlock()
	for _, e := range others {
		e.Wait()
	}
	s.wait(s.tail.Load())
	return s.TakeError()
}

// Close implements [core.Stream].
func (s *stream) Close() error {
	err := s.Synchronize()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return err
	}
	s.closed = true
	close(s.wake)
	s.inline.FreeScratch()
	s.device.streams.Remove(s)
	s.cache.close()
	if s.done.Load() == s.tail.Load() {
		// From now on calls run on their callers' threads. Storages whose cleanups are due keep the stream for another cycle of the
		// collector, and need not keep this, most of it, as well.
		s.slots = nil
	}
	return err
}

// String names the stream in messages.
func (s *stream) String() string { return fmt.Sprintf("stream of rank %d on %v", s.rank, s.device) }
