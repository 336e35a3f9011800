package backend

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
)

const (
	// queueSize limits how many calls the host may run ahead.
	queueSize = 1024
	// nearlyFullSize leaves slots for all calls of one operation, for hosts that must not block.
	nearlyFullSize = queueSize - 256
	// maxDeferred is the number of calls that do not wake the worker, at most.
	maxDeferred = 8
	// deferredTime is how long the worker sleeps beside such calls, at most.
	deferredTime = time.Millisecond
)

// A Runner runs the calls of a stream.
type Runner interface {
	// RunHere runs a call on the caller's thread, while the queue is empty. The stream is locked.
	RunHere(c *core.Call)
	// Work runs queued calls until the stream has ended: see [Stream.Ended]. It runs on its own goroutine.
	Work()
	// Demand says that somebody waits for call n.
	Demand(n uint64)
	// Help may run queued calls up to n on the caller's thread, which waits for it: see [Options].Defer.
	Help(n uint64)
}

// A Stream is an in-order queue of calls. Calls are numbered from 1. Tail is the last one launched, Done the last one that has ended.
//
// Hosts and the worker write concurrently, with every call, so their fields are on separate cache lines.
type Stream struct {
	// Read by all threads.
	self      core.Stream // the device's stream, which embeds this one
	device    core.Device
	base      *Device
	rank      int
	counts    core.Counters
	memory    Allocator
	unit      int // of size classes
	runner    Runner
	inline    int
	defers    int
	deferTime time.Duration
	sync      bool
	taken     *atomic.Uint64
	spin      time.Duration
	slots     []*core.Call  // queued calls, by number; other slots keep calls for reuse
	wake      chan struct{} // wakes the worker; holds at most one token

	// Read by all threads, rarely written.
	Errors     FirstError
	closed     atomic.Bool
	nearlyFull atomic.Bool // set above nearlyFullSize calls, cleared at half of queueSize
	deferred   atomic.Bool // the worker was not woken for the last calls
	timed      atomic.Bool // a timer will wake it
	waiters    atomic.Int32
	doneMu     sync.Mutex
	doneCv     sync.Cond

	// Written by hosts.
	_       CacheLine
	Tail    atomic.Uint64
	Cache   Cache // of freed memory, in program order
	calls   core.Calls
	mu      sync.Mutex   // held in Launch
	pending []core.Event // events of other streams that the next call must wait for
	working bool         // the worker goroutine exists
	// Of the calls that have been deferred since the stream was idle.
	deferredWork, deferredCalls int

	// Written by the worker.
	_    CacheLine
	Done atomic.Uint64
	core.Blocker
	_ CacheLine
}

// CacheLine separates fields so that they are not on one cache line. Processors prefetch lines in pairs.
type CacheLine [128]byte

// Options configure a stream.
type Options struct {
	Device core.Device
	Base   *Device // embedded in Device
	Rank   int
	Memory Allocator
	Unit   int // of size classes
	Runner Runner
	Inline int            // largest Work, in elements, that an idle stream runs on the caller's thread; -1 for none
	Defer  int            // largest Work of calls that do not wake the worker of an idle stream; 0 if the Runner does not help
	Sync   bool           // wait for each call
	Taken  *atomic.Uint64 // last call that has left the queue; nil means Done
	Spin   time.Duration  // how long workers and waiters spin before they sleep; 0 means 20 microseconds
}

// Open initialises s, which self embeds.
func (s *Stream) Open(self core.Stream, o Options) {
	s.self, s.device, s.base, s.rank, s.memory, s.unit = self, o.Device, o.Base, o.Rank, o.Memory, o.Unit
	s.runner, s.inline, s.defers, s.sync, s.taken = o.Runner, o.Inline, o.Defer, o.Sync, o.Taken
	if s.taken == nil {
		s.taken = &s.Done
	}
	s.deferTime = deferredTime
	if s.spin = o.Spin; s.spin == 0 {
		s.spin = shortSpin
	}
	s.counts = core.NewCounters(o.Base.ordinal, o.Rank)
	s.Cache.Open(o.Memory)
	s.wake = make(chan struct{}, 1)
	s.doneCv.L = &s.doneMu
	s.base.add(s)
}

// Self returns the device's stream that embeds s.
func (s *Stream) Self() core.Stream { return s.self }

// Device implements [core.Stream].
func (s *Stream) Device() core.Device { return s.device }

// Rank implements [core.Stream].
func (s *Stream) Rank() int { return s.rank }

// Counters implements [core.Stream].
func (s *Stream) Counters() core.Counters { return s.counts }

// String returns the stream's name for messages.
func (s *Stream) String() string { return fmt.Sprintf("stream of rank %d on %v", s.rank, s.device) }

// Alloc implements [core.Stream].
func (s *Stream) Alloc(bytes int) (core.Memory, error) {
	if core.AllocFault(s.self, bytes) {
		return core.Memory{}, core.Errorf(core.MemoryError, "allocate", "out of memory: no room for %d bytes on %v", bytes, s.device)
	}
	class := SizeClass(bytes, s.unit)
	if r := core.CurrentRecording(); r != nil {
		m, ok, err := r.Alloc(s.self, class, func() (core.Memory, error) { return s.memory.Allocate(s.rank, class, bytes) })
		if ok {
			return m, err
		}
	}
	m, after, ok := s.Cache.Take(class)
	if !ok {
		return s.memory.Allocate(s.rank, class, bytes)
	}
	for _, e := range after {
		if !e.Done() {
			s.Wait(e)
		}
	}
	return m, nil
}

// Free implements [core.Stream].
func (s *Stream) Free(m core.Memory, after ...core.Event) {
	if !core.FreeRecorded(&m) {
		s.Cache.Put(m, s.Tail.Load(), after)
	}
}

// Begin implements [core.Stream].
func (s *Stream) Begin(k core.KernelID, op string) *core.Call { return s.calls.Get(s.self, k, op) }

// Abandon implements [core.Stream].
func (s *Stream) Abandon(c *core.Call) {
	c.Clear()
	s.calls.Put(c)
}

// Refuse implements [core.Stream] for devices that have every kernel.
func (s *Stream) Refuse(*core.Call) error { return nil }

// NoKernel returns the error of a call whose kernel the device lacks.
func (s *Stream) NoKernel(c *core.Call) error {
	return core.Errorf(core.NotImplemented, c.Op, "%v has no kernel %q", s.device, c.Kernel)
}

// Launch implements [core.Stream].
func (s *Stream) Launch(c *core.Call) {
	if err := c.Err(); err != nil {
		s.FailCall(c, err)
		s.Abandon(c)
		return
	}
	s.Enqueue(c)
}

// Enqueue is Launch for a call without an error. It returns the call's number.
func (s *Stream) Enqueue(c *core.Call) uint64 {
	if r := core.CurrentRecording(); r != nil {
		r.Add(c)
	}
	s.mu.Lock()
	t := s.Tail.Load() + 1
	for t-s.taken.Load() > queueSize {
		s.mu.Unlock()
		// Wait for half the queue: waking up for every slot would take the core from the workers. What was launched may wait for a rank
		// whose thread needs the foreign lock.
		core.WithoutForeignLock(func() { s.Until(s.taken, t-1-queueSize/2) })
		s.mu.Lock()
		t = s.Tail.Load() + 1
	}
	c.Place()
	if len(s.pending) > 0 {
		c.AddWaits(s.pending...)
		s.pending = s.pending[:0]
	}
	if c.Work <= s.inline && s.Done.Load() == t-1 && !undone(c.Waits()) {
		s.runner.RunHere(c)
		c.Clear()
		s.Done.Store(t) // before Tail, so that the worker does not take the call for a queued one
		s.Tail.Store(t)
		s.Notify()
		s.mu.Unlock()
		s.calls.Put(c)
		return t
	}
	deferred := s.mayDefer(t, c)
	s.enqueue(t, c)
	wait := s.sync || c.Shared() || s.closed.Load()
	s.deferred.Store(deferred)
	s.Tail.Store(t)
	// Another thread may have taken the flag for the calls before this one, or closed the stream.
	if deferred = deferred && s.deferred.Load() && !s.closed.Load(); deferred {
		s.rouseLater()
	}
	if t-s.taken.Load() > nearlyFullSize && s.nearlyFull.CompareAndSwap(false, true) {
		core.AddNearlyFullQueues(1)
	}
	s.mu.Unlock()
	if !deferred {
		s.Rouse()
	}
	if wait {
		core.WithoutForeignLock(func() { s.Finish(t) })
	}
	return t
}

// mayDefer reports whether call t does not wake the worker. A few calls that found the stream idle are often awaited at once. To wake the
// worker, and then the thread that waits, may take longer than they do, so that thread runs them. The worker is woken by the next call that may
// not be deferred, by a thread that asks whether a call is done, and by a timer. The stream is locked.
func (s *Stream) mayDefer(t uint64, c *core.Call) bool {
	if s.Done.Load() == t-1 {
		s.deferredWork, s.deferredCalls = 0, 0
	} else if !s.deferred.Load() {
		return false
	}
	s.deferredWork += c.Work
	s.deferredCalls++
	few := s.deferredWork <= s.defers && s.deferredCalls <= maxDeferred
	return few && c.Fn == nil && c.Mark == nil && len(c.Waits()) == 0
}

// rouseLater wakes the worker after a while, if calls are then queued.
func (s *Stream) rouseLater() {
	if s.timed.CompareAndSwap(false, true) {
		time.AfterFunc(s.deferTime, func() {
			s.timed.Store(false) // before Tail is read, so that a later call starts a timer of its own
			if s.Done.Load() < s.Tail.Load() {
				s.Rouse()
			}
		})
	}
}

// enqueue stores call t in its free slot. The stream is locked.
func (s *Stream) enqueue(t uint64, c *core.Call) {
	if !s.working {
		s.working = true
		if s.slots == nil {
			s.slots = make([]*core.Call, queueSize)
		}
		go s.runner.Work()
	}
	slot := &s.slots[t%queueSize]
	s.calls.Put(*slot)
	*slot = c
}

// Idle reports whether the stream has nothing to run and nothing to wait for. Another thread may launch a call right after.
func (s *Stream) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Done.Load() == s.Tail.Load() && !undone(s.pending)
}

// NearlyFull implements [core.Stream].
func (s *Stream) NearlyFull() bool {
	s.clearNearlyFull()
	return s.nearlyFull.Load()
}

// clearNearlyFull clears the flag once the queue is half empty.
func (s *Stream) clearNearlyFull() {
	if s.nearlyFull.Load() && s.Tail.Load()-s.taken.Load() <= queueSize/2 && s.nearlyFull.CompareAndSwap(true, false) {
		core.AddNearlyFullQueues(-1)
	}
}

// Closed reports whether the stream was closed. Launch then waits for each call.
func (s *Stream) Closed() bool { return s.closed.Load() }

// Close implements [core.Stream].
func (s *Stream) Close() error {
	err := s.self.Synchronize()
	if !s.closed.Swap(true) {
		s.Rouse()
		s.base.remove(s)
		s.Cache.Close()
	}
	return err
}
