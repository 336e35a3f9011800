package gpu

// GPUs that reach each other: they use each other's memory, and wait for each other's batches without the host.

import (
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/shader"
)

var everyGPU struct {
	sync.Mutex
	devices []*Device
}

// openDevices returns all open GPUs.
func openDevices() []*Device {
	everyGPU.Lock()
	defer everyGPU.Unlock()
	return slices.Clone(everyGPU.devices)
}

// links says which other GPUs a device reaches.
type links struct {
	linked  driver.Linked // the device's GPU; nil if its driver links none
	signals driver.Queue  // see [Device.beside]; nil before its first use
	mu      sync.Mutex
	reached map[*Device]bool
}

// linkedTrace is the trace of all GPUs that may be linked, because a call of one may use results of another.
var linkedTrace core.Trace

// open is called once the device's GPU is open.
func (l *links) open(d *Device) {
	d.trace = new(core.Trace)
	if gpu, ok := d.thread.gpu.(driver.Linked); ok && environment().peers {
		l.linked, d.trace = gpu, &linkedTrace
	}
	everyGPU.Lock()
	defer everyGPU.Unlock()
	everyGPU.devices = append(everyGPU.devices, d)
}

// Reaches implements [core.PeerDevice].
func (d *Device) Reaches(other core.Device) bool {
	o, ok := other.(*Device)
	switch {
	case !ok:
		return false
	case o == d:
		return true
	case d.links.linked == nil || o.links.linked == nil:
		return false
	}
	l := &d.links
	l.mu.Lock()
	defer l.mu.Unlock()
	reached, known := l.reached[o]
	if !known {
		d.thread.do(func() { reached = l.linked.Reach(o.links.linked) })
		if l.reached == nil {
			l.reached = map[*Device]bool{}
		}
		l.reached[o] = reached
	}
	return reached
}

// Divides implements [core.PeerDevice]. WGSL does not promise the nearest quotient, but halves are exact.
func (d *Device) Divides(n float64) bool {
	fraction, _ := math.Frexp(n)
	return d.target.ExactDivision() || fraction == 0.5
}

// NewPeerStream implements [core.PeerDevice]. On a GPU that has several queues, the stream gets one of its own, so that its copies and sums
// run beside computation, and its waits for other GPUs delay nothing else.
func (d *Device) NewPeerStream(rank int) core.Stream {
	s := newStream(d, rank)
	s.forCollectives.Store(true)
	if d.links.linked != nil {
		d.thread.do(func() {
			if q, err := d.links.linked.NewQueue(); err == nil { // without one, it takes turns with the others
				s.queue = q
				d.links.linked.Yield(d.thread.yield)
			}
		})
	}
	return s
}

// A fence is the end of a batch on the GPU, for which batches of other queues wait.
type fence struct {
	device *Device
	ended  atomic.Bool // the batch's calls have ended
	lost   atomic.Bool // because the device was lost
	mu     sync.Mutex
	status driver.Status // of the batch; nil once it has been freed
}

// holdBack makes what is submitted next to a queue run after the fence.
func (f *fence) holdBack(after func(s driver.Status)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.status != nil && !f.lost.Load() {
		after(f.status)
	}
}

// A fencedStatus is the status of a batch that is a fence for others and waits for fences itself. It is done after those fences have ended
// for the host too, and after other processes have told whether what they have written is valid, so that the errors of what the batch used
// are known before its calls end.
type fencedStatus struct {
	driver.Status
	stream *stream
	batch  *batch
	own    *fence
	after  []*fence
	valid  []foreign
}

// Done implements [driver.Status]. If a GPU was lost that the batch waits for, the wait may never end, so its GPU is lost too.
func (s *fencedStatus) Done() (done, failed bool) {
	done, failed = s.Status.Done()
	if done && !failed {
		if s.stream.noteRun(s.batch); slices.ContainsFunc(s.valid, func(f foreign) bool { return !f.Known() }) {
			return false, false
		}
	}
	for _, f := range s.after {
		switch {
		case !f.ended.Load():
			return false, false
		case !done && f.lost.Load():
			d := s.own.device
			d.thread.gpu.Lose("it waits for " + f.device.String() + ", which is lost")
			return true, true
		}
	}
	return done, failed
}

// Free implements [driver.Status].
func (s *fencedStatus) Free() {
	s.own.mu.Lock()
	s.own.status = nil
	s.own.mu.Unlock()
	s.Status.Free()
}

// A pointedFence is the fence of a batch whose last call has the given number.
type pointedFence struct {
	*fence
	last uint64
}

// addFence publishes the fence of a batch that has been given to the driver.
func (s *stream) addFence(f *fence, last uint64) {
	s.fenceMu.Lock()
	s.fences = append(slices.DeleteFunc(s.fences, func(f pointedFence) bool { return f.ended.Load() }), pointedFence{f, last})
	s.fenceMu.Unlock()
}

// fenceOf returns the fence of the batch with call n, or nil if the batch has ended or was not given to the driver.
func (s *stream) fenceOf(n uint64) *fence {
	s.fenceMu.Lock()
	defer s.fenceMu.Unlock()
	for _, f := range s.fences {
		if f.last >= n {
			return f.fence
		}
	}
	return nil
}

// giveTo calls the driver with a batch: it waits for the batch's fences, and is a fence itself. It returns the status to wait for. It runs
// on the driver thread.
func (s *stream) giveTo(gpu driver.GPU, b *batch, status driver.Status) driver.Status {
	linked := s.device.links.linked
	if linked == nil {
		gpu.Submit(b.list, s.device.params, b.params, status)
		return status
	}
	after, submit := linked.After, gpu.Submit
	if s.queue != nil {
		after, submit = s.queue.After, s.queue.Submit
	}
	for _, f := range b.after {
		f.holdBack(after)
	}
	submit(b.list, s.device.params, b.params, status)
	b.fence = &fence{device: s.device, status: status}
	s.addFence(b.fence, b.last)
	return &fencedStatus{status, s, b, b.fence, b.after, b.written}
}

// streamOf returns the stream of a GPU that an event is of, and the number of its call; nil for other events.
func streamOf(e core.Event) (*stream, uint64) {
	if p, ok := e.(backend.Event); ok {
		if s, ok := p.Stream().(*stream); ok {
			return s, p.Number()
		}
	}
	return nil, 0
}

// inOrder reports whether what the stream submits runs after what other has submitted before.
func (s *stream) inOrder(other *stream) bool {
	return s.device == other.device && s.queue == other.queue
}

// fencing reports whether the stream's batches can wait for other's on the GPU.
func (s *stream) fencing(other *stream) bool {
	return s.device.links.linked != nil && s.device.Reaches(other.device)
}

// orderBehind makes the next batch run after call last of a stream with another queue. The call has been given to the driver.
func (s *stream) orderBehind(r *encoder, other *stream, last uint64) bool {
	f := other.fenceOf(last)
	if f == nil {
		return false
	}
	if !slices.Contains(r.batch.after, f) {
		r.batch.after = append(r.batch.after, f)
	}
	maps.DeleteFunc(s.behind, func(o *stream, n uint64) bool { return o.Done.Load() >= n })
	if s.behind == nil {
		s.behind = map[*stream]uint64{}
	}
	s.behind[other] = last
	return true
}

// foreign returns an error if memory belongs to another GPU that is lost.
func (r *encoder) foreign(s *slab) error {
	if s.device == r.device {
		return nil
	}
	return s.device.lost.Get()
}

// Transfer implements [shader.Runtime]. It copies between GPUs, and on a queue for that also within one.
func (r *encoder) Transfer(to, from *core.Operand) (done bool, err error) {
	size := from.DType.Size()
	if r.device.links.linked == nil {
		return false, nil
	}
	target, at := slabOf(to.Memory)
	source, start := slabOf(from.Memory)
	at, start = at+size*to.Offset, start+size*from.Offset
	bytes := size * from.Numel()
	if target.device == source.device && r.stream.queue == nil || at%4 != 0 || start%4 != 0 || bytes%4 != 0 {
		return false, nil
	}
	for _, s := range []*slab{target, source} {
		if err := r.foreign(s); err != nil {
			return false, err
		}
	}
	r.batch.list.Copy(target.buffer, at, source.buffer, start, bytes)
	r.Flush()
	return true, nil
}

// notePeers counts the bytes that a call uses of other GPUs, and has the batch remember the call if there are any: if the batch is lost, the
// other GPUs do not tell that its outputs are undefined.
func (r *encoder) notePeers(c *core.Call) {
	if r.device.links.linked == nil {
		return
	}
	bytes := 0
	for _, list := range [][]core.Operand{c.Outs, c.Ins} {
		for i := range list {
			o := &list[i]
			if shader.Slab(o.Memory) == 0 {
				continue // a number, or absent
			}
			if s, _ := slabOf(o.Memory); s.device != r.device || s.foreign {
				bytes += o.Numel() * o.DType.Size()
			}
		}
	}
	if bytes > 0 {
		r.device.peerBytes.Add(int64(bytes))
		r.batch.shared = append(r.batch.shared, &core.Call{Op: c.Op, Outs: slices.Clone(c.Outs), InPlace: c.InPlace})
	}
}

// failShared marks the outputs of the batch's calls on memory of several GPUs as failed.
func (b *batch) failShared(err error) {
	for _, c := range b.shared {
		c.Fail(err)
	}
}

// awaitWaits waits for the events of a call that a function of the host stands for.
func (s *stream) awaitWaits(c *core.Call) error {
	n := s.recorded.Load() + 1
	for _, e := range c.Waits() {
		if !e.Done() {
			if err := s.BlockOn(e, n, e.WaitFor); err != nil {
				return err
			}
		}
	}
	return nil
}
