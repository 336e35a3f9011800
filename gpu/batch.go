package gpu

import (
	"encoding/binary"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/shader"
)

const (
	// fullBatch is the number of commands at which a batch is submitted.
	fullBatch = 256
	// maxInFlight is how many batches of a stream may be on the GPU. A launch blocks once CUDA's stream has 1024 commands.
	maxInFlight = 3
	// maxPeerInFlight is that of a stream with a queue of its own, whose batches are short and may wait for other processes.
	maxPeerInFlight = 32
	// faultSlots is how many calls of a batch may report a fault.
	faultSlots = 256
)

// A batch is a list of commands, of one or more calls of a stream, that is submitted to the GPU at once.
type batch struct {
	list       driver.CommandList
	params     []byte
	last       uint64 // number of its last call
	uploads    []*stagingBuffer
	reads      []*readback
	checks     []check
	faults     *readback // reads the fault words of the checks
	unfinished int       // operations that must end before the batch has: the commands, and each readback
	written    []foreign // what other processes write
	watching   bool
	watched    int  // position in the device's trace; calls behind it may use results of a call that fails late
	ran        bool // the GPU has run the commands, as far as is known
	lost       bool
	after      []*fence     // run before it; of other queues
	fence      *fence       // its own, once it has been given to the driver
	shared     []*core.Call // those that use memory of other GPUs
	elements   int          // elements that its calls process; counted on software adapters only
	begun      time.Time    // when it was submitted
}

// A check is a call that may report a fault when it runs, and the function that makes its error from the fault word.
type check struct {
	core.Suspect
	err func(c *core.Call, fault uint32) error
}

func (b *batch) reset() {
	b.list.Reset()
	b.params = b.params[:0]
	b.uploads, b.reads, b.checks, b.faults, b.written, b.watching, b.ran, b.lost = nil, nil, nil, nil, nil, false, false, false
	b.after, b.fence, b.shared, b.elements = nil, nil, nil, 0
}

func (b *batch) empty() bool { return b.list.Len() == 0 && b.last == 0 }

// full reports whether a batch with the given limit of commands takes no more.
func (b *batch) full(commands int) bool {
	return b.list.Len() >= commands || len(b.params) > paramsRoom/2 || len(b.checks) >= faultSlots
}

// put appends data to the parameters at a multiple of align, and returns its offset.
func (b *batch) put(align int, data []byte) int {
	for len(b.params)%align != 0 {
		b.params = append(b.params, 0)
	}
	at := len(b.params)
	b.params = append(b.params, data...)
	return at
}

// putWords is put for 32-bit words.
func (b *batch) putWords(align int, words []uint32) int {
	at := b.put(align, nil)
	for _, w := range words {
		b.params = binary.LittleEndian.AppendUint32(b.params, w)
	}
	return at
}

// submit gives the batch to the driver. It runs on the driver thread.
func (d *Device) submit(s *stream, b *batch) {
	gpu, registered := d.thread.gpu, false
	b.unfinished = 1 // its commands; batches before it may end while it is submitted
	s.batches = append(s.batches, b)
	defer func() {
		if x := recover(); x != nil {
			d.thread.fail(x)
			if !registered { // otherwise a pending status ends it, and reports that the device is lost
				d.abandon(s, b)
			}
		}
	}()
	if gpu.Lost() { // wgpu-native aborts the process if work is submitted to a lost device
		d.abandon(s, b)
		return
	}
	for _, u := range b.uploads {
		u.buffer.Unmap()
	}
	b.put(1, make([]byte, shader.MaxParamBytes)) // the binding of the last parameters extends this far
	status := s.giveTo(gpu, b, gpu.NewStatus())
	s.markGiven(b)
	d.submits.Add(1)
	b.begun = time.Now()
	err := gpu.TakeError()
	if err != nil {
		if gpu.Lost() {
			d.lose(err)
		}
		refused := core.Errorf(core.DeviceError, "gpu", "%v (%s) refused a batch of commands: %v", d, d.Name(), err)
		s.Errors.Set(refused)
		b.failShared(refused)
	}
	if err != nil {
		for _, r := range b.reads {
			r.finish(nil)
		}
		b.reads = nil
	}
	// All operations are registered before the driver is asked for more, so that after a panic below they end with the error of the lost
	// device.
	b.unfinished += len(b.reads)
	registered = true
	d.thread.after(status, func(failed bool) {
		if b.lost = failed; failed && gpu.Lost() {
			d.lose(gpu.TakeError())
		}
		s.partEnded(b)
	})
	maps := make([]driver.Status, len(b.reads))
	for i, r := range b.reads {
		maps[i] = gpu.NewStatus()
		d.thread.after(maps[i], func(failed bool) {
			defer s.partEnded(b)
			var bytes []byte
			defer func() { r.finish(bytes) }()
			if !failed {
				bytes = r.stage.buffer.Mapped()
			}
		})
	}
	for i, r := range b.reads {
		r.stage.buffer.Map(false, maps[i])
	}
	for _, u := range b.uploads {
		if u.write {
			d.staging.remap(d, u)
		} else { // a later copy into the buffer is submitted behind this batch, so it can be reused at once
			u.memory = nil
			d.staging.put(u)
		}
	}
}

// abandon ends a batch that was not submitted because the device is lost. It runs on the driver thread.
func (d *Device) abandon(s *stream, b *batch) {
	d.lose(d.thread.gpu.TakeError())
	for _, r := range b.reads {
		r.finish(nil)
	}
	b.unfinished, b.lost = 1, true
	s.markGiven(b)
	s.partEnded(b)
}

// markGiven tells streams that wait for it that the driver has the batch.
func (s *stream) markGiven(b *batch) {
	s.given.Store(max(b.last, s.given.Load()))
	s.Notify()
}
