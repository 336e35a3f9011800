package gpu

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/kernel/fusion"
)

const (
	// queueSize bounds how far the host may run ahead of the worker.
	queueSize = 1024
	// crowdedSize leaves room for the calls of one operation by a host that must not wait.
	crowdedSize = queueSize - 256
	// spin is how long workers and waiters stay awake before they park.
	spin = 20 * time.Microsecond
)

// A stream is an in-order queue of calls. Its worker turns them into batches of commands, which the device's owner gives
// to the GPU. Calls are numbered from 1; tail is the last one launched, taken the last one recorded, sent the last one on
// its way to the GPU, done the last one that has ended.
type stream struct {
	device   *Device
	rank     int
	cache    cache // of memory in program order
	scratch  cache // of memory in the worker's order
	counts   core.Counters
	faults   core.Memory     // a word for each call of a batch that may find a fault
	releases fusion.Releases // that the worker has not seen

	calls core.Calls

	mu      sync.Mutex // held in Launch
	slots   []slot
	pending []core.Event // of other streams, that the next call must wait for
	worker  bool         // the goroutine runs
	closed  atomic.Bool

	tail, taken, sent, done atomic.Uint64
	wanted                  atomic.Uint64 // somebody waits for this call
	firstCut                atomic.Uint64 // of cuts; 0 if there is none
	flying                  atomic.Int32  // batches on the GPU
	loaded                  atomic.Int64  // elements that their calls go through, if it is made of software

	wake    chan struct{} // for the worker; holds at most one token
	crowded atomic.Bool
	carries atomic.Bool // copies for collectives

	waiters atomic.Int32
	doneMu  sync.Mutex
	doneCv  sync.Cond

	markMu sync.Mutex
	marks  []mark // in order

	cutMu sync.Mutex
	cuts  []uint64 // in order, the calls that end a batch, since somebody else goes on from there

	spare   chan *batch
	failure atomic.Pointer[failure] // the first unread error
}

// A slot is a call in the queue, perhaps of a transfer, or one to be used again.
type slot struct {
	call     *core.Call
	transfer *transfer
}

type failure struct{ err error }

func newStream(d *Device, rank int) *stream {
	s := &stream{
		device: d, rank: rank, slots: make([]slot, queueSize), wake: make(chan struct{}, 1),
		spare: make(chan *batch, inFlight+1), counts: core.NewCounters(d.ordinal, rank),
	}
	s.doneCv.L = &s.doneMu
	s.cache.device, s.scratch.device = d, d
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
		return core.Memory{}, core.Errorf(core.MemoryError, "allocate", "out of memory: no room for %d bytes on %v", bytes, s.device)
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
	at := s.tail.Load()
	if len(after) == 0 {
		s.releases.Note(m.Handle, at)
	}
	s.cache.put(block{memory: m, freed: at, after: after})
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
	s.launch(c, nil)
}

// launch enqueues the call, perhaps of a transfer, and returns its number.
func (s *stream) launch(c *core.Call, of *transfer) uint64 {
	s.mu.Lock()
	t := s.tail.Load() + 1
	for t-s.taken.Load() > queueSize {
		s.mu.Unlock()
		s.waitTaken(t - queueSize)
		s.mu.Lock()
		t = s.tail.Load() + 1
	}
	c.Place()
	slot := &s.slots[t%queueSize]
	s.calls.Put(slot.call)
	slot.call, slot.transfer = c, of
	if len(s.pending) > 0 {
		c.AddWaits(s.pending...)
		s.pending = s.pending[:0]
	}
	if !s.worker {
		s.worker = true
		go s.work()
	}
	wait := s.device.sync || c.Shared() || s.closed.Load()
	s.tail.Store(t)
	if t-s.taken.Load() > crowdedSize && s.crowded.CompareAndSwap(false, true) {
		core.Crowd(1)
	}
	s.mu.Unlock()
	s.rouse()
	if wait {
		core.Waiting(func() { s.wait(t) })
	}
	return t
}

// rouse wakes the worker if it sleeps.
func (s *stream) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// fail keeps the stream's first error.
func (s *stream) fail(err error) { s.failure.CompareAndSwap(nil, &failure{err}) }

func (s *stream) notify() {
	if s.waiters.Load() > 0 {
		s.doneMu.Lock()
		s.doneCv.Broadcast()
		s.doneMu.Unlock()
	}
}

// demand makes the worker send call n and those before it.
func (s *stream) demand(n uint64) {
	for {
		w := s.wanted.Load()
		if w >= n || s.wanted.CompareAndSwap(w, n) {
			break
		}
	}
	s.rouse()
}

// cut is demand of a call that ends its batch, also where later calls are demanded before the worker comes to it.
func (s *stream) cut(n uint64) {
	if s.sent.Load() < n {
		s.cutMu.Lock()
		if i, found := slices.BinarySearch(s.cuts, n); !found {
			s.cuts = slices.Insert(s.cuts, i, n)
			s.firstCut.Store(s.cuts[0])
		}
		s.cutMu.Unlock()
	}
	s.demand(n)
}

// dropCuts forgets the cuts up to call number sent.
func (s *stream) dropCuts(sent uint64) {
	if first := s.firstCut.Load(); first == 0 || first > sent {
		return
	}
	s.cutMu.Lock()
	defer s.cutMu.Unlock()
	i, _ := slices.BinarySearch(s.cuts, sent+1)
	s.cuts = slices.Delete(s.cuts, 0, i)
	s.firstCut.Store(0)
	if len(s.cuts) > 0 {
		s.firstCut.Store(s.cuts[0])
	}
}

// wait blocks until call n is done.
func (s *stream) wait(n uint64) {
	if s.done.Load() < n {
		s.cut(n)
		s.until(&s.done, n)
	}
}

// waitSent blocks until call n is on its way to the GPU.
func (s *stream) waitSent(n uint64) {
	if s.sent.Load() < n {
		s.cut(n)
		s.until(&s.sent, n)
	}
}

// waitTaken blocks until call n is recorded.
func (s *stream) waitTaken(n uint64) { s.until(&s.taken, n) }

func (s *stream) until(count *atomic.Uint64, n uint64) {
	start := time.Now()
	for i := 1; ; i++ {
		if count.Load() >= n {
			return
		}
		if i%64 == 0 && time.Since(start) > spin {
			break
		}
	}
	s.waiters.Add(1)
	s.doneMu.Lock()
	for count.Load() < n {
		s.doneCv.Wait()
	}
	s.doneMu.Unlock()
	s.waiters.Add(-1)
}

// waitFor is wait for at most d; it reports whether call n is done.
func (s *stream) waitFor(n uint64, d time.Duration) bool {
	if s.done.Load() >= n {
		return true
	}
	s.cut(n)
	start := time.Now()
	for i := 1; i%64 != 0 || time.Since(start) < min(spin, d); i++ {
		if s.done.Load() >= n {
			return true
		}
	}
	if d <= spin {
		return s.done.Load() >= n
	}
	over := false
	timer := time.AfterFunc(d-spin, func() {
		s.doneMu.Lock()
		over = true
		s.doneCv.Broadcast()
		s.doneMu.Unlock()
	})
	defer timer.Stop()
	s.waiters.Add(1)
	defer s.waiters.Add(-1)
	s.doneMu.Lock()
	defer s.doneMu.Unlock()
	for s.done.Load() < n && !over {
		s.doneCv.Wait()
	}
	return s.done.Load() >= n
}

// event is a point in a stream.
type event struct {
	stream *stream
	number uint64
}

// Done implements [core.Event].
func (e event) Done() bool { return e.stream.done.Load() >= e.number }

// Wait implements [core.Event].
func (e event) Wait() { e.stream.wait(e.number) }

// WaitFor implements [core.Event].
func (e event) WaitFor(d time.Duration) bool { return e.stream.waitFor(e.number, d) }

// Stream implements [core.Event].
func (e event) Stream() core.Stream { return e.stream }

// Record implements [core.Stream].
func (s *stream) Record() core.Event { return event{s, s.tail.Load()} }

// Next implements [core.Stream].
func (s *stream) Next() core.Event { return event{s, s.tail.Load() + 1} }

// Locked implements [core.Stream].
func (s *stream) Locked(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// Wait implements [core.Stream].
func (s *stream) Wait(e core.Event) {
	if e.Stream() == core.Stream(s) {
		return
	}
	s.mu.Lock()
	if len(s.pending) == cap(s.pending) { // of a stream without calls, which memory comes from, nobody else takes them
		s.pending = slices.DeleteFunc(s.pending, core.Event.Done)
	}
	s.pending = append(s.pending, e)
	s.mu.Unlock()
}

// Crowded implements [core.Stream].
func (s *stream) Crowded() bool { return s.crowded.Load() }

// MakeRoom implements [core.Stream].
func (s *stream) MakeRoom() {
	if t := s.tail.Load(); t > queueSize/2 {
		s.waitTaken(t - queueSize/2)
	}
}

// Failure returns the first unread error, and leaves it unread.
func (s *stream) Failure() error {
	if f := s.failure.Load(); f != nil {
		return f.err
	}
	return nil
}

// Explain puts a better error in the place of the first unread one, if that is old.
func (s *stream) Explain(old, better error) {
	if f := s.failure.Load(); f != nil && f.err == old {
		s.failure.CompareAndSwap(f, &failure{better})
	}
}

// TakeError implements [core.Stream].
func (s *stream) TakeError() error {
	if f := s.device.lost.Load(); f != nil {
		return f.err
	}
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
	if s.closed.Swap(true) {
		return err
	}
	s.rouse()
	s.device.streams.Remove(s)
	s.cache.close()
	s.scratch.close()
	if s.faults.Handle != 0 {
		s.device.memory.give(s.faults)
		s.faults = core.Memory{}
	}
	return err
}

// String names the stream in messages.
func (s *stream) String() string { return fmt.Sprintf("stream of rank %d on %v", s.rank, s.device) }
