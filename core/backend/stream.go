package backend

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
)

const (
	// queueSize bounds how far the host may run ahead.
	queueSize = 1024
	// crowdedSize leaves room for the calls of one operation by a host that must not wait.
	crowdedSize = queueSize - 256
)

// A Runner runs the calls of a stream.
type Runner interface {
	// RunHere runs a call on the caller's thread, before any other one. The stream is locked.
	RunHere(c *core.Call)
	// Work runs what is queued until the stream has ended: see [Stream.Ended]. It has a goroutine of its own.
	Work()
	// Demand says that somebody waits for call n.
	Demand(n uint64)
}

// A Stream is an in-order queue of calls. They are numbered from 1; Tail is the last one launched and Done the last one that has ended.
//
// Hosts and the worker write at the same time, each with every call, so that what each side writes has cache lines of its own.
type Stream struct {
	// Read by all.
	self   core.Stream // the device's, which embeds this one
	device core.Device
	of     *Device
	rank   int
	counts core.Counters
	memory Allocator
	unit   int // of size classes
	runner Runner
	inline int
	sync   bool
	taken  *atomic.Uint64
	slots  []*core.Call  // that are queued, by number; the rest are for use again
	wake   chan struct{} // for the worker; holds at most one token

	// Read by all, seldom written.
	Errors  FirstError
	closed  atomic.Bool
	crowded atomic.Bool // the queue was more than crowdedSize full, and not yet half empty since
	waiters atomic.Int32
	doneMu  sync.Mutex
	doneCv  sync.Cond

	// Written by hosts.
	_       CacheLine
	Tail    atomic.Uint64
	Cache   Cache // of memory in program order
	calls   core.Calls
	mu      sync.Mutex   // held in Launch
	pending []core.Event // of other streams, that the next call must wait for
	working bool         // the goroutine runs

	// Written by the worker.
	_    CacheLine
	Done atomic.Uint64
	_    CacheLine
}

// CacheLine keeps what lies before it out of the cache lines of what lies behind it. Processors fetch lines in pairs.
type CacheLine [128]byte

// Options are what streams differ in.
type Options struct {
	Device core.Device
	Base   *Device // that Device embeds
	Rank   int
	Memory Allocator
	Unit   int // of size classes
	Runner Runner
	Inline int            // the work, in elements, up to which an idle stream runs a call on the caller's thread; -1 for never
	Sync   bool           // wait for each call
	Taken  *atomic.Uint64 // the last call that has left the queue; nil for Done
}

// Open makes s, which self embeds, a stream that is open.
func (s *Stream) Open(self core.Stream, o Options) {
	s.self, s.device, s.of, s.rank, s.memory, s.unit = self, o.Device, o.Base, o.Rank, o.Memory, o.Unit
	s.runner, s.inline, s.sync, s.taken = o.Runner, o.Inline, o.Sync, o.Taken
	if s.taken == nil {
		s.taken = &s.Done
	}
	s.counts = core.NewCounters(o.Base.ordinal, o.Rank)
	s.Cache.Open(o.Memory)
	s.wake = make(chan struct{}, 1)
	s.doneCv.L = &s.doneMu
	s.of.add(s)
}

// Self returns the device's stream, which embeds s.
func (s *Stream) Self() core.Stream { return s.self }

// Device implements [core.Stream].
func (s *Stream) Device() core.Device { return s.device }

// Rank implements [core.Stream].
func (s *Stream) Rank() int { return s.rank }

// Counters implements [core.Stream].
func (s *Stream) Counters() core.Counters { return s.counts }

// String names the stream in messages.
func (s *Stream) String() string { return fmt.Sprintf("stream of rank %d on %v", s.rank, s.device) }

// Alloc implements [core.Stream].
func (s *Stream) Alloc(bytes int) (core.Memory, error) {
	if core.AllocFault(s.self, bytes) {
		return core.Memory{}, core.Errorf(core.MemoryError, "allocate", "out of memory: no room for %d bytes on %v", bytes, s.device)
	}
	class := SizeClass(bytes, s.unit)
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
func (s *Stream) Free(m core.Memory, after ...core.Event) { s.Cache.Put(m, s.Tail.Load(), after) }

// Begin implements [core.Stream].
func (s *Stream) Begin(k core.KernelID, op string) *core.Call { return s.calls.Get(s.self, k, op) }

// Abandon implements [core.Stream].
func (s *Stream) Abandon(c *core.Call) {
	c.Clear()
	s.calls.Put(c)
}

// Refuse implements [core.Stream], for devices that have every kernel.
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

// Enqueue is Launch of a call without an error, and returns its number.
func (s *Stream) Enqueue(c *core.Call) uint64 {
	s.mu.Lock()
	t := s.Tail.Load() + 1
	for t-s.taken.Load() > queueSize {
		s.mu.Unlock()
		s.Until(s.taken, t-1-queueSize/2) // a host that came back for each free slot would take its core from the workers
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
		s.Done.Store(t) // before Tail, so that the worker does not take the call for queued
		s.Tail.Store(t)
		s.Notify()
		s.mu.Unlock()
		s.calls.Put(c)
		return t
	}
	s.enqueue(t, c)
	wait := s.sync || c.Shared() || s.closed.Load()
	s.Tail.Store(t)
	if t-s.taken.Load() > crowdedSize && s.crowded.CompareAndSwap(false, true) {
		core.Crowd(1)
	}
	s.mu.Unlock()
	s.Rouse()
	if wait {
		core.Waiting(func() { s.Finish(t) })
	}
	return t
}

// enqueue puts call number t into its slot, which is free. The stream is locked.
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

// Idle reports whether the stream has nothing to do or to wait for. Another thread may launch a call right after.
func (s *Stream) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Done.Load() == s.Tail.Load() && !undone(s.pending)
}

// Crowded implements [core.Stream].
func (s *Stream) Crowded() bool {
	s.relieve()
	return s.crowded.Load()
}

// relieve says that there is room again, if there is.
func (s *Stream) relieve() {
	if s.crowded.Load() && s.Tail.Load()-s.taken.Load() <= queueSize/2 && s.crowded.CompareAndSwap(true, false) {
		core.Crowd(-1)
	}
}

// MakeRoom implements [core.Stream].
func (s *Stream) MakeRoom() {
	if t := s.Tail.Load(); t > queueSize/2 {
		s.Until(s.taken, t-queueSize/2)
	}
}

// Closed reports whether the stream was closed. Calls launched since are waited for.
func (s *Stream) Closed() bool { return s.closed.Load() }

// Close implements [core.Stream].
func (s *Stream) Close() error {
	err := s.self.Synchronize()
	if !s.closed.Swap(true) {
		s.Rouse()
		s.of.remove(s)
		s.Cache.Close()
	}
	return err
}
