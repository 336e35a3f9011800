package gpu

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

// Work implements [backend.Runner]: it records calls and sends batches to the GPU until the stream is closed.
func (s *stream) Work() {
	r := newEncoder(s)
	for {
		c, n := s.First()
		if c == nil {
			switch {
			case s.hasRequest():
				s.sendAll(r)
			case s.shouldFeed(r):
				s.sendWithoutFusion(r)
			case !s.waitForWork(r):
				return
			default:
				r.feedThreshold = s.device.limits.IdleBatch
			}
			continue
		}
		err := s.orderAfter(r, c.Waits(), n)
		if err == nil {
			err = s.Cancelled(n)
		}
		s.device.trace.Add(c)
		s.record(r, c, err)
		_, moves := c.Own.(*transfer)
		if s.device.adapter.Software && !moves {
			r.batch.elements += elements(c)
		}
		carried := moves && s.forCollectives.Load()
		if s.submitted.Load() < n {
			r.batch.last = n
		}
		c.Clear()
		s.recorded.Store(n)
		s.Took()
		switch {
		case r.fusion.N == 0 && s.full(r.batch), s.endsBatch(n), carried && s.sendsPiece(r), core.ActiveProfile() != nil:
			s.sendAll(r)
		case r.fusion.N == 0:
			s.feed(r)
		}
	}
}

// hasRequest reports whether somebody waits for a call that has not gone to the GPU.
func (s *stream) hasRequest() bool { return s.requested.Load() > s.submitted.Load() }

// shouldFeed reports whether the batch should be sent, although more calls may come, because the GPU has nothing to do. A batch whose calls
// are all held by a fusion waits a little longer, so that the fusion can grow.
func (s *stream) shouldFeed(r *encoder) bool {
	return s.inFlight.Load() == 0 && !r.batch.empty() && (r.fusion.N == 0 || r.batch.list.Len() > 0)
}

// sendAll sends the batch, with the calls that the fusion holds. That may end the fusion at an arbitrary point, so the fusion stays behind
// if somebody waits only for calls before it.
func (s *stream) sendAll(r *encoder) {
	if f := &r.fusion; f.N > 0 && s.hasRequest() && s.requested.Load() < f.Members[0].Number {
		s.sendWithoutFusion(r)
		return
	}
	here := s.recorded.Load()
	r.encode(s.requested.Load() != here && s.firstCut.Load() != here)
	s.send(r)
}

// endsBatch reports whether a batch must end with call n: it is the last one requested, or a cut. Calls behind it must not delay it: a
// stream that copies its results to the host can then run on the GPU right after it.
func (s *stream) endsBatch(n uint64) bool {
	if c := s.firstCut.Load(); c > 0 && c <= n {
		return true
	}
	w := s.requested.Load()
	return w <= n && w > s.submitted.Load()
}

// sendWithoutFusion sends the batch without the calls that the fusion holds.
func (s *stream) sendWithoutFusion(r *encoder) {
	f := &r.fusion
	if f.N == 0 {
		s.send(r)
		return
	}
	r.batch.last = f.Members[0].Number - 1
	s.submit(r)
	r.batch.last = f.Members[f.N-1].Number
}

// waitForWork blocks until there is something to do. It returns false if the stream is closed instead.
func (s *stream) waitForWork(r *encoder) bool {
	if s.Spin(func() bool { return s.Tail.Load() > s.recorded.Load() || s.hasRequest() || s.shouldFeed(r) }) {
		return true
	}
	if s.inFlight.Load() == 0 && r.fusion.N > 0 {
		s.sendAll(r)
		return true
	}
	if r.batch.empty() && s.Ended() {
		return false
	}
	s.Sleep()
	return true
}

// orderAfter makes what is recorded from now on, beginning with call n, run after the events. An event of a stream with the same queue is in
// order once its call has been submitted. A batch can wait for an event of another queue of the same GPU, or of a GPU that this one reaches,
// once the driver has the event's call. The worker waits for any other event to end. It returns an error if the call was cancelled.
func (s *stream) orderAfter(r *encoder, events []core.Event, n uint64) error {
	for _, e := range events {
		if e.Done() {
			continue
		}
		if j, ok := e.(core.Joint); ok && j.Known(0) {
			if err := s.orderAfter(r, j.Parts(), n); err != nil {
				return err
			}
			continue
		}
		other, last := streamOf(e)
		here := other != nil && s.inOrder(other)
		if other != nil && s.behind[other] >= last || here && other.submitted.Load() >= last {
			continue
		}
		if !r.batch.empty() { // the event may depend on what this batch holds back
			r.encode(true)
			s.send(r)
		}
		var err error
		switch j, joint := e.(core.Joint); {
		case here:
			err = s.BlockOn(e, n, func(d time.Duration) bool { return other.waitSubmitted(last, d) })
		case other != nil && s.fencing(other):
			if other.given.Load() < last {
				err = s.BlockOn(e, n, func(d time.Duration) bool { return other.waitGiven(last, d) })
			}
			if err == nil && !e.Done() && !s.orderBehind(r, other, last) {
				err = s.BlockOn(e, n, e.WaitFor)
			}
		case joint:
			if err = s.BlockOn(e, n, j.Known); err == nil {
				err = s.orderAfter(r, j.Parts(), n)
			}
		default:
			err = s.BlockOn(e, n, e.WaitFor)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// record turns a call into commands, or adds it to the fusion. An error becomes that of the call's outputs and of the stream. A call that was
// cancelled, with the error cancelled, does not run.
func (s *stream) record(r *encoder, c *core.Call, cancelled error) {
	if cancelled != nil {
		c.Cancel(cancelled)
		switch own := c.Own.(type) {
		case *transfer:
			own.cancel(cancelled)
		case *groupLaunch:
			own.cancel(cancelled)
			return
		default:
			return
		}
	}
	profile := core.ActiveProfile()
	if profile == nil && c.Own == nil && c.Fn == nil && c.Mark == nil && s.fuse(r, c) {
		return
	}
	r.encode(false)
	r.fusion.Interrupted = false
	var start time.Duration
	if profile != nil {
		s.drain(r)
		start = profile.Now()
	}
	s.perform(r, c)
	if profile != nil {
		r.batch.last = s.recorded.Load() + 1
		s.drain(r)
		profile.Record(s, c, start)
	}
}

// perform appends the commands of a call to the batch.
func (s *stream) perform(r *encoder, c *core.Call) {
	if r.capture != nil {
		r.capture.perform(r, c)
		return
	}
	s.Perform(c, func(c *core.Call) error { return s.execute(r, c) })
	r.Release(0)
}

func (s *stream) execute(r *encoder, c *core.Call) error {
	if t, ok := c.Own.(*transfer); ok {
		return r.recordTransfer(t)
	}
	if l, ok := c.Own.(*groupLaunch); ok {
		l.run(r)
		return nil
	}
	if err := s.device.lost.Get(); err != nil {
		return err
	}
	if x, ok := c.Own.(*core.Signals); ok {
		return r.recordSignals(c, x)
	}
	switch {
	case c.Fn != nil:
		if !c.HostOnly {
			s.drain(r)
			if err := s.awaitWaits(c); err != nil {
				return err
			}
		}
		return c.Fn()
	case c.Mark != nil:
		s.mark(r, c)
		return nil
	}
	f := kernel.Lookup(c.Kernel)
	if f == nil {
		return s.NoKernel(c)
	}
	s.device.moved.Add(int64(movedBytes(c)))
	r.notePeers(c)
	r.Float64 = shader.Doubles(c)
	return f(&r.Recorder, c)
}

// movedBytes returns the bytes of the tensors that a call reads and writes.
func movedBytes(c *core.Call) int {
	n := 0
	for _, list := range [2][]core.Operand{c.Ins, c.Outs} {
		for i := range list {
			n += shader.Bytes(&list[i])
		}
	}
	return n
}

// Refuse implements [core.Stream]. It refuses a call if the device is lost, if the language lacks float64, or if there is
// no kernel.
func (s *stream) Refuse(c *core.Call) error {
	if err := s.device.lost.Get(); err != nil {
		return err
	}
	if c.Fn != nil || c.Mark != nil {
		return nil
	}
	switch c.Kernel {
	case contract.Copy, contract.Fill: // these copy the bits of any dtype, and convert between dtypes of WGSL
		if c.Outs[0].DType == core.Float64 && (c.Ins[0].IsNumber || c.Ins[0].DType == core.Float64) {
			return nil
		}
	}
	double, storage := false, c.Kernel == contract.Copy || c.Kernel == contract.Fill
	for _, list := range [2][]core.Operand{c.Outs, c.Ins} {
		for i := range list {
			if m := list[i].Memory.Size; m > reach && m/list[i].DType.Size() > reach {
				return core.Errorf(core.NotImplemented, c.Op, "a tensor of %s in %d bytes has more elements than programs on %v count, %d",
					list[i].DType, m, s.device, reach)
			}
			if list[i].DType == core.Float64 && list[i].Present() && !list[i].IsNumber {
				double = true
			}
			storage = storage && !list[i].DType.IsFloat()
		}
	}
	if double && !s.device.target.Doubles() {
		return core.Errorf(core.NotImplemented, c.Op, "float64 is not supported on %v: WGSL has no such type; use float32", s.device)
	}
	uint64s := func(o core.Operand) bool { return o.DType == core.Uint64 }
	if !storage && (slices.ContainsFunc(c.Outs, uint64s) || slices.ContainsFunc(c.Ins, uint64s)) {
		return core.Errorf(core.NotImplemented, c.Op, "uint64 is not supported on %v but for copies; use int64", s.device)
	}
	if kernel.Lookup(c.Kernel) == nil {
		return s.NoKernel(c)
	}
	return nil
}

// drain sends what is recorded and waits until the GPU has run it.
func (s *stream) drain(r *encoder) {
	s.send(r)
	s.Finish(s.submitted.Load())
}

// A mark is a function to call when the call with number after is done.
type mark struct {
	after uint64
	fn    func()
}

// mark arranges that the call's function is called when the GPU has run everything recorded so far, which is sent as a batch of its own,
// and when the calls of other streams that it waits for have ended. The mark is added before the batch is sent, because waiters must find
// it.
func (s *stream) mark(r *encoder, c *core.Call) {
	var left atomic.Int32
	reached, name := c.Mark, c.Op
	fn := func() {
		if left.Add(-1) > 0 {
			return
		}
		var err error
		defer func() { // runs before markMu is unlocked
			if err != nil {
				s.Errors.Set(err)
			}
		}()
		defer backend.Recover(name, &err)
		reached()
	}
	left.Store(1)
	for _, e := range c.Waits() {
		if other, n := streamOf(e); other != nil {
			left.Add(1)
			other.addMark(mark{n, fn})
		}
	}
	if r.batch.list.Len() == 0 {
		s.addMark(mark{s.submitted.Load(), fn})
		return
	}
	r.batch.last = s.recorded.Load() + 1
	s.addMark(mark{r.batch.last, fn})
	s.send(r)
}

func (s *stream) addMark(m mark) {
	s.markMu.Lock()
	defer s.markMu.Unlock()
	i := len(s.marks)
	for i > 0 && s.marks[i-1].after > m.after {
		i--
	}
	s.marks = slices.Insert(s.marks, i, m)
	s.runMarks(s.Done.Load())
}

// runMarks calls the functions of the marks up to call number done. The caller holds markMu.
func (s *stream) runMarks(done uint64) {
	for len(s.marks) > 0 && s.marks[0].after <= done {
		s.marks[0].fn()
		s.marks[0] = mark{}
		s.marks = s.marks[1:]
	}
}

// send submits the batch with the fusion. It blocks while too many batches are on the GPU.
func (s *stream) send(r *encoder) {
	r.encode(false)
	s.submit(r)
}

// submit is send without the calls that the fusion holds.
func (s *stream) submit(r *encoder) {
	b := r.batch
	if b.empty() {
		return
	}
	if len(b.checks) > 0 {
		s.collectFaults(b)
	}
	for s.inFlight.Load() >= s.maxBatches() || s.queueFull(b) {
		s.Sleep()
	}
	s.inFlight.Add(1)
	s.queuedElements.Add(int64(b.elements))
	s.device.pacing.countBatch()
	b.last = max(b.last, s.submitted.Load()) // a call with many commands may be submitted in several batches
	last := b.last
	d := s.device
	if submit := func() { d.submit(s, b) }; s.queue != nil {
		d.thread.postUrgent(submit)
	} else {
		d.thread.post(submit)
	}
	s.submitted.Store(last)
	s.dropCuts(last)
	if s.Notify(); s.Awaited() {
		runtime.Gosched() // lets a stream that waited for this batch send its own before this stream sends more
	}
	r.batch = s.newBatch()
}

// maxBatches returns how many batches of the stream may be on the GPU.
func (s *stream) maxBatches() int32 {
	if s.queue != nil {
		return maxPeerInFlight
	}
	return s.device.pacing.maxBatches()
}

func (s *stream) newBatch() *batch {
	select {
	case b := <-s.spare:
		return b
	default:
		return &batch{list: s.device.thread.gpu.NewCommandList()}
	}
}
