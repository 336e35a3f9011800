package gpu

// Signals between processes: words in a GPU's memory by which queues of several processes wait for each other without their hosts.

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
	"github.com/plait-ml/plait/gpu/driver"
)

// signaling returns the device's GPU if its queues take signals, otherwise nil.
func (d *Device) signaling() driver.Signaling {
	if g, ok := d.thread.gpu.(driver.Signaling); ok && d.links.linked != nil && g.Signals() {
		return g
	}
	return nil
}

// Signals implements [core.SharingDevice]. A stream that waits for the end of each call would wait for other processes.
func (d *Device) Signals() bool { return d.signaling() != nil && !d.sync }

// NewSignals implements [core.SharingDevice].
func (d *Device) NewSignals(n int) (core.Memory, error) {
	m, err := d.memory.take(backend.SizeClass(4*n, granule))
	if err != nil {
		return m, err
	}
	zeroed := make(chan struct{})
	d.beside(func(l driver.SignalList) {
		slab, at := slabOf(m)
		l.Clear(slab.buffer, at, 4*n)
	}, func() { close(zeroed) })
	<-zeroed
	if err := d.lost.Get(); err != nil {
		d.memory.Release(m)
		return core.Memory{}, err
	}
	return m, nil
}

// FreeSignals implements [core.SharingDevice].
func (d *Device) FreeSignals(m core.Memory) { d.memory.Release(m) }

// RaiseSignals implements [core.SharingDevice].
func (d *Device) RaiseSignals(words ...core.Signal) {
	d.beside(func(l driver.SignalList) {
		for _, w := range words {
			slab, at := slabOf(w.Memory)
			l.Signal(slab.buffer, at+4*w.Word, w.Number)
		}
	}, func() {})
}

// beside submits commands to a queue for them alone, and calls then when they have ended or the device is lost.
func (d *Device) beside(add func(l driver.SignalList), then func()) {
	d.thread.postUrgent(func() {
		gpu := d.thread.gpu
		if d.links.signals == nil && !gpu.Lost() {
			if q, err := d.links.linked.NewQueue(); err == nil {
				d.links.signals = q
			} else {
				gpu.Lose("the driver made no queue for signals: " + err.Error())
			}
		}
		if gpu.Lost() {
			d.lose(gpu.TakeError())
			then()
			return
		}
		list, status := gpu.NewCommandList().(driver.SignalList), gpu.NewStatus()
		add(list)
		d.links.signals.Submit(list, d.params, nil, status)
		d.thread.after(status, func(failed bool) {
			if failed && gpu.Lost() {
				d.lose(gpu.TakeError())
			}
			then()
		})
	})
}

// LaunchSignals implements [core.SignalStream].
func (s *stream) LaunchSignals(c *core.Call, x core.Signals) {
	c.Own = &x
	s.Enqueue(c)
}

// recordSignals records the commands of a call with signals. A call that waits begins a batch: that before must end without what it waits for.
func (r *encoder) recordSignals(c *core.Call, x *core.Signals) error {
	if (len(x.Await) > 0 || x.Valid != nil) && !r.batch.empty() {
		r.stream.send(r)
	}
	list := r.batch.list.(driver.SignalList)
	for _, w := range x.Set {
		slab, at := slabOf(w.Memory)
		list.Signal(slab.buffer, at+4*w.Word, w.Number)
	}
	for _, w := range x.Await {
		slab, at := slabOf(w.Memory)
		list.Await(slab.buffer, at+4*w.Word, w.Number)
	}
	if x.Valid == nil {
		return nil
	}
	r.watch()
	written := &core.Call{Op: c.Op, Outs: slices.Clone(c.Outs), InPlace: c.InPlace}
	r.batch.written = append(r.batch.written, foreign{r.device.trace.Suspect(written), x.Valid})
	return nil
}

// A foreign is a call whose outputs other processes have written.
type foreign struct {
	core.Suspect
	core.Validity
}

// failForeign fails what other processes have written, if it is not valid, and what was computed from it.
func (s *stream) failForeign(b *batch) {
	for _, f := range b.written {
		if err := f.Err(); err != nil {
			s.device.trace.Fail(f.Suspect, err)
		}
	}
}

var _ core.SignalStream = (*stream)(nil)
