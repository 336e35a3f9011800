package gpu

import (
	"encoding/binary"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/shader"
)

const (
	// fullBatch is the number of commands at which a batch is sent.
	fullBatch = 256
	// inFlight is how many batches of a stream may be on the GPU.
	inFlight = 4
	// faultSlots is how many calls of a batch may report a fault.
	faultSlots = 256
)

// A batch is the commands of some calls of a stream, which go to the GPU together.
type batch struct {
	list    driver.List
	params  []byte
	last    uint64 // the last call in it
	uploads []*stage
	reads   []*readback
	checks  []check
	faults  *readback // of the checks' slots
	open    int       // what has to end before the batch has: the commands, and each read
	watched int       // the place in the device's trace from which on calls may use what a check finds fault with
	lost    bool
	load    int       // elements that its calls go through, on a GPU made of software
	begun   time.Time // when the GPU got it
}

// A check is a call that may find a fault in its arguments when it runs, and what to say if it did.
type check struct {
	core.Suspect
	err func(c *core.Call, fault uint32) error
}

func (b *batch) reset() {
	b.list.Reset()
	b.params = b.params[:0]
	b.uploads, b.reads, b.checks, b.faults, b.lost, b.load = nil, nil, nil, nil, false, 0
}

func (b *batch) empty() bool { return b.list.Len() == 0 && b.last == 0 }

// full reports whether a batch of at most so many commands takes no more.
func (b *batch) full(commands int) bool {
	return b.list.Len() >= commands || len(b.params) > paramsRoom/2 || len(b.checks) >= faultSlots
}

// put appends data to the parameters at a multiple of align, and returns where.
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
	gpu := d.thread.gpu
	defer func() {
		if x := recover(); x != nil {
			d.thread.fail(x)
			if b.open == 0 { // else somebody waits for it, and learns that the device is lost
				d.abandon(s, b)
			}
		}
	}()
	if gpu.Lost() { // the library ends the process where such a device is given work
		d.abandon(s, b)
		return
	}
	for _, u := range b.uploads {
		u.buffer.Unmap()
	}
	b.put(1, make([]byte, shader.MaxParamBytes)) // what the last window reaches
	status := gpu.NewStatus()
	gpu.Submit(b.list, d.params, b.params, status)
	d.submits.Add(1)
	b.begun = time.Now()
	err := gpu.TakeError()
	if err != nil {
		if gpu.Lost() {
			d.lose(err)
		}
		s.Errors.Set(core.Errorf(core.DeviceError, "gpu", "%v (%s) refused a batch of commands: %v", d, d.Name(), err))
	}
	if err != nil {
		for _, r := range b.reads {
			r.finish(nil)
		}
		b.reads = nil
	}
	// Every ending is known before the driver is asked for more: after a panic below, who waits learns that the device is lost.
	b.open = 1 + len(b.reads)
	d.thread.after(status, func(failed bool) {
		if b.lost = failed; failed && gpu.Lost() {
			d.lose(gpu.TakeError())
		}
		s.ended(b)
	})
	maps := make([]driver.Status, len(b.reads))
	for i, r := range b.reads {
		maps[i] = gpu.NewStatus()
		d.thread.after(maps[i], func(failed bool) {
			defer s.ended(b)
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
		} else { // the next copy to it comes behind this batch
			u.memory = nil
			d.staging.put(u)
		}
	}
}

// abandon ends a batch that a lost device was not given. It runs on the driver thread.
func (d *Device) abandon(s *stream, b *batch) {
	d.lose(d.thread.gpu.TakeError())
	for _, r := range b.reads {
		r.finish(nil)
	}
	b.open, b.lost = 1, true
	s.ended(b)
}
