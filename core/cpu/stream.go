package cpu

import (
	"time"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

// inlineWork is the largest Work, in elements, that an idle stream runs on the caller's thread. Waking a goroutine costs more than such a
// call.
const inlineWork = 16 << 10

// A stream runs calls on one goroutine, and small calls on the callers' threads.
type stream struct {
	backend.Stream
	device        *Device
	inlineContext kernel.Context // for calls on the callers' threads
	workerContext kernel.Context // for the worker's calls
}

func newStream(d *Device, rank int) *stream {
	s := &stream{device: d}
	s.inlineContext.Memory, s.workerContext.Memory = workspace{s}, workspace{s}
	s.Open(s, backend.Options{
		Device: d, Base: d.Device, Rank: rank, Memory: d, Unit: unit, Runner: s, Inline: inlineWork, Sync: machine.sync,
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

// Work implements [backend.Runner].
func (s *stream) Work() {
	ctx := &s.workerContext
	queued := func() bool {
		c, _ := s.First()
		return c != nil
	}
	for {
		c, n := s.First()
		if c == nil {
			if s.Spin(queued) {
				continue
			}
			if s.Closed() {
				ctx.FreeScratch()
			}
			if s.Ended() {
				return
			}
			s.Sleep()
			continue
		}
		if err := s.waitFor(c, n); err != nil {
			c.Cancel(err)
		} else {
			ctx.Pool = s.device.pool.Load().Ptr()
			s.run(ctx, c)
		}
		c.Clear()
		s.Done.Store(n)
		s.Took()
	}
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
