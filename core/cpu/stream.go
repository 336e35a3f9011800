package cpu

import (
	"sync"
	"time"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

// inlineWork is the largest Work, in elements, that an idle stream runs on the caller's thread. Waking a goroutine costs more than such a
// call.
const inlineWork = 16 << 10

// deferredWork is the largest Work that does not wake the worker of an idle stream: copies of so many elements take about half a
// millisecond.
const deferredWork = 4 << 20

// A stream runs calls on one goroutine, and on the callers' threads small ones and those for which they wait.
type stream struct {
	backend.Stream
	device        *Device
	inlineContext kernel.Context // for small calls on the callers' threads
	turn          sync.Mutex     // held by the one who runs a queued call
	queuedContext kernel.Context // for queued calls
}

func newStream(d *Device, rank int) *stream {
	s := &stream{device: d}
	s.inlineContext.Memory, s.queuedContext.Memory = workspace{s}, workspace{s}
	s.Open(s, backend.Options{
		Device: d, Base: d.Device, Rank: rank, Memory: d, Unit: unit, Runner: s, Inline: inlineWork, Defer: deferredWork, Sync: machine.sync,
	})
	return s
}

// Demand implements [backend.Runner]. It does nothing: the worker never batches calls.
func (s *stream) Demand(uint64) {}

// RunHere implements [backend.Runner].
func (s *stream) RunHere(c *core.Call) {
	s.run(&s.inlineContext, c)
	if s.Closed() {
		s.inlineContext.FreeScratch()
	}
}

// Help implements [backend.Runner]. It leaves to the worker what may wait for others, and everything if the worker is at work.
func (s *stream) Help(n uint64) {
	for s.Done.Load() < n && s.turn.TryLock() {
		c, at := s.First()
		ours := c != nil && c.Fn == nil && c.Mark == nil && len(c.Waits()) == 0
		if ours {
			s.runQueued(c, at)
		}
		s.turn.Unlock()
		if !ours {
			return
		}
	}
}

// Work implements [backend.Runner].
func (s *stream) Work() {
	queued := func() bool {
		c, _ := s.First()
		return c != nil
	}
	for {
		s.turn.Lock()
		c, n := s.First()
		if c != nil {
			s.runQueued(c, n)
			s.turn.Unlock()
			continue
		}
		if s.Closed() {
			s.queuedContext.FreeScratch()
		}
		s.turn.Unlock()
		if s.Spin(queued) {
			continue
		}
		if s.Ended() {
			return
		}
		s.Sleep()
	}
}

// runQueued runs call n, the first of the queue. The caller has the turn.
func (s *stream) runQueued(c *core.Call, n uint64) {
	if err := s.waitFor(c, n); err != nil {
		c.Cancel(err)
	} else {
		s.queuedContext.Pool = s.device.pool.Load().Ptr()
		s.run(&s.queuedContext, c)
	}
	c.Clear()
	s.Done.Store(n)
	s.Took()
}

// waitFor waits for the events of other streams that call n needs. It returns an error if the call was cancelled.
func (s *stream) waitFor(c *core.Call, n uint64) error {
	for _, e := range c.Waits() {
		if e.Done() {
			continue
		}
		if err := s.BlockOn(e, n, e.WaitFor); err != nil {
			return err
		}
	}
	return s.Cancelled(n)
}

// run runs one call and records it in the active profile.
func (s *stream) run(ctx *kernel.Context, c *core.Call) {
	profile := core.ActiveProfile()
	var start time.Duration
	if profile != nil {
		start = profile.Now()
	}
	s.Perform(c, func(c *core.Call) error { return s.execute(ctx, c) })
	ctx.Done()
	if profile != nil {
		profile.Record(s, c, start)
	}
}

func (s *stream) execute(ctx *kernel.Context, c *core.Call) error {
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
		return s.NoKernel(c)
	}
	err := f(ctx, c)
	if err != nil {
		if kind, _ := core.KindOf(err); kind == core.MemoryError {
			err = core.Errorf(kind, c.Op, "%w", err) // scratch memory does not know the operation's name
		}
	}
	return err
}

// Upload implements [core.Stream].
func (s *stream) Upload(m core.Memory, offset int, src []byte) {
	dst := unsafe.Slice((*byte)(unsafe.Add(m.Ptr, offset)), len(src))
	c := s.Begin(-1, "upload")
	idle := s.Idle()
	if !idle {
		src = append([]byte(nil), src...)
		c.Work = inlineWork + 1
	}
	c.Fn = func() error {
		m.Touch(true)
		copy(dst, src)
		return nil
	}
	if n := s.Enqueue(c); idle {
		s.Finish(n) // already done, unless another thread has launched a call in between
	}
}

// Download implements [core.Stream].
func (s *stream) Download(dst []byte, m core.Memory, offset int) {
	s.Finish(s.Tail.Load())
	m.Touch(false)
	copy(dst, unsafe.Slice((*byte)(unsafe.Add(m.Ptr, offset)), len(dst)))
}

// Close implements [core.Stream].
func (s *stream) Close() error {
	err := s.Stream.Close()
	s.Locked(s.inlineContext.FreeScratch)
	return err
}
